"""Two decision records, match against match: what was done then and not now, and the other way round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TypeAlias

from surgeon_passes.record.pairing import Match, at, of_status, pair

Record: TypeAlias = "Mapping[str, Any]"


@dataclass(frozen=True, slots=True)
class Changed:
    """A match that is there in both, but for ``what``: one line each."""

    old: Match
    new: Match
    what: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """A match that the other record has not; ``why``: what that says of the place."""

    match: Match
    why: str


@dataclass(frozen=True, slots=True)
class Diff:
    """``same`` pairs are equal by structure, whatever they are called. ``facts``: what else differs, a line each."""

    same: tuple[tuple[Match, Match], ...] = ()
    changed: tuple[Changed, ...] = ()
    gone: tuple[Missing, ...] = ()
    come: tuple[Missing, ...] = ()
    facts: tuple[str, ...] = field(default=())

    @property
    def is_empty(self) -> bool:
        """Whether the same was done, at the same places."""
        return not (self.changed or self.gone or self.come)


def diff(old: Record, new: Record) -> Diff:
    """What was applied in two runs. Names may all be others; nothing is read but the records."""
    found = pair(of_status(old["matches"], "applied"), of_status(new["matches"], "applied"), _structure)
    same = tuple(found.pairs)
    found.pairs = []
    found.take(lambda m: at(m["rule"], m, "above"))
    found.take(lambda m: at(m["rule"], m, "below"))
    found.align(lambda m: (m["rule"], _operators(m)))
    return Diff(
        same,
        tuple(Changed(a, b, tuple(_differences(a, b))) for a, b in found.pairs),
        tuple(Missing(match, _why(match, new)) for match in found.old),
        tuple(Missing(match, _why(match, old)) for match in found.new),
        tuple(_facts(old, new)),
    )


def _structure(match: Match) -> str:
    """What makes two matches equal; of what has no region, the rule and why."""
    region = match["region"]
    return str(region["structure"]) if region is not None else f"{match['rule']}: {match['verdict']}"


def _operators(match: Match) -> tuple[str, ...]:
    region = match["region"]
    return () if region is None else tuple(sorted(node["op"] for node in region["removed"]))


# --- what differs ------------------------------------------------------------------------------------------------------


def _differences(old: Match, new: Match) -> Iterator[str]:
    """Operators, or else attributes and constants of the nodes that went."""
    sides = [[] if m["region"] is None else m["region"]["removed"] for m in (old, new)]
    counts = [Counter(node["op"] for node in side) for side in sides]
    if counts[0] != counts[1]:
        for op in sorted(counts[0] | counts[1]):
            if counts[0][op] != counts[1][op]:
                yield f"{op}: {counts[0][op]} -> {counts[1][op]}"
        return
    by_op = [sorted(side, key=lambda node: str(node["op"])) for side in sides]
    found = dict.fromkeys(line for a, b in zip(*by_op, strict=True) for line in _of_nodes(a, b))
    yield from found or ["how its nodes are connected, or what types they read"]


def _of_nodes(old: Match, new: Match) -> Iterator[str]:
    a, b = old["attributes"], new["attributes"]
    for name in sorted(a.keys() | b.keys()):
        if a.get(name) != b.get(name):
            yield f"{old['op']}: {name} {a.get(name)} -> {b.get(name)}"
    for place, (was, now) in enumerate(zip_longest(old["inputs"], new["inputs"])):
        if _constant(was) != _constant(now):
            yield f"{old['op']}: input {place} {_constant(was) or 'computed'} -> {_constant(now) or 'computed'}"


def _constant(tensor: Match | None) -> str:
    if tensor is None or not tensor["constant"]:
        return "" if tensor is not None else "none"
    return f"{tensor['dtype']}{tensor['shape']}"


def _why(match: Match, other: Record) -> str:
    """What the other record says of a place at which it has no such match."""
    entry = next((rule for rule in other["rules"] if rule["name"] == match["rule"]), None)
    if entry is None:
        return "nothing was decided under this name"
    if not entry["activated"]:
        return "the rule was left out"
    there = [m for m in (*other["matches"], *other["near_misses"]) if m["status"] != "applied"]
    same_rule = [m for m in there if m["rule"] == match["rule"]]
    for side in ("above", "below"):
        key = at("", match, side)
        for found in same_rule:
            if key is not None and at("", found, side) == key:
                return f"{found['status']} at {found['root']}: {found['reason']}"
    return "nothing there comes near"


# --- around the matches ------------------------------------------------------------------------------------------------


def _facts(old: Record, new: Record) -> Iterator[str]:
    yield from changes("", old["tools"], new["tools"])
    a, b = old["source"], new["source"]
    if a["sha256"] != b["sha256"] or a["sha256"] is None:
        yield "the source is another file"
    for name in ("producer", "producer_version", "ir_version"):
        yield from changes("", {name: a[name]}, {name: b[name]})
    yield from opset_changes(a["opsets"], b["opsets"])
    for side in ("inputs", "outputs"):
        yield from _interface(side[:-1], a[side], b[side])
    for name in ("pipeline", "skip", "keep", "only", "verify"):
        if old["options"][name] != new["options"][name]:
            yield f"other options: {name}"
    if old["seed"] != new["seed"]:
        yield f"seed: {old['seed']} -> {new['seed']}"
    yield from changes("", old["before"]["operators"], new["before"]["operators"], 0)


def changes(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any], missing: Any = "none") -> Iterator[str]:
    """A line for each name whose values differ."""
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name, missing), new.get(name, missing)
        if was != now:
            yield f"{prefix}{name}: {was} -> {now}"


def opset_changes(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[str]:
    """A line for each domain whose opset differs."""
    was, now = ({domain or "ai.onnx": version for domain, version in side.items()} for side in (old, new))
    yield from changes("opset ", was, now)


def _interface(what: str, old: Sequence[Match], new: Sequence[Match]) -> Iterator[str]:
    for place, (was, now) in enumerate(zip_longest(old, new)):
        if shape_key(was) != shape_key(now):
            yield f"{what} {place}: {type_text(was)} -> {type_text(now)}"


def type_text(value: Match | None) -> str:
    """An input or output as a line shows it."""
    if value is None:
        return "none"
    return f"{value['dtype']}{' of unknown rank' if value['shape'] is None else value['shape']}"


def shape_key(value: Match | None) -> Any:
    """Element type and dims; what a dim is called is one more name."""
    if value is None or value["shape"] is None:
        return None if value is None else (value["dtype"], None)
    return value["dtype"], [dim if isinstance(dim, int) else "open" for dim in value["shape"]]

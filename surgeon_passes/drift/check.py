"""How far a model has drifted from its baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from surgeon_passes.drift.baseline import baseline_of
from surgeon_passes.errors import visible
from surgeon_passes.record.diff import changes, opset_changes, shape_key, type_text

if TYPE_CHECKING:
    from surgeon_passes.result import Result

Counts = Mapping[str, int]


@dataclass(frozen=True)
class Drift:
    """``parts``: by what is compared, from 0 (all the same) to 1 (nothing in common); None where it cannot be compared.

    ``lines`` tell what differs, for a person; those that are not measured (names, versions) too.
    """

    parts: Mapping[str, float | None]
    lines: tuple[str, ...]

    @property
    def value(self) -> float:
        """The largest of the parts."""
        return max((part for part in self.parts.values() if part is not None), default=0.0)

    def report(self, allowed: float = 0.0) -> str:
        """Lines: the measure, then each difference."""
        parts = ", ".join(f"{name} {'not compared' if d is None else f'{d:.4g}'}" for name, d in self.parts.items())
        verdict = "beyond" if self.value > allowed else "within"
        head = f"drift {self.value:.4g}, {verdict} the {allowed:g} that is allowed ({parts})"
        return "\n".join(map(visible, [head, *self.lines])) + "\n"


def check(baseline: Mapping[str, Any], result: Result) -> Drift:
    """The model that ``result`` was made of against ``baseline``.

    The drift of counts (operators, weights by element type and shape, matches by rule) is the share of them that is not
    common: sum of differences over sum of the larger ones. That of the signature is the share of inputs and outputs, by
    place, whose element type, rank or fixed dims differ. Names count nowhere. Matches are compared where passes and options
    are those of the baseline.
    """
    return compare(baseline, baseline_of(result))


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> Drift:
    """One baseline against another."""
    weights = [_weights(side) for side in (old, new)]
    told = old["options"] == new["options"]
    parts = {
        "signature": _signature(old, new),
        "operators": apart(old["operators"], new["operators"]),
        "weights": apart(*weights),
        "matches": apart(old["matches"], new["matches"]) if told else None,
    }
    return Drift(parts, tuple(_lines(old, new, weights, told)))


def apart(old: Counts, new: Counts) -> float:
    """Share of what is counted that is not common to both: 0 where both are equal, 1 where nothing is common."""
    names = old.keys() | new.keys()
    whole = sum(max(old.get(n, 0), new.get(n, 0)) for n in names)
    return sum(abs(old.get(n, 0) - new.get(n, 0)) for n in names) / whole if whole else 0.0


def _weights(side: Mapping[str, Any]) -> Counts:
    return {f"{entry['dtype']}{entry['shape']}": entry["count"] for entry in side["weights"]}


def _signature(old: Mapping[str, Any], new: Mapping[str, Any]) -> float:
    pairs = [pair for side in ("inputs", "outputs") for pair in zip_longest(old[side], new[side])]
    differ = sum(shape_key(was) != shape_key(now) for was, now in pairs)
    return differ / len(pairs) if pairs else 0.0


def _lines(old: Mapping[str, Any], new: Mapping[str, Any], weights: Sequence[Counts], compared: bool) -> Iterator[str]:
    for side in ("inputs", "outputs"):
        yield from _interface(side[:-1], old[side], new[side])
    yield from _counted("operator", old["operators"], new["operators"])
    if compared:
        yield from _counted("rule", old["matches"], new["matches"], "matches")
    else:
        yield "matches are not compared: the baseline was saved with other passes or options"
    yield from _counted("weights", weights[0], weights[1])
    names = ("producer", "producer_version", "ir_version")
    yield from changes("", {n: old[n] for n in names}, {n: new[n] for n in names})
    yield from opset_changes(old["opsets"], new["opsets"])
    yield from changes("", old["tools"], new["tools"])


def _interface(what: str, old: Sequence[Any], new: Sequence[Any]) -> Iterator[str]:
    for place, (was, now) in enumerate(zip_longest(old, new)):
        if shape_key(was) != shape_key(now):
            yield f"{what} {place}: {type_text(was)} -> {type_text(now)}"
        elif was is not None and was["name"] != now["name"]:
            yield f"{what} {place} is called '{now['name']}', no longer '{was['name']}'"


def _counted(what: str, old: Counts, new: Counts, verb: str = "stands") -> Iterator[str]:
    """What appeared first, then what is gone, then what changed its number."""
    for name in sorted(new.keys() - old.keys()):
        yield f"+ {what} {name} {verb} {_times(new[name])}; before it did not"
    for name in sorted(old.keys() - new.keys()):
        yield f"- {what} {name} {verb} nowhere; before {_times(old[name])}"
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name]:
            fewer = "fewer" if new[name] < old[name] else "more"
            yield f"~ {what} {name} {verb} {_times(abs(new[name] - old[name]))} {fewer}: {old[name]} -> {new[name]}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"

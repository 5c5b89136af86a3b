"""Differences between records, for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from surgeon_passes.errors import visible
from surgeon_passes.record.diff import Diff, Missing
from surgeon_passes.record.pairing import Match

if TYPE_CHECKING:
    from surgeon_passes.record.replay import Replay

LISTED = 40
"""Lines of one kind that are listed."""
NAMED = 3
"""Matches of one rule that are listed where the same is said of all."""


def show(found: Diff, then: str = "then", now: str = "now") -> str:
    """Lines: what else differs, the number of matches, then each that is not the same in both."""
    return "\n".join(map(visible, _lines(found, then, now))) + "\n"


def _lines(found: Diff, then: str, now: str) -> Iterator[str]:
    yield from found.facts
    old = len(found.same) + len(found.changed) + len(found.gone)
    new = len(found.same) + len(found.changed) + len(found.come)
    counts = f"{len(found.same)} the same, {len(found.changed)} changed, {len(found.gone)} gone, {len(found.come)} new"
    yield f"matches: {old} {then}, {new} {now}: {counts}"
    yield from _rules(found)
    yield from _cut("~", (f"{_at(c.old)}, {now} {_root(c.new)}: {'; '.join(c.what)}" for c in found.changed))
    yield from _cut("-", _missing(found.gone, now))
    yield from _cut("+", _missing(found.come, then))


def _missing(found: Iterable[Missing], when: str) -> Iterator[str]:
    """A line each; of many of one rule, for one reason, the first few."""
    groups: dict[tuple[str, str], list[Missing]] = {}
    for missing in found:
        groups.setdefault((missing.match["rule"], missing.why), []).append(missing)
    for (rule, why), group in groups.items():
        shown = group if len(group) <= NAMED + 1 else group[:NAMED]
        yield from (f"{_at(m.match)}: {when} {why}" for m in shown)
        if len(group) > len(shown):
            yield f"{rule} at {len(group) - len(shown)} more places: {when} {why}"


def _rules(found: Diff) -> Iterator[str]:
    """Rules that match more or fewer times."""
    kept = Counter(a["rule"] for a, _ in found.same) + Counter(c.old["rule"] for c in found.changed)
    gone, come = (Counter(m.match["rule"] for m in side) for side in (found.gone, found.come))
    for rule in sorted(gone | come):
        if gone[rule] != come[rule]:
            yield f"  {rule}: {kept[rule] + gone[rule]} -> {kept[rule] + come[rule]} times"


def _at(match: Match) -> str:
    return f"{match['rule']} at {_root(match)}"


def _root(match: Match) -> str:
    return f"{match['root']} in {match['graph']}" if match["graph"] else str(match["root"])


def _cut(sign: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    yield from (f"{sign} {line}" for line in found[:LISTED])
    if len(found) > LISTED:
        yield f"{sign} … and {len(found) - LISTED} more"


def show_replay(found: Replay) -> str:
    """Lines: whether it is the recorded file and the recorded result, then what differs."""
    if found.same_file and found.reproduced:
        return "the recorded file, and the recorded result, byte for byte\n"
    first = "the recorded file, but another result" if found.same_file else "another file than the recorded one"
    why = "the record holds none of this structure; left alone"
    left = _cut("+", (f"{_at(match)}: {why}" for match in found.left))
    return "\n".join([first, show(found.diff).rstrip("\n"), *map(visible, left)]) + "\n"

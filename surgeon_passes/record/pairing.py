"""Which match of one record is which of another, by structure: names may all be others.

Equal structures belong together; of several, those at the same place: where all that leads there is equal, or all that
follows. What is left is paired so that depths are as close as can be, in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeAlias

Match: TypeAlias = "dict[str, Any]"
Key = Callable[[Match], Hashable]
ALIGNED = 1 << 20
"""Pairs of which the best alignment is looked for; beyond that the order alone decides."""


class Pairing:
    """``pairs`` of matches of ``old`` and ``new``, and what is left of both, in order."""

    def __init__(self, old: Sequence[Match], new: Sequence[Match]) -> None:
        self.pairs: list[tuple[Match, Match]] = []
        self.old, self.new = list(old), list(new)

    def take(self, key: Key) -> None:
        """Pair what is left where ``key`` is equal and is not None."""
        self._take(key, lambda old, new: list(zip(old, new, strict=False)))

    def align(self, key: Key) -> None:
        """Pair what is left where ``key`` is equal, in order, depths as close as can be."""
        self._take(key, aligned)

    def _take(self, key: Key, choose: Callable[[list[Match], list[Match]], list[tuple[Match, Match]]]) -> None:
        groups: dict[Hashable, tuple[list[Match], list[Match]]] = defaultdict(lambda: ([], []))
        for side, matches in enumerate((self.old, self.new)):
            for match in matches:
                found = key(match)
                if found is not None:
                    groups[found][side].append(match)
        pairs = [pair for old, new in groups.values() if old and new for pair in choose(old, new)]
        used = {id(match) for pair in pairs for match in pair}
        self.pairs += pairs
        self.old = [match for match in self.old if id(match) not in used]
        self.new = [match for match in self.new if id(match) not in used]


def pair(old: Sequence[Match], new: Sequence[Match], key: Key) -> Pairing:
    """By equal ``key`` (None pairs with nothing): at equal places first."""
    found = Pairing(old, new)
    found.take(lambda m: at(key(m), m, "above", "below"))
    found.take(lambda m: at(key(m), m, "above"))
    found.take(lambda m: at(key(m), m, "below"))
    found.align(key)
    return found


def at(key: Hashable, match: Match, *sides: str) -> Hashable:
    """``key`` at the place of a match, by some of its sides; None where one of them is."""
    place = match["place"]
    return None if key is None or place is None else (key, *(place[side] for side in sides))


def aligned(old: list[Match], new: list[Match]) -> list[tuple[Match, Match]]:
    """As many pairs as the shorter has, in order, the sum of differences of depth as small as can be."""
    if len(old) == len(new) or len(old) * len(new) > ALIGNED:
        return list(zip(old, new, strict=False))
    if len(old) > len(new):
        return [(a, b) for b, a in aligned(new, old)]
    return [(old[i], new[j]) for i, j in enumerate(_places(list(map(_depth, old)), list(map(_depth, new))))]


def _depth(match: Match) -> float:
    return match["place"]["depth"] if match["place"] is not None else 0.0


def _places(few: Sequence[float], many: Sequence[float]) -> list[int]:
    """For each of ``few``, in order, which of ``many`` it is paired with."""
    spare = len(many) - len(few)
    best = [0.0] * (spare + 1)  # best[s]: cost so far with s of many left out
    skipped: list[list[int]] = []
    for i, depth in enumerate(few):
        row, choice, least = [], [], 0
        for s in range(spare + 1):
            least = s if best[s] <= best[least] else least
            row.append(best[least] + abs(depth - many[i + s]))
            choice.append(least)
        best = row
        skipped.append(choice)
    s = min(range(spare + 1), key=lambda k: best[k])
    found: list[int] = []
    for i in reversed(range(len(few))):
        found.append(i + s)
        s = skipped[i][s]
    return found[::-1]


def of_status(matches: Iterable[Match], *status: str) -> list[Match]:
    return [match for match in matches if match["status"] in status]

"""Where a tensor stands among those that are paired: which pairs it is computed from, and what is computed from these."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from surgeon_passes.compare.side import Side

MOST = 256
"""Tensors that are looked at from one place."""


class _Pair(Protocol):
    @property
    def a(self) -> str: ...

    @property
    def b(self) -> str: ...


def sources(side: Side, name: str, paired: Container[str]) -> frozenset[str]:
    """The nearest paired tensors that ``name`` is computed from."""
    return _nearest(name, paired, lambda n: side.read[side.maker[n]] if n in side.maker else ())


def descendants(side: Side, name: str, paired: Container[str]) -> frozenset[str]:
    """The nearest paired tensors that are computed from ``name``."""
    return _nearest(name, paired, lambda n: _made_from(side, n))


def _made_from(side: Side, name: str) -> Iterator[str]:
    for number in side.users.get(name, ()):
        yield from (n for n in side.nodes[number].output if n)


def _nearest(name: str, paired: Container[str], step: Callable[[str], Iterable[str]]) -> frozenset[str]:
    found: set[str] = set()
    seen = {name}
    todo = list(step(name))
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        if one in paired:
            found.add(one)
        else:
            todo += step(one)
    return frozenset(found)


class Neighbours:
    """Candidates for tensors of B that have no partner yet. ``of_a`` and ``of_b`` may grow meanwhile."""

    def __init__(self, a: Side, b: Side, of_a: Mapping[str, _Pair], of_b: Mapping[str, _Pair]) -> None:
        self._a, self._b, self._of_a, self._of_b = a, b, of_a, of_b

    def candidates(self, name: str, wanted: Callable[[str], bool]) -> list[str]:
        """Unpaired tensors of A, those that are ``wanted``, that are computed from what ``name`` is computed from; nearest
        first."""
        above = {self._of_b[n].a for n in sources(self._b, name, self._of_b)}
        found = [x for x in self._forward(above) if wanted(x)]
        behind = self._sources(found)
        return [x for x in found if _fits(behind[x], above)]

    def _forward(self, names: set[str]) -> Iterator[str]:
        seen: set[str] = set()
        todo = sorted(names)
        while todo and len(seen) < MOST:
            following: list[str] = []
            for name in todo:
                for made in _made_from(self._a, name):
                    if made in seen or made in self._of_a:
                        continue
                    seen.add(made)
                    following.append(made)
                    yield made
            todo = following

    def _sources(self, names: Sequence[str]) -> dict[str, frozenset[str]]:
        """:func:`sources` of each, in A; what several share is looked at once."""
        side, numbers = self._a, set[int]()
        todo = [side.maker[n] for n in names]
        while todo:
            number = todo.pop()
            if number not in numbers:
                numbers.add(number)
                todo += [side.maker[n] for n in side.read[number] if n in side.maker and n not in self._of_a]
        found: dict[int, frozenset[str]] = {}
        for number in sorted(numbers):
            read = side.read[number]
            direct = frozenset(n for n in read if n in self._of_a)
            inner = (found[side.maker[n]] for n in read if n in side.maker and n not in self._of_a)
            found[number] = direct.union(*inner)
        return {n: found[side.maker[n]] for n in names}


def _fits(have: frozenset[str], wanted: set[str]) -> bool:
    """One side may have lost a dependency: sizes that were computed from a tensor are constants there."""
    return bool(have) and (have <= wanted or have >= wanted)

"""Which tensor of one model is which of the other: by name, through a decision record, by values, and by structure.

Names are believed until values say otherwise: a model that was exported again numbers its tensors anew. Where there are
no names, equal values are looked for; what has drifted is found from there: it is computed from tensors that are paired
already, by the same kind of operator or for the same kinds of readers, and its values are close. What is computed from it
is then looked at as if it had not drifted: on A's activations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from typing import TypeAlias

import numpy as np

from surgeon_passes.compare.prints import Key, Print, gap, gaps, same_within
from surgeon_passes.compare.side import Side
from surgeon_passes.compare.structure import Neighbours, descendants
from surgeon_passes.errors import UsageError
from surgeon_passes.verify.feeds import InputType

INPUT, OUTPUT, NAME, MAP, VALUE, STRUCTURE = "input", "output", "name", "map", "value", "structure"
_FAR = 0.05
_CLOSE = 0.3
"""Gaps: a name is doubted above the first; what has drifted is looked for among tensors up to the second."""
_ROUNDS = 24
"""Tensors without a name that drift by themselves and are looked behind."""
_SUSPECTS = 64
_FEW, _NEAR = 8, 0.1
_ALIKE = 16
"""Tensors of equal values that are looked at for one of B, the best first."""
_SAME = 1e-3


@dataclass(frozen=True, slots=True)
class Pair:
    """``by``: how it was found: input, output, name, map, value or structure."""

    a: str
    b: str
    by: str


class Pairing:
    """Pairs of tensors, each in one pair at most."""

    def __init__(self) -> None:
        self.of_a: dict[str, Pair] = {}
        self.of_b: dict[str, Pair] = {}

    def add(self, a: str, b: str, by: str) -> None:
        if a not in self.of_a and b not in self.of_b:
            self.of_a[a] = self.of_b[b] = Pair(a, b, by)

    def drop(self, pair: Pair) -> None:
        del self.of_a[pair.a], self.of_b[pair.b]

    def restore(self, pair: Pair) -> None:
        self.of_a[pair.a] = self.of_b[pair.b] = pair

    def __iter__(self) -> Iterator[Pair]:
        return iter(list(self.of_b.values()))

    def __len__(self) -> int:
        return len(self.of_b)


def pair_inputs(a: Side, b: Side) -> dict[str, str]:
    """Inputs of ``b`` by those of ``a``: by name, or where no name is the same, by place and type. Raises UsageError."""
    mine, others = [[i.name for i in side.inputs] for side in (a, b)]
    text = f"{a.source} reads {_list(mine)}, {b.source} reads {_list(others)}"
    if set(mine) == set(others):
        others = mine
    elif set(mine) & set(others) or len(mine) != len(others):
        raise UsageError(f"the models' inputs differ: {text}; they must be the same, or have the same number and order")
    types = [{i.name: i for i in side.inputs} for side in (a, b)]
    for x, y in zip(mine, others, strict=True):
        kinds = [_kind(found[name]) for found, name in zip(types, (x, y), strict=True)]
        if kinds[0][0] != kinds[1][0] or (None not in (kinds[0][1], kinds[1][1]) and kinds[0][1] != kinds[1][1]):
            what = [kind if rank is None else f"{kind} of rank {rank}" for kind, rank in kinds]
            raise UsageError(
                f"the models' inputs differ: {a.source} reads '{x}', a {what[0]}; {b.source} '{y}', a {what[1]}"
            )
    return dict(zip(mine, others, strict=True))


def _kind(found: InputType) -> tuple[str, int | None]:
    return found.kind, None if found.dims is None else len(found.dims)


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"'{n}'" for n in names) or "nothing"


Again: TypeAlias = Callable[[Pairing, Sequence[str]], Mapping[str, Print]]


class Finder:
    """Finds the pairs of two sides whose prints are known.

    ``again`` gives prints of B's tensors where A's activations are fed at all pairs so far.
    """

    def __init__(
        self,
        a: Side,
        b: Side,
        prints_a: Mapping[str, Print],
        prints_b: Mapping[str, Print],
        again: Again = lambda _, __: {},
    ) -> None:
        self._a, self._b, self._prints_a, self._prints_b = a, b, prints_a, dict(prints_b)
        self._observed, self._again = prints_b, again
        self._places = [{name: k / len(side.activations) for k, name in enumerate(side.activations)} for side in (a, b)]
        self._strangers: set[tuple[str, str]] = set()
        self.pairing = Pairing()

    def find(self, inputs: Mapping[str, str], known: Iterable[tuple[str, str]] = ()) -> Pairing:
        """``inputs`` of B by those of A; ``known`` are pairs that somebody else can tell."""
        for x, y in inputs.items():
            self.pairing.add(x, y, INPUT)
        doubted = self._by_name(known)
        self._outputs(close=True)
        self._by_value()
        self._restore(doubted)
        self._outputs()
        self._look_behind()
        self._by_structure()
        if self._drop_strangers():
            self._by_structure()
            self._drop_strangers()
        return self.pairing

    # --- names -------------------------------------------------------------------------------------------------------

    def _by_name(self, known: Iterable[tuple[str, str]]) -> list[Pair]:
        """Pair what is called the same; those whose values are far apart are given back instead."""
        wanted = [Pair(a, b, MAP) for a, b in known if a in self._prints_a and b in self._prints_b]
        wanted += [Pair(n, n, NAME) for n in self._b.activations if n in self._prints_a and n in self._prints_b]
        doubted: list[Pair] = []
        for pair in wanted:
            if self._gap(pair) > _FAR:
                doubted.append(pair)
            else:
                self.pairing.add(pair.a, pair.b, pair.by)
        return doubted

    def _gap(self, pair: Pair) -> float:
        return gap(self._prints_a[pair.a], self._prints_b[pair.b])

    def _is_same(self, pair: Pair) -> bool:
        return self._gap(pair) <= self._within(pair.a, pair.b)

    def _restore(self, doubted: Sequence[Pair]) -> None:
        """Names mislead where most of the doubted tensors have been found elsewhere; else they are believed."""
        elsewhere = sum(pair.b in self.pairing.of_b for pair in doubted)
        if 2 * elsewhere > len(doubted):
            return
        for pair in doubted:
            self.pairing.add(pair.a, pair.b, pair.by)

    def _outputs(self, close: bool = False) -> None:
        """Outputs that no name pairs go by their place, where there are as many; with ``close`` those of equal values."""
        if len(self._a.outputs) == len(self._b.outputs):
            for x, y in zip(self._a.outputs, self._b.outputs, strict=True):
                if not close or self._is_same(Pair(x, y, OUTPUT)):
                    self.pairing.add(x, y, OUTPUT)

    # --- values ------------------------------------------------------------------------------------------------------

    def _by_value(self) -> None:
        """Pair tensors of equal values, if these tell: among several the one of the same operator, then the nearest."""
        held: dict[Key, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for names, prints, paired, k in (
            (self._a.activations, self._prints_a, self.pairing.of_a, 0),
            (self._b.activations, self._prints_b, self.pairing.of_b, 1),
        ):
            for name in names:
                if name in prints and prints[name].tells and name not in paired:
                    held[prints[name].key][k].append(name)
        for mine, others in held.values():
            for _, x, y in sorted(self._alike(mine, others)):
                self.pairing.add(x, y, VALUE)

    def _alike(self, mine: Sequence[str], others: Sequence[str]) -> Iterable[tuple[tuple[float, ...], str, str]]:
        if not mine or not others:
            return
        samples = np.stack([self._sample(n) for n in mine])
        tops = np.array([self._prints_a[n].top for n in mine])
        for y in others:
            found = gaps(samples[:, :_FEW], tops, self._prints_b[y])  # most differ at a glance
            places = np.flatnonzero(found <= _NEAR)
            found = gaps(samples[places], tops[places], self._prints_b[y])
            near = [(float(apart), mine[int(k)]) for apart, k in zip(found, places, strict=True) if apart <= _NEAR]
            same = [(self._rank(x, y, apart), x, y) for apart, x in near if apart <= self._within(x, y)]
            yield from nsmallest(_ALIKE, same)

    def _within(self, x: str, y: str) -> float:
        return same_within(self._prints_a[x], self._prints_b[y])

    def _sample(self, name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        sample = self._prints_a[name].sample
        assert sample is not None
        return sample

    def _rank(self, x: str, y: str, apart: float) -> tuple[float, ...]:
        """The smaller the better: the gap's order of magnitude, another shape, another operator, how far apart they stand."""
        magnitude = float(np.floor(np.log10(max(apart, 1e-5))))
        return (
            magnitude,
            float(self._a.operator(x) != self._b.operator(y)),
            abs(self._places[0][x] - self._places[1][y]),
        )

    def _is_reshaped(self, x: str, y: str) -> bool:
        return self._prints_a[x].shapes != self._prints_b[y].shapes

    # --- structure ---------------------------------------------------------------------------------------------------

    def _unpaired(self) -> list[str]:
        return [n for n in self._b.activations if n not in self.pairing.of_b]

    def _look_behind(self) -> None:
        """Where a tensor has drifted, what is computed from it is looked at on A's values in its place."""
        for _ in range(_ROUNDS):
            pair = self._by_structure(once=True)
            if pair is None:
                break
            if self._is_stranger(pair):
                self._drop(pair)
                continue
            self._prints_b.update(self._again(self.pairing, self._unpaired()))
            self._by_value()

    def _by_structure(self, once: bool = False) -> Pair | None:
        """Pair what stands in the same place; with ``once`` up to the first pair that has drifted, which is given back."""
        neighbours = Neighbours(self._a, self._b, self.pairing.of_a, self.pairing.of_b)
        for y in self._b.activations:
            if y in self.pairing.of_b or y not in self._prints_b:
                continue
            x = self._best(neighbours.candidates(y, partial(self._same_kind, y)), y)
            if x is None:
                continue
            self.pairing.add(x, y, STRUCTURE)
            if once and not self._is_same(self.pairing.of_b[y]):
                return self.pairing.of_b[y]
        return None

    def _same_kind(self, y: str, x: str) -> bool:
        if x not in self._prints_a or (x, y) in self._strangers:
            return False
        return bool(self._prints_b[y].key) and self._prints_a[x].key == self._prints_b[y].key

    def _best(self, candidates: Sequence[str], y: str) -> str | None:
        """The candidate of the closest values; where none is close, or values tell nothing, the one that stands in the same
        place: made by the same operator, read by the same ones. Candidates come nearest first."""
        found = [(gap(self._prints_a[x], self._prints_b[y]), k, x) for k, x in enumerate(candidates)]
        close = [entry for entry in found if entry[0] <= _CLOSE and self._prints_b[y].tells]
        if close:
            least = min(close)[0]
            return min(
                (self._is_reshaped(x, y), self._unlike(x, y), k, x) for apart, k, x in close if apart <= 2 * least
            )[3]
        if not self._prints_b[y].is_float:  # sizes and the like: what differs would be found behind it
            found = [entry for entry in found if entry[0] == 0]
        shaped = [x for _, _, x in found if not self._is_reshaped(x, y)]
        alike = [(self._unlike(x, y), k, x) for k, x in enumerate(shaped) if self._unlike(x, y) < 2]
        return min(alike)[2] if alike else None

    def _unlike(self, x: str, y: str) -> int:
        """0: the same operator makes both, and the same ones read them; 1: the latter; 2: the former; 3: neither."""
        readers = [
            sorted(_operator(side, k) for k in side.users.get(n, ())) for side, n in ((self._a, x), (self._b, y))
        ]
        same = self._a.operator(x) == self._b.operator(y)
        return (0 if same else 1) if readers[0] == readers[1] else (2 if same else 3)

    # --- strangers ---------------------------------------------------------------------------------------------------

    def _drop_strangers(self) -> bool:
        """Take pairs of what is not the same tensor apart; whether there were any. Names that the same operator makes stay
        together: there a layer may make up for another one."""
        suspects = [pair for pair in self.pairing if self._is_doubtful(pair)][:_SUSPECTS]
        strangers = [pair for pair in suspects if self._is_stranger(pair)]
        for pair in strangers:
            self._drop(pair)
        return bool(strangers)

    def _drop(self, pair: Pair) -> None:
        self.pairing.drop(pair)
        self._strangers.add((pair.a, pair.b))

    def _is_doubtful(self, pair: Pair) -> bool:
        apart = gap(self._prints_a[pair.a], self._observed[pair.b])
        if pair.by in (INPUT, OUTPUT, VALUE) or apart <= same_within(self._prints_a[pair.a], self._observed[pair.b]):
            return False
        same = self._a.operator(pair.a) == self._b.operator(pair.b)
        return pair.by == STRUCTURE or not same or not np.isfinite(apart)

    def _is_stranger(self, pair: Pair) -> bool:
        """Whether A's values in the place of B's make what is computed from them worse: they mean something else there."""
        below = sorted(descendants(self._b, pair.b, self.pairing.of_b))
        if not below:
            return False
        fed = self._apart(below)
        self.pairing.drop(pair)
        alone = self._apart(below)
        self.pairing.restore(pair)
        return fed > max(2 * alone, _SAME)

    def _apart(self, names: Sequence[str]) -> float:
        """The largest gap of these tensors of B, by the layers that make them from the pairs; Inf where one does not run."""
        found = self._again(self.pairing, names)
        pairs = [self.pairing.of_b[n] for n in names]
        return max(gap(self._prints_a[p.a], found[p.b]) if p.b in found else float("inf") for p in pairs)


def _operator(side: Side, number: int) -> str:
    node = side.nodes[number]
    return f"{node.domain}.{node.op_type}"

"""How a vector of sizes can be computed with few nodes from the shapes of tensors that are there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from surgeon_passes.values import dims
from surgeon_passes.values.dims import Dim, Shape
from surgeon_passes.values.expressions import (
    MAX_LENGTH,
    Apply,
    Const,
    Expression,
    Join,
    Pick,
    Scalar,
    ShapeOf,
    Vector,
    nodes_of,
)
from surgeon_passes.values.relations import halves, relations, simpler
from surgeon_passes.values.symbols import Poly

_MAX_DEPTH = 4
_MAX_RECENT = 32


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor whose shape may be asked for: ``number`` names it, a lower ``preference`` is better.

    ``is_anchor``: sizes may be computed from its dims, not only read.
    """

    number: int
    shape: Shape
    preference: int = 0
    is_anchor: bool = False


class Planner:
    """Finds expressions over the sources that were added; what is in ``have`` costs nothing.

    Greedy: not always the fewest nodes that there could be. ``opset`` decides what is at hand: Shape with start and end
    from 15 on, Min, Max of integers from 12, Mod from 10.
    """

    def __init__(self, opset: int) -> None:
        self.slices = opset >= 15
        self.operators = {"Add", "Sub", "Mul", "Div"} | ({"Mod"} if opset >= 10 else set())
        self.operators |= {"Min", "Max"} if opset >= 12 else set()
        self.have: set[Expression] = set()
        self._sources: dict[Shape, Source] = {}
        self._places: dict[Dim, list[tuple[Shape, int]]] = {}
        self._anchors: dict[Shape, dict[frozenset[str], list[int]]] = {}
        """for each the places of its dims, by the names that these depend on"""
        self._recent: deque[Shape] = deque()
        self._known: dict[tuple[Vector, bool], Expression | None] = {}
        self._made: dict[tuple[Poly, bool], Expression] = {}

    def take(self, vector: Vector, scalar: bool, expression: Expression) -> None:
        """From now on ``expression`` is made, and says ``vector``."""
        self.have |= nodes_of(expression)
        if len(vector) == 1 and isinstance(vector[0], Poly):
            self._made[vector[0], scalar] = expression

    def add(self, source: Source) -> None:
        """One more source; of those with one shape the first is taken, unless another is preferred and none is used."""
        held = self._sources.get(source.shape)
        if held is None:
            for axis, dim in enumerate(source.shape):
                if isinstance(dim, Poly):
                    self._places.setdefault(dim, []).append((source.shape, axis))
        if held is None or (source.preference < held.preference and _whole(held) not in self.have):
            self._sources[source.shape] = source
        if source.is_anchor:
            self._anchor(source)

    def _anchor(self, source: Source) -> None:
        """Compute from this shape, too; of those that are no inputs only the newest, so that the search stays short."""
        if source.shape not in self._anchors:
            self._anchors[source.shape] = _places_by_names(source.shape)
        if source.preference:
            self._recent.append(source.shape)
            if len(self._recent) > _MAX_RECENT:
                self._anchors.pop(self._recent.popleft(), None)

    def cost(self, expression: Expression) -> int:
        """Nodes that have to be made."""
        return len(nodes_of(expression) - self.have)

    def plan(self, vector: Vector, scalar: bool = False) -> Expression | None:
        """The cheapest expression found for a vector, or for a scalar (then of one element); None where there is none."""
        if len(vector) > MAX_LENGTH:
            return None
        self._known.clear()
        return self._plan(vector, scalar, _MAX_DEPTH)

    # --- the search --------------------------------------------------------------------------------------------------

    def _plan(self, vector: Vector, scalar: bool, depth: int) -> Expression | None:
        key = (vector, scalar)
        if key not in self._known or depth == _MAX_DEPTH:
            self._known[key] = self._cheapest(self._candidates(vector, scalar, depth))
        return self._known[key]

    def _cheapest(self, candidates: Iterable[Expression]) -> Expression | None:
        return min(candidates, key=self.cost, default=None)

    def _candidates(self, vector: Vector, scalar: bool, depth: int) -> Iterator[Expression]:
        if all(isinstance(d, int) for d in vector):
            yield Const(tuple(int(d) for d in vector if isinstance(d, int)), scalar)
            return
        yield from self._read(vector, scalar)
        if depth:
            yield from self._computed(vector, scalar, depth - 1)
        if scalar:
            whole = self._plan(vector, False, depth)
            if whole is not None:
                yield Scalar(whole)
        elif len(vector) > 1:
            joined = self._joined(vector, depth)
            if joined is not None:
                yield joined

    def _read(self, vector: Vector, scalar: bool) -> Iterator[Expression]:
        """Straight from one source: a run of its dims, or some of them in any order."""
        place, first = next((k, d) for k, d in enumerate(vector) if not isinstance(d, int))
        for shape, axis in self._places.get(first, ()):
            source = self._sources[shape]
            whole = _whole(source)
            if scalar:
                yield Pick(whole, (axis,), True)
                continue
            start, end = axis - place, axis - place + len(vector)
            if start >= 0 and shape[start:end] == vector:
                if end - start == len(shape):
                    yield whole
                elif self.slices:
                    yield ShapeOf(source.number, start, end, False)
            picked = _picked(vector, shape)
            if picked is not None:
                yield Pick(whole, picked)

    def _computed(self, vector: Vector, scalar: bool, depth: int) -> Iterator[Expression]:
        """By one elementwise operator from a simpler vector."""
        if not scalar:
            yield from self._of_sources(vector)
        for op, inner, constants in simpler(vector):
            if op not in self.operators:
                continue
            first = self._plan(inner, scalar, depth)
            if first is not None:
                yield Apply(op, first, Const(constants, scalar))
        if len(vector) == 1 and isinstance(vector[0], Poly):
            yield from self._from_made(vector[0], scalar)
            for op, left, right in halves(vector[0]):
                if op not in self.operators:
                    continue
                a, b = self._plan((left,), scalar, depth), self._plan((right,), scalar, depth)
                if a is not None and b is not None:
                    yield Apply(op, a, b)

    def _from_made(self, value: Poly, scalar: bool) -> Iterator[Expression]:
        """A dim of an anchor less, or more, than an element that is made already."""
        for (made, is_scalar), expression in self._made.items():
            if is_scalar != scalar:
                continue
            for op, dim in (("Sub", dims.add(value, made)), ("Add", dims.sub(value, made))):
                place = next((s for s, _ in self._places.get(dim, ()) if s in self._anchors), None)
                first = None if place is None or not isinstance(dim, Poly) else self._plan((dim,), scalar, 0)
                if first is not None:
                    yield Apply(op, first, expression)

    def _of_sources(self, vector: Vector) -> Iterator[Expression]:
        """One operator with constants on a run of one source's dims."""
        first, names = next((k, d.symbols()) for k, d in enumerate(vector) if isinstance(d, Poly))
        for shape, places in self._anchors.items():
            if names not in places:
                continue  # sizes are made only of those that depend on the same names
            source = self._sources[shape]
            for start in (place - first for place in places[names]):
                end = start + len(vector)
                whole = end - start == len(shape)
                if start < 0 or end > len(shape) or (not whole and not self.slices):
                    continue
                for op, constants in relations(vector, shape[start:end]):
                    yield Apply(op, ShapeOf(source.number, start, end, whole), Const(constants))

    def _joined(self, vector: Vector, depth: int) -> Expression | None:
        """The cheapest way to cut the vector into runs."""
        best: list[tuple[int, tuple[Expression, ...]] | None] = [(0, ())] + [None] * len(vector)
        for end in range(1, len(vector) + 1):
            for start in range(end):
                before = best[start]
                if before is None or end - start == len(vector):
                    continue
                part = self._segment(vector[start:end], depth)
                if part is None:
                    continue
                total = before[0] + self.cost(part)
                held = best[end]
                if held is None or (total, len(before[1]) + 1) < (held[0], len(held[1])):
                    best[end] = (total, (*before[1], part))
        found = best[-1]
        return None if found is None else Join(found[1])

    def _segment(self, vector: Vector, depth: int) -> Expression | None:
        if all(isinstance(d, int) for d in vector):
            return Const(tuple(int(d) for d in vector if isinstance(d, int)))
        candidates = list(self._read(vector, False))
        if depth:
            candidates += self._computed(vector, False, depth - 1)
        return self._cheapest(candidates)


def _places_by_names(shape: Shape) -> dict[frozenset[str], list[int]]:
    found: dict[frozenset[str], list[int]] = {}
    for place, dim in enumerate(shape):
        if isinstance(dim, Poly):
            found.setdefault(dim.symbols(), []).append(place)
    return found


def _whole(source: Source) -> ShapeOf:
    return ShapeOf(source.number, 0, len(source.shape), True)


def _picked(vector: Vector, shape: Shape) -> tuple[int, ...] | None:
    """Where the elements stand in ``shape``; None where one does not."""
    try:
        return tuple(shape.index(d) for d in vector)
    except ValueError:
        return None

"""How a vector of sizes can be computed with few nodes from the shapes of tensors that are there.

An expression is a nested tuple, so that equal ones are one: :class:`Const`, :class:`ShapeOf`, :class:`Pick`,
:class:`Join` and :class:`Apply`. Its cost is the number of its distinct parts that are nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd

from surgeon_passes.values import dims, symbols
from surgeon_passes.values.dims import Dim, Shape
from surgeon_passes.values.symbols import Call, Poly

Vector = tuple["int | Poly", ...]
MAX_LENGTH = 12
_MAX_DEPTH = 4
_MOST_DIVISORS = 64


@dataclass(frozen=True, slots=True)
class Const:
    """int64 numbers; ``scalar``: of rank 0."""

    values: tuple[int, ...]
    scalar: bool = False


@dataclass(frozen=True, slots=True)
class ShapeOf:
    """Dims ``start`` to ``end`` of source number ``source``; ``whole`` where those are all."""

    source: int
    start: int
    end: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Pick:
    """Elements of a vector, in any order; a scalar where ``scalar`` (then there is one)."""

    vector: Expression
    places: tuple[int, ...]
    scalar: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    """Vectors, one after the other."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Apply:
    """An elementwise operator of ONNX: Add, Sub, Mul, Div, Mod, Min or Max."""

    op: str
    first: Expression
    second: Expression


@dataclass(frozen=True, slots=True)
class Scalar:
    """The one element of a vector, as a scalar."""

    vector: Expression


Expression = Const | ShapeOf | Pick | Join | Apply | Scalar


def operands(expression: Expression) -> tuple[Expression, ...]:
    """The expressions that one is made of."""
    match expression:
        case Pick(vector=inner) | Scalar(vector=inner):
            return (inner,)
        case Join(parts=parts):
            return parts
        case Apply(first=first, second=second):
            return (first, second)
    return ()


def nodes_of(expression: Expression) -> set[Expression]:
    """The distinct parts that are nodes: all but constants."""
    found: set[Expression] = set()
    todo = [expression]
    while todo:
        part = todo.pop()
        if part not in found and not isinstance(part, Const):
            found.add(part)
            todo.extend(operands(part))
    return found


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
        self._anchors: dict[Shape, None] = {}
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
            self._anchors[source.shape] = None

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
        for op, inner, constants in _simpler(vector):
            if op not in self.operators:
                continue
            first = self._plan(inner, scalar, depth)
            if first is not None:
                yield Apply(op, first, Const(constants, scalar))
        if len(vector) == 1 and isinstance(vector[0], Poly):
            yield from self._from_made(vector[0], scalar)
            for op, left, right in _halves(vector[0]):
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
        for shape in self._anchors:
            source = self._sources[shape]
            for start in range(len(shape) - len(vector) + 1):
                end = start + len(vector)
                whole = end - start == len(shape)
                if not whole and not self.slices:
                    continue
                for op, constants in _relations(vector, shape[start:end]):
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


def _whole(source: Source) -> ShapeOf:
    return ShapeOf(source.number, 0, len(source.shape), True)


def _picked(vector: Vector, shape: Shape) -> tuple[int, ...] | None:
    """Where the elements stand in ``shape``; None where one does not."""
    try:
        return tuple(shape.index(d) for d in vector)
    except ValueError:
        return None


# --- how vectors relate --------------------------------------------------------------------------------------------------


def _relations(vector: Vector, shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Operators and constants that make ``vector`` from ``shape``, element by element."""
    for op, relate in (("Mul", _factor), ("Add", _offset), ("Div", _divisor)):
        constants: list[int] = []
        for value, dim in zip(vector, shape, strict=True):
            constant = relate(value, dim)
            if constant is None:
                break
            constants.append(constant)
        else:
            yield op, tuple(constants)


def _factor(value: int | Poly, dim: Dim) -> int | None:
    if dim is None or dim == 0:
        return None
    found = symbols.as_poly(value).exact_div(symbols.as_poly(dim))
    return found.offset if found is not None and found.is_constant else None


def _offset(value: int | Poly, dim: Dim) -> int | None:
    difference = dims.sub(value, dim)
    return difference if isinstance(difference, int) else None


def _divisor(value: int | Poly, dim: Dim) -> int | None:
    """k > 0 with dim // k == value for every size; the dim is not negative, so that rounding down is truncation."""
    if dim is None or not dims.at_least(dim, 0):
        return None
    if dims.same(value, dim):
        return 1
    if isinstance(dim, int):
        if not isinstance(value, int) or value < 1:
            return None
        return dim // value if dim // value and dim // (dim // value) == value else None
    return next((k for k in _divisors(value) if dims.same(dims.floor_div(dim, k), value)), None)


def _divisors(value: int | Poly) -> Iterator[int]:
    """Constants that a floordiv inside ``value`` divides by."""
    for atom in value.atoms() if isinstance(value, Poly) else ():
        if isinstance(atom, Call) and atom.fn == "floordiv" and atom.args[1].is_constant and atom.args[1].offset > 1:
            whole = atom.args[1].offset
            yield from (k for k in (whole, *range(2, min(whole, _MOST_DIVISORS))) if whole % k == 0)


def _simpler(vector: Vector) -> Iterator[tuple[str, Vector, tuple[int, ...]]]:
    """(operator, simpler vector, constants) whose result is ``vector``."""
    parts = [_undivided(v) for v in vector]
    if any(k != 1 for _, k in parts) and all(isinstance(u, int) or dims.at_least(u, 0) for u, _ in parts):
        yield "Div", tuple(u for u, _ in parts), tuple(k for _, k in parts)
    contents = [_content(v) for v in vector]
    if any(k != 1 for k in contents):
        yield "Mul", tuple(_over(v, k) for v, k in zip(vector, contents, strict=True)), tuple(contents)
    offsets = [v.offset if isinstance(v, Poly) else 0 for v in vector]
    if any(offsets):
        yield (
            "Add",
            tuple(v - k if isinstance(v, Poly) else v for v, k in zip(vector, offsets, strict=True)),
            tuple(offsets),
        )


def _undivided(value: int | Poly) -> tuple[int | Poly, int]:
    """(x, k) where ``value`` is floordiv(x, k), else (value, 1)."""
    atom = value.single_atom() if isinstance(value, Poly) else None
    if isinstance(atom, Call) and atom.fn == "floordiv" and atom.args[1].is_constant:
        return atom.args[0], atom.args[1].offset
    return value, 1


def _content(value: int | Poly) -> int:
    """The largest number that divides every coefficient; 1 for a number."""
    return reduce(gcd, (abs(c) for _, c in value.terms)) if isinstance(value, Poly) else 1


def _over(value: int | Poly, k: int) -> int | Poly:
    if k == 1 or isinstance(value, int):
        return value
    found = value.exact_div(k)
    assert found is not None
    return found


_OPERATORS = {"floordiv": "Div", "mod": "Mod", "min": "Min", "max": "Max"}


def _halves(value: Poly) -> Iterator[tuple[str, int | Poly, int | Poly]]:
    """(operator, left, right) whose result is ``value``."""
    if len(value.terms) > 1:
        head = Poly({value.terms[0][0]: value.terms[0][1]})
        rest = value - head
        if value.terms[0][1] < 0:
            yield "Sub", _plain(rest), _plain(-head)
        else:
            yield "Add", _plain(head), _plain(rest)
        if any(c < 0 for _, c in rest.terms):
            positive = Poly({m: c for m, c in value.terms if c > 0})
            yield "Sub", _plain(positive), _plain(positive - value)
        return
    monomial, _ = value.terms[0]
    atom = value.single_atom()
    if isinstance(atom, Call):
        yield from _of_call(atom)
    elif sum(power for _, power in monomial) > 1:
        first = Poly({((monomial[0][0], 1),): 1})
        rest_of = value.exact_div(first)
        if rest_of is not None:
            yield "Mul", first, _plain(rest_of)


def _of_call(atom: Call) -> Iterator[tuple[str, int | Poly, int | Poly]]:
    if len(atom.args) != 2:
        return
    left, right = (_plain(a) for a in atom.args)
    rounds_down = dims.at_least(left, 0) and dims.at_least(right, 1)
    if atom.fn != "floordiv" or rounds_down:
        yield _OPERATORS[atom.fn], left, right


def _plain(value: Poly) -> int | Poly:
    return value.offset if value.is_constant else value


def complete(elements: Sequence[Dim]) -> Vector | None:
    """The elements, where each is known or symbolic."""
    found = tuple(d for d in elements if d is not None)
    return found if len(found) == len(elements) else None


__all__ = ["Apply", "Const", "Expression", "Join", "Pick", "Planner", "Scalar", "ShapeOf", "Source", "complete",
           "nodes_of", "operands"]  # fmt: skip

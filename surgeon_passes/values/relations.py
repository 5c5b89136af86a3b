"""How vectors of sizes relate: which operator, with which constants, makes one of another."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, reduce
from math import gcd

from surgeon_passes.values import dims, symbols
from surgeon_passes.values.dims import Dim, Shape
from surgeon_passes.values.expressions import Vector
from surgeon_passes.values.symbols import Call, Poly, TooComplex

_MOST_DIVISORS = 64


def relations(vector: Vector, shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
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


@lru_cache(maxsize=1 << 15)
def _related(value: int | Poly, dim: Dim) -> bool:
    """Whether one may be made of the other: two numbers, or two sizes that depend on the same dims."""
    if isinstance(value, Poly) and isinstance(dim, Poly):
        return value.symbols() == dim.symbols()
    return isinstance(value, int) and isinstance(dim, int)


@lru_cache(maxsize=1 << 15)
def _factor(value: int | Poly, dim: Dim) -> int | None:
    if dim is None or dim == 0 or not _related(value, dim):
        return None
    try:
        found = symbols.as_poly(value).exact_div(symbols.as_poly(dim))
    except TooComplex:
        return None
    return found.offset if found is not None and found.is_constant else None


@lru_cache(maxsize=1 << 15)
def _offset(value: int | Poly, dim: Dim) -> int | None:
    difference = dims.sub(value, dim) if _related(value, dim) else None
    return difference if isinstance(difference, int) else None


@lru_cache(maxsize=1 << 15)
def _divisor(value: int | Poly, dim: Dim) -> int | None:
    """k > 0 with dim // k == value for every size; the dim is not negative, so that rounding down is truncation."""
    if dim is None or not _related(value, dim) or not dims.at_least(dim, 0):
        return None
    if value == dim:
        return 1
    if isinstance(dim, int):
        if not isinstance(value, int) or value < 1:
            return None
        return dim // value if dim // value and dim // (dim // value) == value else None
    return next((k for k in _divisors(value) if dims.floor_div(dim, k) == value), None)


def _divisors(value: int | Poly) -> Iterator[int]:
    """Constants that a floordiv inside ``value`` divides by."""
    for atom in value.atoms() if isinstance(value, Poly) else ():
        if isinstance(atom, Call) and atom.fn == "floordiv" and atom.args[1].is_constant and atom.args[1].offset > 1:
            whole = atom.args[1].offset
            yield from (k for k in (whole, *range(2, min(whole, _MOST_DIVISORS))) if whole % k == 0)


@lru_cache(maxsize=1 << 12)
def simpler(vector: Vector) -> tuple[tuple[str, Vector, tuple[int, ...]], ...]:
    """(operator, simpler vector, constants) whose result is ``vector``."""
    return tuple(_simpler(vector))


def _simpler(vector: Vector) -> Iterator[tuple[str, Vector, tuple[int, ...]]]:
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


@lru_cache(maxsize=1 << 12)
def halves(value: Poly) -> tuple[tuple[str, int | Poly, int | Poly], ...]:
    """(operator, left, right) whose result is ``value``."""
    return tuple(_halves(value))


def _halves(value: Poly) -> Iterator[tuple[str, int | Poly, int | Poly]]:
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

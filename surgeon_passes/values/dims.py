"""Arithmetic on dims: ``int``, ``Poly``, or ``None`` for what is not known. Nothing here goes through floats.

A result outside int64, or one too complex to reason about, is not known. Named dims are assumed to be at least 1 and not
to overflow the integer type that carries them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import lru_cache, reduce
from typing import cast

from surgeon_passes.region import TensorType
from surgeon_passes.values import division, order
from surgeon_passes.values.symbols import INT64_MAX, INT64_MIN, Poly, TooComplex, as_poly

_FEW = 64
Dim = int | Poly | None
Shape = tuple[Dim, ...]


def collapse(value: Poly | int) -> Dim:
    """A constant polynomial as an int; None outside int64."""
    if isinstance(value, Poly):
        if not value.is_constant:
            return value
        value = value.offset
    return value if INT64_MIN <= value <= INT64_MAX else None


def symbol(name: str) -> Poly:
    return Poly.symbol(name)


def _binary(a: Dim, b: Dim, on_ints: Callable[[int, int], int], on_polys: Callable[[Poly, Poly], Poly]) -> Dim:
    if a is None or b is None:
        return None
    try:
        if isinstance(a, int) and isinstance(b, int):
            return collapse(on_ints(a, b))
        return _on_polys(on_polys, as_poly(a), as_poly(b))
    except (TooComplex, ZeroDivisionError):
        return None


@lru_cache(maxsize=1 << 15)
def _on_polys(operation: Callable[[Poly, Poly], Poly], a: Poly, b: Poly) -> Dim:
    return collapse(operation(a, b))


def add(a: Dim, b: Dim) -> Dim:
    return _binary(a, b, operator.add, operator.add)


def sub(a: Dim, b: Dim) -> Dim:
    return _binary(a, b, operator.sub, operator.sub)


def mul(a: Dim, b: Dim) -> Dim:
    if a == 0 or b == 0:
        return 0
    return _binary(a, b, operator.mul, operator.mul)


def neg(a: Dim) -> Dim:
    return sub(0, a)


def floor_div(a: Dim, b: Dim) -> Dim:
    """Rounds toward minus infinity."""
    return _binary(a, b, operator.floordiv, division.floor_div)


def ceil_div(a: Dim, b: Dim) -> Dim:
    """Rounds up; ``b`` is positive."""
    return floor_div(add(a, sub(b, 1)), b)


def floor_mod(a: Dim, b: Dim) -> Dim:
    """The sign of ``b``: ONNX Mod with fmod = 0."""
    return _binary(a, b, operator.mod, division.modulo)


def _trunc_ints(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def trunc_div(a: Dim, b: Dim) -> Dim:
    """ONNX's integer Div: toward zero. Symbolic only where both signs are known, or it is exact and no division by 0."""
    if a is None or b is None or b == 0:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return collapse(_trunc_ints(a, b))
    try:
        exact = as_poly(a).exact_div(as_poly(b))
    except TooComplex:
        return None
    if exact is not None and (at_least(b, 1) or at_least(neg(b), 1)):
        return collapse(exact)
    return floor_div(a, b) if at_least(a, 0) and at_least(b, 1) else None


def stays_small(a: Dim) -> bool:
    """Whether 32 bits hold ``a`` as they hold dims: few dims are added or subtracted, none multiplied with another."""
    if not isinstance(a, Poly):
        return a is not None and -(2**31) <= a < 2**31
    degree = max(sum(power for _, power in monomial) for monomial, _ in a.terms)
    return degree <= 1 and sum(abs(c) for m, c in a.terms if m) <= _FEW and abs(a.offset) < 2**20


def trunc_mod(a: Dim, b: Dim) -> Dim:
    """The sign of ``a``: ONNX Mod with fmod = 1."""
    return sub(a, mul(b, trunc_div(a, b)))


def minimum(a: Dim, b: Dim) -> Dim:
    return _binary(a, b, min, order.minimum)


def maximum(a: Dim, b: Dim) -> Dim:
    return _binary(a, b, max, order.maximum)


def absolute(a: Dim) -> Dim:
    if isinstance(a, int):
        return collapse(abs(a))
    if at_least(a, 0):
        return a
    return neg(a) if at_least(neg(a), 0) else None


def product(dims: Iterable[Dim]) -> Dim:
    start: Dim = 1
    return reduce(mul, dims, start)


def total(dims: Iterable[Dim]) -> Dim:
    start: Dim = 0
    return reduce(add, dims, start)


def equal(a: Dim, b: Dim) -> bool | None:
    """True / False where it holds for every size / for none; None where it depends or is not known."""
    if a is None or b is None:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if a is b:
        return True
    try:
        return division.is_equal(as_poly(a), as_poly(b))
    except TooComplex:
        return None


def never_equal(a: Dim | str, b: Dim | str) -> bool:
    """Whether two dims differ for every size; a text is the dim of that name."""
    first, second = (symbol(d) if isinstance(d, str) else d for d in (a, b))
    return equal(first, second) is False


def less_equal(a: Dim, b: Dim) -> bool | None:
    """a <= b, for every size / for none / depends."""
    if a is None or b is None:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return a <= b
    try:
        return order.is_nonnegative(as_poly(b) - as_poly(a))
    except TooComplex:
        return None


def less(a: Dim, b: Dim) -> bool | None:
    """a < b, for every size / for none / depends."""
    return less_equal(add(a, 1), b)


def at_least(a: Dim, bound: int) -> bool:
    """Whether ``a >= bound`` is certain."""
    return less_equal(bound, a) is True


def same(a: Dim, b: Dim) -> bool:
    """Whether ``a == b`` is certain."""
    return equal(a, b) is True


def same_shape(a: Shape | None, b: Shape | None) -> bool:
    """Whether two shapes are certainly equal."""
    return a is not None and b is not None and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def type_shape(entry: TensorType) -> Shape | None:
    """The shape of a type, with its dims as this package makes them."""
    return cast("Shape | None", entry.shape)


def divides(a: Dim, b: Dim) -> bool:
    """Whether ``b`` is certainly a multiple of ``a``, as polynomials: 0 where ``a`` is."""
    if a is None or b is None:
        return False
    try:
        return as_poly(b).exact_div(as_poly(a)) is not None
    except TooComplex:
        return False


def static(shape: Shape | None) -> tuple[int, ...] | None:
    """The shape as ints; None where a dim is symbolic or not known."""
    if shape is None:
        return None
    ints = tuple(d for d in shape if isinstance(d, int))
    return ints if len(ints) == len(shape) else None


def show(shape: Shape | None) -> str:
    """A shape for messages: ``[N, 3, ?]``."""
    return "?" if shape is None else "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"

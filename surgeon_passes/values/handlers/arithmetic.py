"""Arithmetic, element by element. Integers stay integers of their own width; floats are computed in their own dtype."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from surgeon_passes.values import dims
from surgeon_passes.values.dims import Dim
from surgeon_passes.values.handlers.elementwise import apply, known_operands, numeric, zip_elements
from surgeon_passes.values.lattice import Array, Value, elements_of, is_integer, pack
from surgeon_passes.values.operands import Operands, Unknown
from surgeon_passes.values.registry import handler

_EXACT_DOUBLE = 2**53


def _checked(array: Array) -> Array:
    if not numeric(array.dtype):
        raise Unknown
    return array


@handler("Add", irregular=True)
def add(n: Operands) -> Value:
    return apply(n, lambda a, b: _checked(a) + b, dims.add)


@handler("Sub", irregular=True)
def sub(n: Operands) -> Value:
    return apply(n, lambda a, b: _checked(a) - b, dims.sub)


@handler("Mul", irregular=True)
def mul(n: Operands) -> Value:
    return apply(n, lambda a, b: _checked(a) * b, dims.mul)


@handler("Div", irregular=True)
def div(n: Operands) -> Value:
    """Integers truncate toward zero. ``x / x`` on an unknown is unknown: it may be 0."""
    return apply(n, _divide, dims.trunc_div)


def _divide(a: Array, b: Array) -> Array:
    if not is_integer(a.dtype):
        return np.asarray(_checked(a) / b)
    if (b == 0).any():
        raise Unknown
    return _truncated(a, b)


def _truncated(a: Array, b: Array) -> Array:
    quotient = a // b
    if a.dtype.kind == "u":
        return np.asarray(quotient)
    inexact = (quotient * b != a) & ((a < 0) != (b < 0))
    return np.asarray(quotient + inexact.astype(a.dtype))


@handler("Mod")
def mod(n: Operands) -> Value:
    """fmod = 0: integers, the sign of the divisor; fmod = 1: the sign of the dividend."""
    if n.attr("fmod"):
        return apply(n, lambda a, b: np.fmod(_checked(a), _divisor(b)), dims.trunc_mod)
    return apply(n, _floor_mod, dims.floor_mod)


def _divisor(b: Array) -> Array:
    if is_integer(b.dtype) and (b == 0).any():
        raise Unknown
    return b


def _floor_mod(a: Array, b: Array) -> Array:
    if not is_integer(a.dtype):
        raise Unknown
    return np.asarray(np.mod(a, _divisor(b)))


@handler("Neg")
def neg(n: Operands) -> Value:
    return apply(n, lambda a: -_checked(a), dims.neg)


@handler("Abs")
def absolute(n: Operands) -> Value:
    return apply(n, lambda a: np.abs(_checked(a)), dims.absolute)


@handler("Sign")
def sign(n: Operands) -> Value:
    return apply(n, lambda a: np.sign(_checked(a)), _sign)


def _sign(a: Dim) -> Dim:
    if dims.at_least(a, 1):
        return 1
    if dims.at_least(dims.neg(a), 1):
        return -1
    return 0 if a == 0 else None


@handler("Max")
def maximum(n: Operands) -> Value:
    return apply(n, lambda *a: reduce(np.maximum, map(_checked, a)), lambda *e: reduce(dims.maximum, e))


@handler("Min")
def minimum(n: Operands) -> Value:
    return apply(n, lambda *a: reduce(np.minimum, map(_checked, a)), lambda *e: reduce(dims.minimum, e))


@handler("Sum")
def variadic_sum(n: Operands) -> Value:
    """ONNX Runtime adds from left to right, and so does this."""
    return apply(n, lambda *a: reduce(np.add, map(_checked, a)), lambda *e: reduce(dims.add, e))


@handler("Clip")
def clip(n: Operands) -> Value:
    """The upper bound wins where the bounds cross; one that is left out is the dtype's own: infinity does not pass."""
    present = [p for p in range(len(n)) if n.has(p)]
    values = [n.value(p) for p in present]
    if all(isinstance(v, np.ndarray) for v in values):
        data = _checked(n.array(0))
        limits = _limits(data.dtype)
        low = n.array(1) if n.has(1) else np.asarray(limits.min, data.dtype)
        high = n.array(2) if n.has(2) else np.asarray(limits.max, data.dtype)
        return np.asarray(np.minimum(np.maximum(data, low), high))
    found = n.elements(0)
    if n.has(1):
        found = zip_elements(dims.maximum, found, n.elements(1))
    if n.has(2):
        found = zip_elements(dims.minimum, found, n.elements(2))
    return pack(found, n.data_dtype(0))


def _limits(dtype: np.dtype[Any]) -> Any:
    if is_integer(dtype):
        return np.iinfo(dtype)
    if dtype.kind != "f":
        raise Unknown  # bfloat16: numpy does not know its limits
    return np.finfo(dtype)


@handler("Pow", irregular=True)
def power(n: Operands) -> Value:
    """Integer powers that a double holds exactly (ONNX Runtime goes through one), and float squares."""
    arrays = known_operands(n, range(2))
    if arrays is None:
        return pack(zip_elements(_power, n.elements(0), n.elements(1)), n.data_dtype(0))
    base, exponent = arrays
    if is_integer(base.dtype) and is_integer(exponent.dtype):
        return pack(zip_elements(_power, elements_of(base), elements_of(exponent)), base.dtype)
    if exponent.size == 1 and float(exponent.reshape(())) in (1.0, 2.0):
        return np.asarray(np.broadcast_to(base if float(exponent.reshape(())) == 1.0 else _checked(base) * base,
                                          np.broadcast_shapes(base.shape, exponent.shape)))  # fmt: skip
    raise Unknown


def _power(base: Dim, exponent: Dim) -> Dim:
    if not isinstance(exponent, int) or not 0 <= exponent <= 64:
        return None
    found = dims.product([base] * exponent)
    return None if isinstance(found, int) and abs(found) > _EXACT_DOUBLE else found


@handler("Floor", "Ceil", "Round", "Sqrt")
def rounding(n: Operands) -> Value:
    """Correctly rounded functions of known floats; Round is half to even."""
    functions: dict[str, Any] = {"Floor": np.floor, "Ceil": np.ceil, "Round": np.rint, "Sqrt": np.sqrt}
    array = n.array(0)
    n.fits(array.size)
    if is_integer(array.dtype) or not numeric(array.dtype):
        raise Unknown
    return np.asarray(functions[n.op](array).astype(array.dtype))


_BITWISE: dict[str, Any] = {
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "BitwiseNot": np.invert,
}


@handler(*_BITWISE)
def bitwise(n: Operands) -> Value:
    arrays = known_operands(n, range(len(n)))
    if arrays is None:
        raise Unknown
    return np.asarray(_BITWISE[n.op](*arrays))


@handler("BitShift")
def bit_shift(n: Operands) -> Value:
    """Unsigned; a shift by the width or more is undefined."""
    arrays = known_operands(n, range(2))
    if arrays is None or arrays[0].dtype.kind != "u" or (arrays[1] >= 8 * arrays[0].dtype.itemsize).any():
        raise Unknown
    shift = np.left_shift if n.attr("direction") == "LEFT" else np.right_shift
    return np.asarray(shift(*arrays))

"""Reductions. Integers in their own width; float sums and products only where they are exact in any order."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from surgeon_passes.ops import normalise_axis
from surgeon_passes.values import dims
from surgeon_passes.values.handlers.elementwise import numeric
from surgeon_passes.values.lattice import MAX_PARTIAL, Array, Value, is_integer, object_array, pack
from surgeon_passes.values.operands import Operands, Unknown
from surgeon_passes.values.registry import handler
from surgeon_passes.values.shapes.reduce import keeps_dims, reduced_axes

_ELEMENTS: dict[str, Any] = {
    "ReduceSum": (dims.add, 0),
    "ReduceProd": (dims.mul, 1),
    "ReduceMax": (dims.maximum, None),
    "ReduceMin": (dims.minimum, None),
}
_ARRAYS: dict[str, Any] = {
    "ReduceSum": np.sum,
    "ReduceProd": np.prod,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
}


@handler("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceMean")
def reduced(n: Operands) -> Value:
    value = n.value(0)
    data = n.data(0)
    dtype = n.data_dtype(0)
    axes = reduced_axes(n, data.ndim)
    keep = keeps_dims(n)
    if axes == ():
        return value
    if not (numeric(dtype) or (dtype.kind == "b" and n.op in ("ReduceMax", "ReduceMin"))):
        raise Unknown
    if isinstance(value, np.ndarray):
        return _reduce_array(n.op, value, axes, keep)
    if n.op == "ReduceMean" or not is_integer(dtype):
        raise Unknown
    function, start = _ELEMENTS[n.op]
    return pack(_along(data, axes, keep, lambda row: _fold(function, row, start)), dtype)


def _fold(function: Callable[..., Any], row: list[Any], start: int | None) -> Any:
    if start is not None:
        return reduce(function, row, start)
    if not row:
        raise Unknown
    return reduce(function, row)


def _along(data: Array, axes: tuple[int, ...], keep: bool, function: Callable[[list[Any]], Any]) -> Array:
    """Apply a function to the elements along ``axes``, in row-major order."""
    kept = [k for k in range(data.ndim) if k not in axes]
    rows = np.transpose(data, [*kept, *axes])
    outer = rows.shape[: len(kept)]
    flat = rows.reshape(math.prod(outer), math.prod(rows.shape[len(kept) :]))
    found = object_array((function(list(row)) for row in flat), outer)
    return np.expand_dims(found, axes) if keep else found


def _reduce_array(op: str, array: Array, axes: tuple[int, ...], keep: bool) -> Array:
    if op in ("ReduceMax", "ReduceMin"):
        if not array.size:
            raise Unknown
        return np.asarray(_ARRAYS[op](array, axis=axes, keepdims=keep), array.dtype)
    if is_integer(array.dtype) and op != "ReduceMean":
        return np.asarray(_ARRAYS[op](array, axis=axes, keepdims=keep, dtype=array.dtype))
    return _exact(op, array, axes, keep)


def _exact(op: str, array: Array, axes: tuple[int, ...], keep: bool) -> Array:
    """The result in rational arithmetic, where the dtype holds it and every partial result exactly."""
    if array.size > MAX_PARTIAL or not np.isfinite(array).all():
        raise Unknown
    digits = 24 if is_integer(array.dtype) else np.finfo(array.dtype).nmant + 1
    exact = _along(array, axes, keep, lambda row: _rational(op, [Fraction(v.item()) for v in row], digits))
    found = np.array([float(v) if array.dtype.kind == "f" else int(v) for v in exact.ravel()], array.dtype)
    return found.reshape(exact.shape)


def _rational(op: str, row: list[Fraction], digits: int) -> Fraction:
    if any(v.denominator != 1 for v in row):
        raise Unknown
    if op == "ReduceProd":
        bound, result = (
            math.prod((max(abs(v), Fraction(1)) for v in row), start=Fraction(1)),
            math.prod(row, start=Fraction(1)),
        )
    else:
        bound, result = sum((abs(v) for v in row), Fraction(0)), sum(row, Fraction(0))
    if op == "ReduceMean":
        if not row or result % len(row):
            raise Unknown
        result /= len(row)
    if bound >= 2**digits:
        raise Unknown
    return result


def _sums_exactly(array: Array) -> bool:
    if not numeric(array.dtype) or array.dtype.name == "bfloat16" or not np.isfinite(array).all():
        return False
    whole = bool((array == np.trunc(array)).all()) and not np.signbit(array[array == 0]).any()
    return whole and float(np.abs(array.astype(np.float64)).sum()) < 2.0 ** (np.finfo(array.dtype).nmant + 1)


@handler("CumSum")
def cumulative_sum(n: Operands) -> Value:
    """Floats only where no partial sum is rounded: whole numbers that stay small."""
    array = n.array(0)
    if array.dtype.kind not in "iu" and not _sums_exactly(array):
        raise Unknown
    axis = normalise_axis(int(n.array(1).reshape(())), array.ndim)
    if n.attr("reverse", 0):
        array = np.flip(array, axis)
    found = np.cumsum(array, axis, dtype=array.dtype)
    if n.attr("exclusive", 0):
        found = found - array
    return np.ascontiguousarray(np.flip(found, axis) if n.attr("reverse", 0) else found)

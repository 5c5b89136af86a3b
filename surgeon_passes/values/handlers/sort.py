"""Order: ArgMax, ArgMin, TopK and Unique of known values. NaN has no place in an order, so it leaves the result unknown."""

from __future__ import annotations

import numpy as np

from surgeon_passes.ops import normalise_axis
from surgeon_passes.values.lattice import Array, Value, is_integer
from surgeon_passes.values.operands import Operands, Unknown
from surgeon_passes.values.registry import handler
from surgeon_passes.values.shapes.reduce import keeps_dims


def _ordered(n: Operands) -> Array:
    array = n.array(0)
    if not is_integer(array.dtype) and (array.dtype.kind != "f" or np.isnan(array).any()):
        raise Unknown
    return array


@handler("ArgMax", "ArgMin")
def arg_extremum(n: Operands) -> Value:
    """int64; of equal elements the first, or the last with select_last_index."""
    array = _ordered(n)
    axis = normalise_axis(n.attr("axis", 0), array.ndim)
    last = bool(n.attr("select_last_index", 0))
    find = np.argmax if n.op == "ArgMax" else np.argmin
    found = find(np.flip(array, axis) if last else array, axis=axis, keepdims=keeps_dims(n))
    return np.asarray(array.shape[axis] - 1 - found if last else found, np.int64)


@handler("TopK")
def top_k(n: Operands) -> tuple[Value, ...]:
    """(values, int64 indices); of equal elements the lower index comes first."""
    array = _ordered(n)
    k = int(n.array(1).reshape(()))
    axis = normalise_axis(n.attr("axis", -1), array.ndim)
    if not n.attr("sorted", 1) or not 0 <= k <= array.shape[axis]:
        raise Unknown
    if n.attr("largest", 1):
        order = array.shape[axis] - 1 - np.argsort(np.flip(array, axis), axis, kind="stable")
        order = np.flip(order, axis)
    else:
        order = np.argsort(array, axis, kind="stable")
    indices = np.take(order, range(k), axis).astype(np.int64)
    return np.take_along_axis(array, indices, axis), indices


@handler("Unique")
def unique(n: Operands) -> tuple[Value, ...]:
    """(values, int64 index of the first of each, int64 place of every element, int64 counts)."""
    array, axis = _ordered(n), n.attr("axis")
    if array.dtype.kind == "f" and np.signbit(array[array == 0]).any():
        raise Unknown  # 0.0 and -0.0 are equal: which one stays?
    values, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.ravel()
    if not n.attr("sorted", 1):
        order = np.argsort(first)
        values, first, counts = np.take(values, order, axis or 0), first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return values, *(a.astype(np.int64) for a in (first, inverse, counts))

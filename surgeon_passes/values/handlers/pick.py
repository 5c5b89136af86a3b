"""Elements picked by known indices: Gather and its kin, Slice, NonZero, Compress, Trilu, OneHot."""

from __future__ import annotations

import math

import numpy as np

from surgeon_passes.ops import normalise_axis
from surgeon_passes.values.lattice import Array, Value
from surgeon_passes.values.operands import Operands, Unknown
from surgeon_passes.values.registry import handler
from surgeon_passes.values.shapes.index import END


@handler("Gather", large=True)
def gather(n: Operands) -> Value:
    """Negative indices count from the end; one outside the axis is an error, so unknown."""
    indices = n.array(1)
    data = n.data(0)
    axis = normalise_axis(n.attr("axis", 0), data.ndim)
    n.fits(indices.size * math.prod(data.shape[:axis] + data.shape[axis + 1 :]))
    return n.result(np.asarray(_take(data, indices, axis)), n.data_dtype(0))


def _take(data: Array, indices: Array, axis: int) -> Array:
    found = np.empty(data.shape[:axis] + indices.shape + data.shape[axis + 1 :], data.dtype)
    found[...] = np.take(data, indices, axis)
    return found


@handler("GatherElements", large=True)
def gather_elements(n: Operands) -> Value:
    indices, data = n.array(1), n.data(0)
    n.fits(indices.size)
    axis = normalise_axis(n.attr("axis", 0), data.ndim)
    window = tuple(slice(None) if k == axis else slice(size) for k, size in enumerate(indices.shape))
    return n.result(np.take_along_axis(data[window], indices.astype(np.int64), axis), n.data_dtype(0))


@handler("GatherND", large=True)
def gather_nd(n: Operands) -> Value:
    indices, data = n.array(1), n.data(0)
    batch = n.attr("batch_dims", 0)
    depth = indices.shape[-1]
    n.fits(math.prod(indices.shape[:-1]) * math.prod(data.shape[batch + depth :]))
    outer = np.ogrid[tuple(slice(size) for size in indices.shape[:batch])] if batch else []
    spread = [np.reshape(o, o.shape + (1,) * (indices.ndim - 1 - batch)) for o in outer]
    picked = data[(*spread, *(indices[..., k] for k in range(depth)))]
    return n.result(np.asarray(picked, data.dtype), n.data_dtype(0))


@handler("Slice", large=True)
def slice_(n: Operands) -> Value:
    starts, ends = n.ints(1), n.ints(2)
    data = n.data(0)
    axes = n.ints(3) if n.has(3) else list(range(len(starts)))
    steps = n.ints(4) if n.has(4) else [1] * len(starts)
    window = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        window[normalise_axis(axis, data.ndim)] = _window(start, end, step, data.shape[normalise_axis(axis, data.ndim)])
    found = data[tuple(window)]
    n.fits(found.size)
    return n.result(found, n.data_dtype(0))


def _window(start: int, end: int, step: int, size: int) -> slice:
    """A Python slice with ONNX's clamping: backwards, an end before the first element runs through it."""
    if step < 0 and end >= END:
        raise Unknown  # clamped it leaves nothing; to ONNX Runtime it is the far end
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(start, None if end < 0 else end, step) if size else slice(0, 0)


@handler("NonZero")
def nonzero(n: Operands) -> Value:
    """int64 [rank, count], in row-major order; a scalar counts as one element of rank 0."""
    array = n.array(0)
    if array.ndim == 0:
        raise Unknown
    return np.array(np.nonzero(array), np.int64)


@handler("Compress", since=9)
def compress(n: Operands) -> Value:
    data, condition = n.data(0), n.array(1).astype(bool)
    axis = n.attr("axis")
    if axis is None:
        data, axis = data.ravel(), 0
    if condition.size > data.shape[axis]:
        raise Unknown
    return n.result(np.compress(condition, data, axis), n.data_dtype(0))


@handler("Trilu")
def trilu(n: Operands) -> Value:
    data = n.array(0)
    k = int(n.array(1).reshape(())) if n.has(1) else 0
    rows, columns = data.shape[-2:]
    k = min(max(k, -rows - 1), columns + 1)
    kept = np.triu if n.attr("upper", 1) else np.tril
    return np.asarray(kept(data, k), data.dtype)


@handler("OneHot")
def one_hot(n: Operands) -> Value:
    """Indices in [-depth, depth) choose ``values[1]``; any other gives a row of ``values[0]``."""
    indices, values = n.array(0), n.array(2)
    depth = int(n.array(1).reshape(()))
    if indices.dtype.kind not in "iuf" or (indices != np.trunc(indices)).any() or not np.isfinite(indices).all():
        raise Unknown
    n.fits(indices.size * depth)
    axis = normalise_axis(n.attr("axis", -1), indices.ndim + 1)
    wrapped = np.where(indices < 0, indices.astype(np.int64) + depth, indices)
    grid = np.arange(depth).reshape((depth,) + (1,) * (indices.ndim - axis))
    hot = np.expand_dims(wrapped, axis) == grid
    return np.asarray(np.where(hot, values[1], values[0]), values.dtype)

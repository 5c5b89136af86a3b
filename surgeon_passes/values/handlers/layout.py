"""The same elements in another arrangement: Reshape and its kin, Transpose, Concat, Split, Expand, Tile, Pad."""

from __future__ import annotations

import math

import numpy as np

from surgeon_passes.ops import normalise_axis
from surgeon_passes.values import dims
from surgeon_passes.values.lattice import Array, Value, elements_of
from surgeon_passes.values.operands import Operands, Unknown
from surgeon_passes.values.registry import handler
from surgeon_passes.values.shapes.reshape import flattened, reshaped, split_sizes, squeezed, unsqueezed


@handler("Identity", large=True)
def identity(n: Operands) -> Value:
    return n.value(0)


@handler("Dropout", large=True)
def dropout(n: Operands) -> tuple[Value, ...]:
    """Outside training the data passes through, and from opset 12 on the mask is all true."""
    if n.has(2) and n.array(2).any():
        raise Unknown
    value = n.value(0)
    return (value, np.ones(value.shape, bool)) if value is not None and n.opset >= 12 else (value,)


@handler("Reshape", "Squeeze", "Unsqueeze", "Flatten", large=True)
def rearranged(n: Operands) -> Value:
    """The elements in row-major order under the new shape, which must be static."""
    data = n.data(0)
    target = {"Reshape": reshaped, "Squeeze": squeezed, "Unsqueeze": unsqueezed, "Flatten": flattened}[n.op](n)
    shape = dims.static(target)
    if shape is None:
        raise Unknown
    return n.result(data.reshape(shape), n.data_dtype(0))


@handler("Transpose")
def transpose(n: Operands) -> Value:
    data = n.data(0)
    perm = n.attr("perm") if n.view.has_attr("perm") else None
    return n.result(np.transpose(data, perm), n.data_dtype(0))


@handler("Concat")
def concat(n: Operands) -> Value:
    n.prepare()
    parts = [n.data(p) for p in range(len(n))]
    n.fits(sum(p.size for p in parts))
    if any(p.dtype == object for p in parts) and any(p.dtype != object for p in parts):
        parts = [p if p.dtype == object else elements_of(p) for p in parts]
    axis = n.attr("axis", 1 if n.opset < 4 else 0)
    return n.result(np.concatenate(parts, axis), n.data_dtype(0))


@handler("Split")
def split(n: Operands) -> tuple[Value, ...]:
    data, dtype = n.data(0), n.data_dtype(0)
    axis = normalise_axis(n.attr("axis", 0), data.ndim)
    sizes = [s for s in split_sizes(n, data.shape[axis]) if isinstance(s, int)]
    if len(sizes) < n.outputs() or sum(sizes) != data.shape[axis]:
        raise Unknown
    parts = np.split(data, np.cumsum(sizes)[:-1], axis)
    return tuple(n.result(part, dtype) for part in parts)


@handler("Expand")
def expand(n: Operands) -> Value:
    data, target = n.data(0), n.ints(1)
    shape = np.broadcast_shapes(data.shape, tuple(target))
    n.fits(math.prod(shape))
    return n.result(_spread(data, shape), n.data_dtype(0))


def _spread(data: Array, shape: tuple[int, ...]) -> Array:
    return np.array(np.broadcast_to(data, shape))


@handler("Tile", until=6)
def tile_axis(n: Operands) -> Value:
    """Before opset 6: so many times along one axis."""
    data, times, axis = n.data(0), int(n.array(1).reshape(())), int(n.array(2).reshape(()))
    n.fits(data.size * times)
    return n.result(np.concatenate([data] * times, axis), n.data_dtype(0))


@handler("Tile", since=6)
def tile(n: Operands) -> Value:
    data, repeats = n.data(0), n.ints(1)
    if len(repeats) != data.ndim:
        raise Unknown
    n.fits(data.size * math.prod(repeats))
    return n.result(np.tile(data, repeats), n.data_dtype(0))


@handler("Pad")
def pad(n: Operands) -> Value:
    """Negative pads crop. Modes other than constant only where what they repeat or mirror is there."""
    data, dtype, pads = n.data(0), n.data_dtype(0), n.ints(1)
    axes = [normalise_axis(a, data.ndim) for a in (n.ints(3) if n.has(3) else range(data.ndim))]
    if len(pads) != 2 * len(axes) or len(set(axes)) < len(axes):
        raise Unknown
    widths = [(0, 0)] * data.ndim
    for k, axis in enumerate(axes):
        widths[axis] = (pads[k], pads[k + len(axes)])
    n.fits(math.prod(max(size + sum(width), 0) for size, width in zip(data.shape, widths, strict=True)))
    return n.result(_padded(n, data, widths), dtype)


def _padded(n: Operands, data: Array, widths: list[tuple[int, int]]) -> Array:
    mode = n.attr("mode", "constant")
    if mode == "constant":
        fill = n.array(2).reshape(()) if n.has(2) else np.zeros((), n.data_dtype(0))
        added = [(max(low, 0), max(high, 0)) for low, high in widths]
        found = np.pad(data, added, constant_values=fill.item() if data.dtype == object else fill)
        return found[tuple(_kept(size, *width) for size, width in zip(found.shape, widths, strict=True))]
    for size, width in zip(data.shape, widths, strict=True):
        most = {"edge": max(width) if size else 0, "reflect": size - 1, "wrap": size}[mode]
        if min(width) < 0 or (max(width) > most and max(width) > 0):
            raise Unknown
    return np.pad(data, widths, mode=mode)


def _kept(size: int, low: int, high: int) -> slice:
    """What cropping leaves of an axis. Gives up where more is cropped than is there."""
    if size + min(low, 0) + min(high, 0) < 0:
        raise Unknown
    return slice(-min(low, 0), size + min(high, 0))

"""Shapes of what is picked or cut out: Gather and its kin, Slice, TopK, Compress."""

from __future__ import annotations

from collections.abc import Sequence

from surgeon_passes.ops import normalise_axis
from surgeon_passes.values import dims
from surgeon_passes.values.dims import Dim, Shape
from surgeon_passes.values.operands import Operands
from surgeon_passes.values.registry import shape_of

END = 2**31 - 1
"""A bound from here on means "to the end": what ONNX recommends writing for a dim of unknown size."""


@shape_of("Gather")
def gather(n: Operands) -> Sequence[Shape | None]:
    data, indices = n.known_shape(0), n.known_shape(1)
    axis = normalise_axis(n.attr("axis", 0), len(data))
    return [data[:axis] + indices + data[axis + 1 :]]


@shape_of("GatherElements")
def gather_elements(n: Operands) -> Sequence[Shape | None]:
    return [n.shape(1)]


@shape_of("GatherND")
def gather_nd(n: Operands) -> Sequence[Shape | None]:
    data, indices = n.known_shape(0), n.known_shape(1)
    depth = indices[-1]
    return [indices[:-1] + data[n.attr("batch_dims", 0) + depth :]] if isinstance(depth, int) else []


@shape_of("Slice")
def slice_(n: Operands) -> Sequence[Shape | None]:
    data = n.known_shape(0)
    starts, ends = n.maybe_dims(1), n.maybe_dims(2)
    axes = n.maybe_ints(3) if n.has(3) else list(range(len(starts or ends or ())))
    if axes is None or (starts is None and ends is None):
        return [(None,) * len(data)]
    unknown: list[Dim] = [None] * len(axes)
    steps = n.maybe_dims(4) if n.has(4) else [1] * len(axes)
    found = list(data)
    for axis, start, end, step in zip(axes, starts or unknown, ends or unknown, steps or unknown, strict=True):
        place = normalise_axis(axis, len(data))
        found[place] = sliced(data[place], start, end, step)
    return [tuple(found)]


def sliced(dim: Dim, start: Dim, end: Dim, step: Dim) -> Dim:
    """Elements that a slice leaves of ``dim``."""
    if not isinstance(step, int) or step == 0 or (step < 0 and isinstance(end, int) and end >= END):
        return None
    if isinstance(dim, int) and isinstance(start, int) and isinstance(end, int):
        return _counted(dim, start, end, step)
    if step < 0:
        whole = isinstance(end, int) and end <= -END and (start == -1 or (isinstance(start, int) and start >= END))
        return dims.ceil_div(dim, -step) if whole else None
    length = dims.sub(_bound(end, dim), _bound(start, dim))
    return dims.ceil_div(dims.maximum(length, 0), step)


def _counted(size: int, start: int, end: int, step: int) -> int:
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    if step > 0:
        low, high = min(max(start, 0), size), min(max(end, 0), size)
        return max(0, -((low - high) // step))
    low, high = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return max(0, -((high - low) // -step)) if size else 0


def _bound(bound: Dim, dim: Dim) -> Dim:
    """A start or end, counted from the front and clamped into [0, dim]."""
    if isinstance(bound, int) and bound >= END:
        return dim
    if bound == 0 or (isinstance(bound, int) and bound <= -END):
        return 0
    if dims.at_least(bound, 0):
        return dims.minimum(bound, dim)
    if dims.less(bound, 0) is True:
        return dims.maximum(dims.add(dim, bound), 0)
    return None


@shape_of("TopK")
def top_k(n: Operands) -> Sequence[Shape | None]:
    data = list(n.known_shape(0))
    count = n.maybe_dims(1)
    data[normalise_axis(n.attr("axis", -1), len(data))] = count[0] if count else None
    return [tuple(data)] * 2


@shape_of("Compress")
def compress(n: Operands) -> Sequence[Shape | None]:
    axis = n.attr("axis")
    if axis is None:
        return [(None,)]
    data = list(n.known_shape(0))
    data[normalise_axis(axis, len(data))] = None
    return [tuple(data)]

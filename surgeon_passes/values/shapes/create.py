"""Shapes of tensors that are made: Constant, Shape, Size, ConstantOfShape, Range, NonZero, OneHot."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_graphsurgeon as gs

from surgeon_passes.ops import normalise_axis
from surgeon_passes.values import dims
from surgeon_passes.values.dims import Shape
from surgeon_passes.values.lattice import is_integer
from surgeon_passes.values.operands import Operands, Unknown
from surgeon_passes.values.registry import shape_of


@shape_of("Constant")
def constant(n: Operands) -> Sequence[Shape | None]:
    value = n.attr("value")
    return [tuple(int(d) for d in value.shape)] if isinstance(value, gs.Constant) else []


@shape_of("Shape")
def shape(n: Operands) -> Sequence[Shape | None]:
    full = n.known_shape(0)
    return [(len(shape_slice(full, n.attr("start", 0), n.attr("end"))),)]


def shape_slice(full: Shape, start: int | None, end: int | None) -> Shape:
    """Dims from ``start`` to ``end`` as Shape cuts them: negative bounds count from the end, all are clamped."""
    rank = len(full)
    low, high = (
        min(max(bound + rank if bound < 0 else bound, 0), rank) for bound in (start or 0, rank if end is None else end)
    )
    return full[low:high]


@shape_of("Size")
def size(n: Operands) -> Sequence[Shape | None]:
    return [()]


@shape_of("ConstantOfShape")
def constant_of_shape(n: Operands) -> Sequence[Shape | None]:
    return [tuple(n.dims(0))]


@shape_of("Range")
def range_(n: Operands) -> Sequence[Shape | None]:
    """max(0, ceil((limit - start) / delta)) elements, of integers."""
    if not is_integer(n.dtype(0)):
        return []
    start, limit, delta = (n.dims(p)[0] for p in range(3))
    distance = dims.sub(limit, start)
    if isinstance(delta, int) and delta < 0:
        distance, delta = dims.neg(distance), -delta
    if delta is None or not dims.at_least(delta, 1):
        return [(None,)]
    return [(dims.ceil_div(dims.maximum(distance, 0), delta),)]


@shape_of("NonZero")
def nonzero(n: Operands) -> Sequence[Shape | None]:
    rank = len(n.known_shape(0))
    return [(rank, None)] if rank else []


@shape_of("OneHot")
def one_hot(n: Operands) -> Sequence[Shape | None]:
    indices = n.known_shape(0)
    axis = normalise_axis(n.attr("axis", -1), len(indices) + 1)
    depth = _depth(n)
    return [(*indices[:axis], depth, *indices[axis:])]


def _depth(n: Operands) -> dims.Dim:
    try:
        return n.dims(1)[0]
    except Unknown:
        return None

"""Static shapes of a boundary made smaller, or larger, where the region's meaning stays what it is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_graphsurgeon as gs

from surgeon_passes.ops.traits import ELEMENTWISE, SPATIAL
from surgeon_passes.region import NodeImage

Shape = tuple[int, ...]

BATCH = 16
"""Rows that give a channel enough elements to take a scale from."""
_GLOBAL = frozenset({"GlobalAveragePool", "GlobalMaxPool"})
_WINDOWS = SPATIAL - {"BatchNormalization", "InstanceNormalization"}


def constant_shape(image: NodeImage, position: int) -> Shape | None:
    """Dims of the input of that position, where it is a constant."""
    if len(image.inputs) <= position or not isinstance(image.inputs[position], gs.Constant):
        return None
    return tuple(int(d) for d in image.inputs[position].shape)


# --- larger batches -------------------------------------------------------------------------------------------------------


def enlarged(shapes: Sequence[Shape], images: Sequence[NodeImage]) -> tuple[Shape, ...] | None:
    """``shapes`` with a larger batch where that only adds rows, or None.

    One element says little about its channel: [1, 512] leaves nothing to take a scale from.
    """
    batched = [s for s in shapes if len(s) >= 2]
    if not batched or any(s[0] != 1 for s in batched) or any(len(s) == 1 and s[0] > 1 for s in shapes):
        return None
    collapses = any(image.node.op in _GLOBAL for image in images)
    if not collapses and max(math.prod(s[2:]) for s in batched) >= BATCH:
        return None
    if not all(_adds_rows(image) for image in images):
        return None
    return tuple((BATCH, *s[1:]) if len(s) >= 2 else s for s in shapes)


def fills_channels(shapes: Sequence[Shape], images: Sequence[NodeImage]) -> bool:
    """Whether a channel has enough elements to take a scale from: spatial ones, that no operator adds up."""
    if any(image.node.op in _GLOBAL for image in images):
        return False
    return max((s[0] * math.prod(s[2:]) for s in shapes if len(s) >= 3), default=0) >= BATCH


def _adds_rows(image: NodeImage) -> bool:
    """Whether every row along axis 0 is computed from the same row of the inputs alone."""
    op = image.node.op
    held = [list(t.shape) for t in image.inputs if isinstance(t, gs.Constant)]
    if op == "Gemm":
        return (
            not image.node.attrs.get("transA")
            and not isinstance(image.inputs[0], gs.Constant)
            and len(held) + 1 == len(image.inputs)
        )
    if op == "MatMul":
        return isinstance(image.inputs[1], gs.Constant) and len(image.inputs[1].shape) == 2
    if op in ELEMENTWISE:
        return all(len(s) < 2 or s[0] == 1 for s in held)
    return op in _GLOBAL or op in SPATIAL


# --- smaller spatial sizes -----------------------------------------------------------------------------------------------


def reduced(
    shapes: Sequence[Shape], before: Sequence[NodeImage], after: Sequence[NodeImage]
) -> tuple[Shape, ...] | None:
    """``shapes`` with smaller spatial sizes, or None where the region's meaning might depend on them.

    The new size keeps the remainder by the product of the strides, so that windows end at the same offset, and leaves
    room for a whole receptive field away from every border.
    """
    ranks = {len(s) for s in shapes if len(s) >= 3}
    if len(ranks) != 1 or not all(is_local(image) for image in (*before, *after)):
        return None
    spatial = ranks.pop() - 2
    sizes = {s[2:] for s in shapes if len(s) >= 3 and math.prod(s[2:]) > 1}
    if len(sizes) != 1 or any(1 < len(s) < 3 and math.prod(s) > 1 for s in shapes):
        return None
    (size,) = sizes
    small = tuple(_smaller(size[axis], (before, after), axis, spatial) for axis in range(spatial))
    if small == size:
        return None
    return tuple((*s[:2], *small) if len(s) >= 3 and s[2:] == size else s for s in shapes)


def is_local(image: NodeImage) -> bool:
    """Whether the operator computes each place, or window, as it does every other, at any size."""
    op = image.node.op
    if op in ELEMENTWISE or op in _GLOBAL:
        return all(_broadcasts(t) for t in image.inputs)
    return op in SPATIAL


def _broadcasts(tensor: gs.Tensor) -> bool:
    """Whether a constant operand has no spatial extent of its own."""
    if not isinstance(tensor, gs.Constant):
        return True
    shape = list(tensor.shape)
    return math.prod(shape[2:]) == 1 if len(shape) >= 3 else math.prod(shape) == 1 or not shape


def _smaller(size: int, sides: Sequence[Sequence[NodeImage]], axis: int, spatial: int) -> int:
    reach, strides = 1, 1
    for images in sides:
        side_reach, side_strides = 1, 1
        for image in (i for i in images if i.node.op in _WINDOWS):
            kernel, stride, dilation = _window(image, axis, spatial)
            side_reach += dilation * (kernel - 1) * side_strides
            side_strides *= stride
        reach, strides = max(reach, side_reach), max(strides, side_strides)
    least = reach + 2 * strides + 2
    return size if size <= least else least + (size - least) % strides


def _window(image: NodeImage, axis: int, spatial: int) -> tuple[int, int, int]:
    """(kernel, stride, dilation) of a node along a spatial axis."""
    attrs = image.node.attrs
    kernel = list(attrs.get("kernel_shape") or ())
    if not kernel and image.node.op in ("Conv", "ConvTranspose"):
        weight = constant_shape(image, 1)
        kernel = list(weight[2:]) if weight else []
    values = (kernel, list(attrs.get("strides") or ()), list(attrs.get("dilations") or ()))
    one, two, three = (int(v[axis]) if len(v) == spatial else 1 for v in values)
    return one, two, three

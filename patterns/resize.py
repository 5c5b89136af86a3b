"""Resize: computed sizes become constant scales, what resizes nothing goes."""

from __future__ import annotations

from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule
from surgeon_passes.values import dims

from ._dims import entries, is_open, same


def _given(operand: Operand | None) -> bool:
    """Whether an optional operand says anything: an empty tensor stands for a missing one."""
    return operand is not None and operand.shape != (0,)


def _sized(m: Match) -> list[Any]:
    """The input's dims that scales and sizes speak of. Raises Decline where there are none that they could."""
    if m.y.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise Decline("it crops a region of interest")
    shape = m.x.shape
    if shape is None:
        raise Decline(f"the rank of '{m.x.name}' is unknown")
    axes = m.y.attr("axes")
    return [shape[axis] for axis in axes] if axes else list(shape)


@rule(
    pattern="y = Resize(x, roi?, scales?, sizes?)",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
    opset=(11, None),
)
def drop_resize(m: Match) -> Replacement:
    """A Resize to the size that its input has goes.

    Algebra
        with scale 1 every way to place coordinates but cropping maps an element onto itself, where each filter is 1 and
        0 elsewhere, anti-aliased ones too

    Declines when
        a scale is not 1, or a size not certainly the input's;
        a region of interest is cropped.

    Example
        before:
            g (float[N,1,4,4] x) => (float[N,1,4,4] y) {
                scales = Constant<value = float[4] {1.0, 1.0, 1.0, 1.0}>()
                a = Resize<mode = "linear">(x, , scales)
                y = Relu(a)
            }
        after:
            g (float[N,1,4,4] x) => (float[N,1,4,4] y) {
                y = Relu(x)
            }
    """
    held = _sized(m)
    if _given(m.scales):
        value = m.scales.value
        if not isinstance(value, np.ndarray) or (value != 1).any():
            raise Decline
    elif (
        m.sizes is None
        or m.sizes.value is None
        or not all(same(size, own) for size, own in zip(entries(m.sizes), held, strict=True))
    ):
        raise Decline
    return Replacement()


@rule(
    pattern="y = Resize(x, roi?, scales?, sizes: partial)",
    rewrite="y = Resize(x, roi, Scales)<@y>",
    exactness="exact",
    sets=("shape",),
    opset=(11, None),
    guard=lambda y: is_open(y.operand(3)),
    tag="static",
)
def make_resize_static(m: Match) -> Replacement:
    """A Resize to computed sizes that are a fixed multiple, or part, of the input's gets constant scales.

    Algebra
        ONNX Runtime divides sizes by the input's dims to get the scales that it uses; where each quotient is the same
        for every input and exact in single precision, it is that scale, and rounding down gives the size again

    Declines when
        a size is not certainly such a multiple or part;
        the aspect ratio is kept, or a region of interest is cropped.

    Example
        before:
            g (float[N,1,H,3] x) => (float[N,1,H2,6] y) {
                shape = Shape(x)
                factors = Constant<value = int64[4] {1, 1, 2, 2}>()
                sizes = Mul(shape, factors)
                y = Resize(x, , , sizes)
            }
        after:
            g (float[N,1,H,3] x) => (float[N,1,H2,6] y) {
                scales = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>()
                y = Resize(x, , scales)
            }
    """
    if not is_open(m.sizes):
        raise Decline
    if m.y.attr("keep_aspect_ratio_policy") not in (None, "stretch"):
        raise Decline("it keeps the aspect ratio")
    scales = [_scale(size, own) for size, own in zip(entries(m.sizes), _sized(m), strict=True)]
    if None in scales:
        raise Decline(f"the sizes {m.sizes.value} are no fixed multiples of the input's")
    return Replacement(Scales=np.array(scales, np.float32))


def _scale(size: Any, own: Any) -> float | None:
    """size / own where that is one number for every input, and exact in single precision."""
    if same(size, own):
        return 1.0
    if isinstance(size, int) and isinstance(own, int):
        return _exact(size, own)
    times, part = dims.floor_div(size, own), dims.floor_div(own, size)
    if isinstance(times, int) and times > 0 and same(dims.mul(own, times), size):
        return _exact(times, 1)
    if isinstance(part, int) and part > 0 and same(dims.mul(size, part), own):
        return _exact(1, part)
    return None


def _exact(above: int, below: int) -> float | None:
    if below < 1 or above < 1:
        return None
    scale = float(np.float32(above / below))
    return scale if scale * below == above else None


@rule(
    pattern="y = Resize(x, roi?, scales: const)",
    rewrite="y = Resize(x, roi, scales, Sizes)<@y>",
    exactness="exact",
    sets=("npu",),
    opset=(11, None),
    tag="sized",
)
def state_resize_sizes(m: Match) -> Replacement:
    """A Resize by constant scales states its sizes instead: some compilers take nothing else. Off unless asked for.

    Algebra
        where size / dim is the scale in single precision, it is what ONNX Runtime computes from the size

    Declines when
        a dim of the input is not known, or a scale is not such a quotient;
        a region of interest is cropped.

    Example
        before:
            g (float[1,1,4,3] x) => (float[1,1,8,6] y) {
                scales = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>()
                y = Resize(x, , scales)
            }
        after:
            g (float[1,1,4,3] x) => (float[1,1,8,6] y) {
                sizes = Constant<value = int64[4] {1, 1, 8, 6}>()
                y = Resize(x, , , sizes)
            }
    """
    held = _sized(m)
    if not _given(m.scales) or not all(isinstance(dim, int) and dim > 0 for dim in held):
        raise Decline(f"the size of '{m.x.name}' is not known")
    scales = np.asarray(m.scales.value, np.float32)
    sizes = np.floor(scales.astype(np.float64) * held).astype(np.int64)
    if (sizes < 1).any() or ((sizes / held).astype(np.float32) != scales).any():
        raise Decline("a scale is no quotient of the sizes that it gives")
    return Replacement(scales=None, Sizes=sizes)

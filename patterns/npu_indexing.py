"""Set "npu": reads and writes at constant places, and depth to space and back, as plain data movement."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from surgeon_passes import Decline, Match, Replacement, rule

SETS = ("npu",)
CHOSEN = (
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.DOUBLE,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.UINT8,
)
"""Types that ONNX Runtime's Where takes."""


@rule(
    pattern="y = GatherND(x, places: const)",
    rewrite={
        "rows": "y = Gather(x, Rows)<axis=0>",
        "flat": "y = Gather(Reshape(x, Flat), Rows)<axis=0>",
    },
    exactness="exact",
    sets=SETS,
    opset=(12, None),
    may_grow=True,
)
def decompose_gather_nd(m: Match) -> Replacement:
    """GatherND at constant places is a Gather along the first axes, joined to one.

    Algebra
        x[i, j] = x'[i·J + j] with x' = x reshaped to [I·J, …]

    Declines when
        batch_dims is not 0, or an index names no axis;
        a size that the joined index needs, or more than one of the others, is unknown;
        an index is out of range: the original fails there.

    Example
        before:
            g (float[N,3,4] x) => (float[2,4] y) {
                places = Constant<value = int64[2,2] {0, 1, 1, 2}>()
                y = GatherND(x, places)
            }
        after:
            g (float[N,3,4] x) => (float[2,4] y) {
                flat = Constant<value = int64[2] {-1, 4}>()
                rows = Constant<value = int64[2] {1, 5}>()
                r = Reshape(x, flat)
                y = Gather<axis = 0>(r, rows)
            }
    """
    if m.y.attr("batch_dims"):
        raise Decline("batch_dims is not 0")
    places = np.asarray(m.places.value)
    depth = places.shape[-1]
    if depth == 0:
        raise Decline(f"an index of '{m.places.name}' names no axis")
    if depth == 1:
        return Replacement("rows", Rows=places[..., 0])
    shape = m.x.shape
    if shape is None or not all(isinstance(d, int) for d in shape[1:]):
        raise Decline(f"sizes of '{m.x.name}' behind the first are unknown")
    if 0 in shape[1:]:
        raise Decline(f"'{m.x.name}' is empty")
    joined = shape[:depth]
    if not isinstance(joined[0], int) and (places[..., 0] < 0).any():
        raise Decline("an index counts from the end of an axis whose size is unknown")
    rows = np.zeros(places.shape[:-1], np.int64)
    for axis, size in enumerate(joined):
        index = places[..., axis]
        if isinstance(size, int):
            if (index < -size).any() or (index >= size).any():
                raise Decline(f"an index lies outside of axis {axis} of '{m.x.name}'")
            index = np.where(index < 0, index + size, index)
        rows = rows * (size if axis else 1) + index
    return Replacement("flat", Flat=[-1, *shape[depth:]], Rows=rows)


@rule(
    pattern='y = ScatterND(x, places: const, updates)<reduction="none">',
    rewrite={
        "all": "y = updates",
        "start": "y = Concat(updates, Slice(x, Second, End, Axis))<axis=@axis>",
        "end": "y = Concat(Slice(x, Zero, First, Axis), updates)<axis=@axis>",
        "middle": "y = Concat(Slice(x, Zero, First, Axis), updates, Slice(x, Second, End, Axis))<axis=@axis>",
    },
    exactness="exact",
    sets=SETS,
    opset=(11, None),
    may_grow=True,
)
def decompose_scatter_nd(m: Match) -> Replacement:
    """ScatterND that writes a whole stretch along one axis joins what is before, the updates and what is after.

    Algebra
        y[a:b] = u, y elsewhere x: y = concat(x[:a], u, x[b:]) along the axis

    Declines when
        the places are no box that is whole along all axes but one;
        a size that decides this is unknown;
        values are added up, or otherwise reduced.

    Example
        before:
            g (float[6,N] x, float[2,N] u) => (float[6,N] y) {
                places = Constant<value = int64[2,1] {1, 2}>()
                y = ScatterND(x, places, u)
            }
        after:
            g (float[6,N] x, float[2,N] u) => (float[6,N] y) {
                zero = Constant<value = int64[1] {0}>()
                first = Constant<value = int64[1] {1}>()
                second = Constant<value = int64[1] {3}>()
                end = Constant<value = int64[1] {9223372036854775807}>()
                axis = Constant<value = int64[1] {0}>()
                a = Slice(x, zero, first, axis)
                b = Slice(x, second, end, axis)
                y = Concat<axis = 0>(a, u, b)
            }
    """
    places = np.asarray(m.places.value)
    depth = places.shape[-1]
    shape = m.x.shape
    if shape is None or not all(isinstance(d, int) for d in shape[:depth]):
        raise Decline(f"sizes of '{m.x.name}' that the places index are unknown")
    starts = _box(places, shape[:depth])
    partial = [a for a in range(depth) if places.shape[a] != shape[a]]
    if not partial:
        return Replacement("all")
    if len(partial) > 1:
        raise Decline(f"the places are whole neither along axis {partial[0]} nor along axis {partial[1]}")
    (axis,) = partial
    first, second = starts[axis], starts[axis] + places.shape[axis]
    outcome = "start" if first == 0 else "end" if second == shape[axis] else "middle"
    ends = {"Zero": [0], "First": [first], "Second": [second], "End": [np.iinfo(np.int64).max], "Axis": [axis]}
    return Replacement(outcome, axis=axis, **ends)


def _box(places: Any, shape: Any) -> list[int]:
    """Where the box begins along each axis. Raises Decline where the places, in their order, are no box."""
    depth = len(shape)
    if places.ndim != depth + 1 or 0 in places.shape:
        raise Decline("the places are no box of the first axes")
    places = np.where(places < 0, places + np.array(shape), places)
    starts = places[(0,) * depth]
    grid = np.stack(np.meshgrid(*(np.arange(n) for n in places.shape[:-1]), indexing="ij"), axis=-1) + starts
    if not np.array_equal(grid, places) or (starts < 0).any() or (places >= np.array(shape)).any():
        raise Decline("the places are no box of the first axes, in order")
    return [int(s) for s in starts]


@rule(
    pattern="y = DepthToSpace(x)",
    rewrite="y = Reshape(Transpose(Reshape(x, Split))<perm=@perm>, Joined)",
    exactness="exact",
    sets=SETS,
    opset=(11, None),
    may_grow=True,
    opposes=("fuse_depth_to_space",),
)
def decompose_depth_to_space(m: Match) -> Replacement:
    """DepthToSpace is a Transpose between two reshapes.

    Algebra
        DCR: [N, b, b, C, H, W] -> [N, C, H, b, W, b];  CRD: [N, C, b, b, H, W] -> the same

    Declines when
        sizes behind the first are unknown, or one is 0.

    Example
        before:
            g (float[N,4,2,3] x) => (float[N,1,4,6] y) {
                y = DepthToSpace<blocksize = 2, mode = "CRD">(x)
            }
        after:
            g (float[N,4,2,3] x) => (float[N,1,4,6] y) {
                split = Constant<value = int64[6] {0, 1, 2, 2, 2, 3}>()
                joined = Constant<value = int64[4] {0, 1, 4, 6}>()
                s = Reshape(x, split)
                t = Transpose<perm = [0, 1, 4, 2, 5, 3]>(s)
                y = Reshape(t, joined)
            }
    """
    depth, height, width = _image(m)
    b = int(m.y.attr("blocksize"))
    channels = depth // (b * b)
    crd = m.y.attr("mode") == "CRD"
    split = [channels, b, b] if crd else [b, b, channels]
    perm = [0, 1, 4, 2, 5, 3] if crd else [0, 3, 4, 1, 5, 2]
    return Replacement(Split=[0, *split, height, width], perm=perm, Joined=[0, channels, height * b, width * b])


@rule(
    pattern="y = SpaceToDepth(x)",
    rewrite="y = Reshape(Transpose(Reshape(x, Split))<perm=@perm>, Joined)",
    exactness="exact",
    sets=SETS,
    may_grow=True,
    opposes=(
        "fuse_space_to_depth",
        "fuse_pixel_unshuffle_into_conv",
        "fuse_strided_slices_into_conv",
        "fuse_strided_slices",
    ),
)
def decompose_space_to_depth(m: Match) -> Replacement:
    """SpaceToDepth is a Transpose between two reshapes.

    Algebra
        [N, C, H, b, W, b] -> DCR: [N, b, b, C, H, W];  CRD: [N, C, b, b, H, W]

    Declines when
        sizes behind the first are unknown, or one is 0.

    Example
        before:
            g (float[N,1,4,6] x) => (float[N,4,2,3] y) {
                y = SpaceToDepth<blocksize = 2>(x)
            }
        after:
            g (float[N,1,4,6] x) => (float[N,4,2,3] y) {
                split = Constant<value = int64[6] {0, 1, 2, 2, 3, 2}>()
                joined = Constant<value = int64[4] {0, 4, 2, 3}>()
                s = Reshape(x, split)
                t = Transpose<perm = [0, 3, 5, 1, 2, 4]>(s)
                y = Reshape(t, joined)
            }
    """
    channels, height, width = _image(m)
    b = int(m.y.attr("blocksize"))
    split = [0, channels, height // b, b, width // b, b]
    perm = [0, 1, 3, 5, 2, 4] if m.y.attr("mode") == "CRD" else [0, 3, 5, 1, 2, 4]
    return Replacement(Split=split, perm=perm, Joined=[0, channels * b * b, height // b, width // b])


def _image(m: Match) -> tuple[int, int, int]:
    """Channels, height and width. Raises Decline where one is unknown, or 0: a Reshape reads that as "as it is"."""
    shape = m.x.shape
    if shape is None or len(shape) != 4 or not all(isinstance(d, int) for d in shape[1:]):
        raise Decline(f"sizes of '{m.x.name}' behind the first are unknown")
    if 0 in shape:
        raise Decline(f"'{m.x.name}' has no elements")
    return shape[1], shape[2], shape[3]


@rule(
    pattern="y = Trilu(x, k?: const)",
    rewrite="y = Where(Mask, x, 0)",
    exactness="exact",
    sets=SETS,
    opset=(14, None),
    may_grow=True,
)
def decompose_trilu(m: Match) -> Replacement:
    """Trilu of known size is a choice by a constant mask.

    Algebra
        y = x where the mask holds, else 0; the mask is the triangle

    Declines when
        the type is one that ONNX Runtime's Where does not take (bool, small integers), or unknown;
        one of the last two sizes is unknown, or the mask would exceed 1 MiB.

    Example
        before:
            g (float[N,2,2] x) => (float[N,2,2] y) {
                y = Trilu<upper = 0>(x)
            }
        after:
            g (float[N,2,2] x) => (float[N,2,2] y) {
                mask = Constant<value = bool[2,2] {1, 0, 1, 1}>()
                zero = Constant<value = float {0.0}>()
                y = Where(mask, x, zero)
            }
    """
    if m.x.dtype not in CHOSEN:
        raise Decline(f"'{m.x.name}' is of a type that Where may not take")
    shape = m.x.shape
    if shape is None or not all(isinstance(d, int) for d in shape[-2:]):
        raise Decline(f"the last two sizes of '{m.x.name}' are unknown")
    if shape[-1] * shape[-2] > 1 << 20:
        raise Decline(f"the mask would have {shape[-1] * shape[-2]} elements")
    k = 0 if m.k is None else int(np.asarray(m.k.value).reshape(()))
    k = max(-shape[-2], min(k, shape[-1]))  # further out lies nothing, and numpy would overflow
    ones = np.ones(shape[-2:], np.bool_)
    return Replacement(Mask=np.triu(ones, k) if m.y.attr("upper") else np.tril(ones, k))

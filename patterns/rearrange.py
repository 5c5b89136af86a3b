"""Blocks of pixels and channels that trade places: DepthToSpace and SpaceToDepth, written out as views or as slices."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from surgeon_passes import Decline, Match, Operand, Replacement, rule
from surgeon_passes.values import dims

from ._arrays import floats
from ._dims import FAR, ints, same, same_shape

DCR, CRD = (0, 3, 4, 1, 5, 2), (0, 1, 4, 2, 5, 3)
"""Orders of [N, b, b, C, H, W], and of [N, C, b, b, H, W], that put each block beside its pixel."""
BLOCKS_FIRST, CHANNELS_FIRST = (0, 3, 5, 1, 2, 4), (0, 1, 3, 5, 2, 4)
"""Orders of [N, C, H, b, W, b] that put the places in a block before the channels (as SpaceToDepth does), or behind."""


@rule(
    pattern="""
        r = Reshape(x, apart: partial)
        t = Transpose(r)<perm=@perm>
        y = Reshape(t, whole: partial)
    """,
    rewrite="y = DepthToSpace(x)<blocksize=@blocksize, mode=@mode>",
    exactness="exact",
    sets=("fusion",),
    opset=(11, None),
)
def fuse_depth_to_space(m: Match) -> Replacement:
    """A Reshape that takes blocks out of the channels, a Transpose and a Reshape that puts them into rows and columns.

    Algebra
        [N, b, b, C, H, W] put as [N, C, H, b, W, b] is DepthToSpace in mode DCR, [N, C, b, b, H, W] in mode CRD (torch's
        PixelShuffle)

    Declines when
        the opset is below 11;
        the order is another one, or a size is not certainly what it must be;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N,4,H,W] x) => (float[N,1,H2,W2] y) {
                one = Constant<value = int64[1] {1}>()
                two = Constant<value = int64[1] {2}>()
                three = Constant<value = int64[1] {3}>()
                four = Constant<value = int64[1] {4}>()
                batch = Shape<start = 0, end = 1>(x)
                h = Shape<start = 2, end = 3>(x)
                w = Shape<start = 3, end = 4>(x)
                h2 = Mul(h, two)
                w2 = Mul(w, two)
                apart = Concat<axis = 0>(batch, one, two, two, h, w)
                whole = Concat<axis = 0>(batch, one, h2, w2)
                r = Reshape(x, apart)
                t = Transpose<perm = [0, 1, 4, 2, 5, 3]>(r)
                y = Reshape(t, whole)
            }
        after:
            g (float[N,4,H,W] x) => (float[N,1,H2,W2] y) {
                y = DepthToSpace<blocksize = 2, mode = "CRD">(x)
            }
    """
    modes: dict[Any, tuple[str, int, int]] = {DCR: ("DCR", 1, 3), CRD: ("CRD", 2, 1)}
    found = modes.get(tuple(m.attr("perm")))
    if found is None:
        raise Decline
    mode, block_axis, channel_axis = found
    shape, apart, whole = _shapes(m.x, m.r, m.y)
    block = _block(apart[block_axis], apart[block_axis + 1])
    wanted = [shape[0], apart[channel_axis], dims.mul(shape[2], block), dims.mul(shape[3], block)]
    kept = [(0, 0), (2, 4), (3, 5)]
    if not all(same(shape[a], apart[b]) for a, b in kept) or not same_shape(whole, wanted):
        raise Decline(f"'{m.r.name}' or '{m.y.name}' has not certainly the sizes of a DepthToSpace")
    return Replacement(blocksize=block, mode=mode)


@rule(
    pattern="""
        r = Reshape(x, apart: partial)
        t = Transpose(r)<perm=@perm>
        y = Reshape(t, whole: partial)
    """,
    rewrite="y = SpaceToDepth(x)<blocksize=@blocksize>",
    exactness="exact",
    sets=("fusion",),
)
def fuse_space_to_depth(m: Match) -> Replacement:
    """A Reshape that takes blocks out of rows and columns, a Transpose and a Reshape that puts them before the channels.

    Algebra
        [N, C, H, b, W, b] put as [N, b, b, C, H, W] is SpaceToDepth. torch's PixelUnshuffle puts the block behind the
        channels: the same where there is one channel; else fuse_pixel_unshuffle_into_conv may help

    Declines when
        the order is another one, or a size is not certainly what it must be;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N,3,4,6] x) => (float[N,12,2,3] y) {
                apart = Constant<value = int64[6] {0, 3, 2, 2, 3, 2}>()
                whole = Constant<value = int64[4] {0, 12, 2, 3}>()
                r = Reshape(x, apart)
                t = Transpose<perm = [0, 3, 5, 1, 2, 4]>(r)
                y = Reshape(t, whole)
            }
        after:
            g (float[N,3,4,6] x) => (float[N,12,2,3] y) {
                y = SpaceToDepth<blocksize = 2>(x)
            }
    """
    block = _unshuffled(m.x, m.r, m.y, m.attr("perm"))
    if tuple(m.attr("perm")) == CHANNELS_FIRST and not same(m.x.shape[1], 1):
        raise Decline("the channels come before the blocks")
    return Replacement(blocksize=block)


@rule(
    pattern="""
        r = Reshape(x, apart: partial)
        t = Transpose(r)<perm=[0, 1, 3, 5, 2, 4]>
        u = Reshape(t, whole: partial)
        y = Conv(u, w: const, b?)<group=1>
    """,
    rewrite="y = Conv(SpaceToDepth(x)<blocksize=@blocksize>, W, b)<@y>",
    exactness="rounding",
    sets=("fusion",),
    tag="reordered",
)
def fuse_pixel_unshuffle_into_conv(m: Match) -> Replacement:
    """PixelUnshuffle in front of a Conv is SpaceToDepth, and the Conv takes the channels in its order.

    Algebra
        PixelUnshuffle has channel c·b² + place where SpaceToDepth has place·C + c: the weight's input channels change
        places likewise

    Declines when
        the Conv has groups, or a weight that is not constant;
        a size is not certainly what it must be;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N,2,4,2] x) => (float[N,1,2,1] y) {
                apart = Constant<value = int64[6] {0, 2, 2, 2, 1, 2}>()
                whole = Constant<value = int64[4] {0, 8, 2, 1}>()
                w = Constant<value = float[1,8,1,1] {0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0}>()
                r = Reshape(x, apart)
                t = Transpose<perm = [0, 1, 3, 5, 2, 4]>(r)
                u = Reshape(t, whole)
                y = Conv(u, w)
            }
        after:
            g (float[N,2,4,2] x) => (float[N,1,2,1] y) {
                w = Constant<value = float[1,8,1,1] {0.0, 4.0, 1.0, 5.0, 2.0, 6.0, 3.0, 7.0}>()
                s = SpaceToDepth<blocksize = 2>(x)
                y = Conv(s, w)
            }
    """
    block = _unshuffled(m.x, m.r, m.u, CHANNELS_FIRST)
    weight, channels = floats(m.w), m.x.shape[1]
    if not isinstance(channels, int) or weight.shape[1] != channels * block * block:
        raise Decline(f"the number of channels of '{m.x.name}' is not known")
    places = np.arange(weight.shape[1]).reshape(channels, block * block).T.ravel()
    return Replacement(W=weight[:, places], blocksize=block)


@rule(
    pattern="""
        p0 = Slice(r0, s0: const, e0: const, a0: const, k0: const)
        p1 = Slice(r1, s1: const, e1: const, a1: const, k1: const)
        p2 = Slice(r2, s2: const, e2: const, a2: const, k2: const)
        p3 = Slice(r3, s3: const, e3: const, a3: const, k3: const)
        r0 = Slice(x, t0: const, f0: const, b0: const, l0: const) | x
        r1 = Slice(x, t1: const, f1: const, b1: const, l1: const) | x
        r2 = Slice(x, t2: const, f2: const, b2: const, l2: const) | x
        r3 = Slice(x, t3: const, f3: const, b3: const, l3: const) | x
        c = Concat(p0, p1, p2, p3)<axis=1>
        y = Conv(c, w: const, b?)<group=1>
    """,
    rewrite="y = Conv(SpaceToDepth(x)<blocksize=2>, W, b)<@y>",
    exactness="rounding",
    sets=("fusion",),
    opset=(10, None),
    tag="reordered",
)
def fuse_strided_slices_into_conv(m: Match) -> Replacement:
    """Every other pixel in both directions, from four places, side by side before a Conv (YOLOv5's Focus).

    Algebra
        the four are the channels of SpaceToDepth in some order; the weight's input channels change places likewise

    Declines when
        rows and columns are not certainly of an even number (ONNX Runtime's Concat takes empty operands of any shape: a
        single row passes it, but not SpaceToDepth);
        a Slice is not one of the four, or they are not all different;
        the Conv has groups, or a weight that is not constant;
        the inner results are used elsewhere.

    Example
        before:
            g (float[1,1,4,2] x) => (float[1,1,2,1] y) {
                zero = Constant<value = int64[2] {0, 0}>()
                down = Constant<value = int64[2] {1, 0}>()
                right = Constant<value = int64[2] {0, 1}>()
                one = Constant<value = int64[2] {1, 1}>()
                end = Constant<value = int64[2] {9223372036854775807, 9223372036854775807}>()
                axes = Constant<value = int64[2] {2, 3}>()
                two = Constant<value = int64[2] {2, 2}>()
                w = Constant<value = float[1,4,1,1] {0.0, 1.0, 2.0, 3.0}>()
                a = Slice(x, zero, end, axes, two)
                b = Slice(x, down, end, axes, two)
                d = Slice(x, right, end, axes, two)
                e = Slice(x, one, end, axes, two)
                c = Concat<axis = 1>(a, b, d, e)
                y = Conv(c, w)
            }
        after:
            g (float[1,1,4,2] x) => (float[1,1,2,1] y) {
                w = Constant<value = float[1,4,1,1] {0.0, 2.0, 1.0, 3.0}>()
                s = SpaceToDepth<blocksize = 2>(x)
                y = Conv(s, w)
            }
    """
    order = _quarters(m)
    weight = floats(m.w)
    blocks = np.split(weight, 4, axis=1)
    return Replacement(W=np.concatenate([blocks[order.index(place)] for place in range(4)], axis=1))


@rule(
    pattern="""
        p0 = Slice(r0, s0: const, e0: const, a0: const, k0: const)
        p1 = Slice(r1, s1: const, e1: const, a1: const, k1: const)
        p2 = Slice(r2, s2: const, e2: const, a2: const, k2: const)
        p3 = Slice(r3, s3: const, e3: const, a3: const, k3: const)
        r0 = Slice(x, t0: const, f0: const, b0: const, l0: const) | x
        r1 = Slice(x, t1: const, f1: const, b1: const, l1: const) | x
        r2 = Slice(x, t2: const, f2: const, b2: const, l2: const) | x
        r3 = Slice(x, t3: const, f3: const, b3: const, l3: const) | x
        y = Concat(p0, p1, p2, p3)<axis=1>
    """,
    rewrite="y = SpaceToDepth(x)<blocksize=2>",
    exactness="exact",
    sets=("fusion",),
    opset=(10, None),
)
def fuse_strided_slices(m: Match) -> Replacement:
    """Every other pixel in both directions, from four places row by row, side by side, is one SpaceToDepth.

    Algebra
        SpaceToDepth puts the place in the block before the channel, row before column

    Declines when
        rows and columns are not certainly of an even number;
        a Slice is not one of the four, or they stand in another order (fuse_strided_slices_into_conv may help);
        the inner results are used elsewhere.

    Example
        before:
            g (float[1,3,4,2] x) => (float[1,12,2,1] y) {
                zero = Constant<value = int64[2] {0, 0}>()
                down = Constant<value = int64[2] {1, 0}>()
                right = Constant<value = int64[2] {0, 1}>()
                one = Constant<value = int64[2] {1, 1}>()
                end = Constant<value = int64[2] {9223372036854775807, 9223372036854775807}>()
                axes = Constant<value = int64[2] {2, 3}>()
                two = Constant<value = int64[2] {2, 2}>()
                a = Slice(x, zero, end, axes, two)
                b = Slice(x, right, end, axes, two)
                c = Slice(x, down, end, axes, two)
                d = Slice(x, one, end, axes, two)
                y = Concat<axis = 1>(a, b, c, d)
            }
        after:
            g (float[1,3,4,2] x) => (float[1,12,2,1] y) {
                y = SpaceToDepth<blocksize = 2>(x)
            }
    """
    order = _quarters(m)
    if order != [0, 1, 2, 3]:
        raise Decline(f"the quarters stand in the order {order}")
    return Replacement()


def _quarters(m: Match) -> list[int]:
    """Which place (0 to 3, row by row) of a 2x2 block each of four Slices takes. Raises Decline for other Slices."""
    if m.x.rank != 4:
        raise Decline(f"'{m.x.name}' is not known to be of rank 4")
    _require_floats(m.x)
    if not all(dims.divides(2, size) for size in m.x.shape[2:]):
        raise Decline(f"'{m.x.name}' has not certainly an even number of rows and columns")
    found = []
    for k in range(4):
        starts: dict[int, int] = {}
        for names in ("seak", "tfbl"):
            start, end, axes, steps = (getattr(m, f"{name}{k}") for name in names)
            if start is not None:
                _read_slice(m.x, start, end, axes, steps, starts)
        if set(starts) != {2, 3}:
            raise Decline(f"Slice {k} does not step along rows and columns")
        found.append(2 * starts[2] + starts[3])
    if sorted(found) != [0, 1, 2, 3]:
        raise Decline(f"the Slices take the places {found}")
    return found


def _read_slice(x: Operand, start: Operand, end: Operand, axes: Operand, steps: Operand, into: dict[int, int]) -> None:
    """Add the axes that a Slice steps along, with where it starts. Raises Decline where it is not every other element."""
    for first, last, axis, step in zip(ints(start), ints(end), ints(axes), ints(steps), strict=True):
        place = axis % 4
        size = x.shape[place] if x.shape is not None else None
        whole = last >= FAR or (isinstance(size, int) and last >= size)
        if place in into or step != 2 or first not in (0, 1) or not whole:
            raise Decline(f"a Slice from {first} to {last} by {step} along axis {axis} is no half of it")
        into[place] = first


def _shapes(*operands: Operand) -> list[Any]:
    """Shapes of [N, C, H, W], the same with blocks apart, and what becomes of it. Raises Decline for other ranks."""
    found = [operand.shape for operand in operands]
    if [None if s is None else len(s) for s in found] != [4, 6, 4]:
        raise Decline
    _require_floats(operands[0])
    return found


def _require_floats(x: Operand) -> None:
    """That ONNX Runtime has kernels for x. Raises Decline."""
    if x.dtype not in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE):
        raise Decline(f"'{x.name}' is not known to hold floats")


def _block(height: Any, width: Any) -> int:
    if not isinstance(height, int) or height != width or height < 2:
        raise Decline(f"blocks of {height} rows and {width} columns")
    return height


def _unshuffled(x: Operand, r: Operand, y: Operand, perm: Any) -> int:
    """The size of the blocks that are taken out of rows and columns. Raises Decline where x is not cut so."""
    if tuple(perm) not in (BLOCKS_FIRST, CHANNELS_FIRST):
        raise Decline
    shape, apart, whole = _shapes(x, r, y)
    block = _block(apart[3], apart[5])
    cut = [shape[0], shape[1], dims.mul(apart[2], block), dims.mul(apart[4], block)]
    wanted = [shape[0], dims.mul(shape[1], block * block), apart[2], apart[4]]
    if not same_shape(shape, cut) or not same_shape(apart[:2], shape[:2]) or not same_shape(whole, wanted):
        raise Decline(f"'{r.name}' or '{y.name}' has not certainly the sizes of a SpaceToDepth")
    return block

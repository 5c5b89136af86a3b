"""Rotary position embeddings that are written out with halves, or with pairs, of a vector: one RotaryEmbedding."""

from __future__ import annotations

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._arrays import Floats, finite
from ._conditions import require_single_or_half
from ._dims import FAR, ints, same_shape


@rule(
    pattern="""
        a = Slice(x, s1: const, e1: const, a1: const, k1?: const)
        b = Slice(x, s2: const, e2: const, a2: const, k2?: const)
        turned = Concat(Neg(b), a)<axis=@axis>
        y = Add(Mul(x, cos: const), Mul(turned, sin: const))
    """,
    rewrite="y = RotaryEmbedding(x, Cos, Sin)<interleaved=0>",
    exactness="rounding",
    sets=("fusion",),
    opset=(23, None),
    may_grow=True,
    tag="halves",
)
def fuse_rotary_embedding(m: Match) -> Replacement:
    """A vector turned by constant angles, its second half being the other coordinates, is one RotaryEmbedding.

    Algebra
        x·cos + [-x₂, x₁]·sin, with x = [x₁, x₂] and both halves of cos, and of sin, the same

    Declines when
        the opset is below 23, or x is double (ONNX Runtime has no such kernel); x is not of rank 4;
        the batch is unknown (the tables need one row for each), or other sizes are not certainly what they must be;
        the slices are not the halves; the halves of cos or of sin differ, or are not finite;
        the inner results are used elsewhere.

    Example
        before:
            g (float[1,3,1,4] x) => (float[1,3,1,4] y) {
                zero = Constant<value = int64[1] {0}>()
                two = Constant<value = int64[1] {2}>()
                end = Constant<value = int64[1] {4}>()
                axis = Constant<value = int64[1] {3}>()
                cos = Constant<value = float[1,4] {0.5, 0.6, 0.5, 0.6}>()
                sin = Constant<value = float[1,4] {0.7, 0.8, 0.7, 0.8}>()
                a = Slice(x, zero, two, axis)
                b = Slice(x, two, end, axis)
                n = Neg(b)
                t = Concat<axis = -1>(n, a)
                p = Mul(x, cos)
                q = Mul(t, sin)
                y = Add(p, q)
            }
        after:
            g (float[1,3,1,4] x) => (float[1,3,1,4] y) {
                cos = Constant<value = float[1,1,2] {0.5, 0.6}>()
                sin = Constant<value = float[1,1,2] {0.7, 0.8}>()
                y = RotaryEmbedding<interleaved = 0>(x, cos, sin)
            }
    """
    size = _vector(m.x)
    _require_halves(m, size)
    return Replacement(Cos=_table(m.cos, m.x, False), Sin=_table(m.sin, m.x, False))


@rule(
    pattern="""
        a = Slice(x, s1: const, e1: const, a1: const, k1?: const)
        b = Slice(x, s2: const, e2: const, a2: const, k2?: const)
        turned = Concat(Neg(b), a)<axis=@axis>
        angles = Concat(f, f)<axis=@joined>
        c = Cos(angles)
        s = Sin(angles)
        cos = Unsqueeze(c, 1)
        sin = Unsqueeze(s, 1)
        y = Add(Mul(x, cos), Mul(turned, sin))
    """,
    rewrite="""
        angles = Concat(f, f)<axis=@joined>
        c = Cos(angles)
        s = Sin(angles)
        cos = Unsqueeze(c, 1)
        sin = Unsqueeze(s, 1)
        y = RotaryEmbedding(x, Cos(f), Sin(f))<interleaved=0>
    """,
    exactness="rounding",
    sets=("fusion",),
    opset=(23, None),
)
def fuse_computed_rotary_embedding(m: Match) -> Replacement:
    """A vector turned by computed angles, its second half being the other coordinates, is one RotaryEmbedding.

    The nodes that compute the angles of whole vectors stay for those that read them, and go where nobody does.

    Algebra
        x·cos + [-x₂, x₁]·sin, with x = [x₁, x₂], cos = cos([f, f]) and sin = sin([f, f])

    Declines when
        the opset is below 23, or x is double (ONNX Runtime has no such kernel); x is not of rank 4;
        the angles have not certainly the batch, the rows and half the size of x;
        the slices are not the halves; the angles of the halves are not the same tensor;
        the inner results, but for sines and cosines, are used elsewhere.

    Example
        before:
            g (float[N,3,T,4] x, float[N,T,2] f) => (float[N,3,T,4] y) {
                zero = Constant<value = int64[1] {0}>()
                one = Constant<value = int64[1] {1}>()
                two = Constant<value = int64[1] {2}>()
                end = Constant<value = int64[1] {9223372036854775807}>()
                axis = Constant<value = int64[1] {3}>()
                angles = Concat<axis = -1>(f, f)
                c = Cos(angles)
                s = Sin(angles)
                cos = Unsqueeze(c, one)
                sin = Unsqueeze(s, one)
                a = Slice(x, zero, two, axis)
                b = Slice(x, two, end, axis)
                n = Neg(b)
                t = Concat<axis = -1>(n, a)
                p = Mul(x, cos)
                q = Mul(t, sin)
                y = Add(p, q)
            }
        after:
            g (float[N,3,T,4] x, float[N,T,2] f) => (float[N,3,T,4] y) {
                c = Cos(f)
                s = Sin(f)
                y = RotaryEmbedding<interleaved = 0>(x, c, s)
            }
    """
    size = _vector(m.x)
    _require_halves(m, size)
    if m.axis("angles") != 2 or not same_shape(m.f.shape, (m.x.shape[0], m.x.shape[2], size // 2)):
        raise Decline(f"'{m.f.name}' has not certainly the batch, the rows and half the size of '{m.x.name}'")
    return Replacement()


@rule(
    pattern="""
        b = Slice(x, s2: const, e2: const, a2: const, k2: const)
        a = Slice(x, s1: const, e1: const, a1: const, k1: const)
        pairs = Concat(Unsqueeze(Neg(b), u2: const), Unsqueeze(a, u1: const))<axis=@axis>
        turned = Reshape(pairs, flat: partial)
        y = Add(Mul(x, cos: const), Mul(turned, sin: const))
    """,
    rewrite="y = RotaryEmbedding(x, Cos, Sin)<interleaved=1>",
    exactness="rounding",
    sets=("fusion",),
    opset=(23, None),
    may_grow=True,
    tag="halves",
)
def fuse_interleaved_rotary_embedding(m: Match) -> Replacement:
    """A vector turned by constant angles, its coordinates side by side, is one RotaryEmbedding.

    Algebra
        x·cos + [-x₁, x₀, -x₃, x₂ …]·sin, with the same cos, and sin, for each pair

    Declines when
        the opset is below 23, or x is double (ONNX Runtime has no such kernel); x is not of rank 4;
        the batch is unknown (the tables need one row for each), or other sizes are not certainly what they must be;
        the slices are not every other element, or they are not put side by side;
        the cos or sin of a pair differ, or are not finite;
        the inner results are used elsewhere.

    Example
        before:
            g (float[1,3,1,4] x) => (float[1,3,1,4] y) {
                zero = Constant<value = int64[1] {0}>()
                one = Constant<value = int64[1] {1}>()
                two = Constant<value = int64[1] {2}>()
                end = Constant<value = int64[1] {9223372036854775807}>()
                axis = Constant<value = int64[1] {3}>()
                last = Constant<value = int64[1] {-1}>()
                flat = Constant<value = int64[4] {1, 3, 1, 4}>()
                cos = Constant<value = float[1,4] {0.5, 0.5, 0.6, 0.6}>()
                sin = Constant<value = float[1,4] {0.7, 0.7, 0.8, 0.8}>()
                b = Slice(x, one, end, axis, two)
                a = Slice(x, zero, end, axis, two)
                n = Neg(b)
                n1 = Unsqueeze(n, last)
                a1 = Unsqueeze(a, last)
                s = Concat<axis = -1>(n1, a1)
                t = Reshape(s, flat)
                p = Mul(x, cos)
                q = Mul(t, sin)
                y = Add(p, q)
            }
        after:
            g (float[1,3,1,4] x) => (float[1,3,1,4] y) {
                cos = Constant<value = float[1,1,2] {0.5, 0.6}>()
                sin = Constant<value = float[1,1,2] {0.7, 0.8}>()
                y = RotaryEmbedding<interleaved = 1>(x, cos, sin)
            }
    """
    size = _vector(m.x)
    for number, first in ((1, 0), (2, 1)):
        if _part(m, number, size) != (first, size, 2) or ints(getattr(m, f"u{number}")) not in ([-1], [4]):
            raise Decline("the slices are not every other element")
    if m.attr("axis") not in (-1, 4) or not same_shape(m.turned.shape, m.x.shape):
        raise Decline("the pairs are not put side by side")
    return Replacement(Cos=_table(m.cos, m.x, True), Sin=_table(m.sin, m.x, True))


def _vector(x: Operand) -> int:
    """The size of the vectors of x [N, heads, rows, size]. Raises Decline where RotaryEmbedding does not take x."""
    require_single_or_half(x, "RotaryEmbedding")
    if x.shape is None or len(x.shape) != 4:
        raise Decline(f"'{x.name}' is not known to be of rank 4")
    size = x.shape[3]
    if not isinstance(size, int) or size % 2:
        raise Decline(f"the vectors of '{x.name}' are of size {size}")
    return size


def _require_halves(m: Match, size: int) -> None:
    """That the Slices are the first and the second half, and the Concat joins them again. Raises Decline."""
    half = size // 2
    if _part(m, 1, size) != (0, half, 1) or _part(m, 2, size) != (half, size, 1) or m.axis("turned") != 3:
        raise Decline("the slices are not the halves of the vector")


def _part(m: Match, number: int, size: int) -> tuple[int, int, int]:
    """(start, end, step) of a Slice along the vectors. Raises Decline for one along other axes."""
    start, end, axes, steps = (getattr(m, f"{name}{number}") for name in "seak")
    if [axis % 4 for axis in ints(axes)] != [3]:
        raise Decline(f"a Slice along the axes {ints(axes)}")
    first, last = ints(start)[0], ints(end)[0]
    first = first + size if first < 0 else first
    last = size if last >= min(size, FAR) else last + size if last < 0 else last
    return first, last, 1 if steps is None else ints(steps)[0]


def _table(operand: Operand, x: Operand, interleaved: bool) -> Floats:
    """cos or sin of each coordinate pair, [N, rows, size / 2]. Raises Decline where the two of a pair differ."""
    batch, _, *vectors = x.shape or (None, None)
    if not isinstance(batch, int):
        raise Decline(f"the batch of '{x.name}' is unknown")
    whole = finite(operand)
    if whole.ndim not in (2, 3, 4) or list(whole.shape[-2:]) != vectors or any(d != 1 for d in whole.shape[:-2]):
        raise Decline(f"'{operand.name}' of shape {list(whole.shape)} is not a row for each of '{x.name}'")
    rows = whole.reshape(whole.shape[-2:])
    one, other = (rows[:, ::2], rows[:, 1::2]) if interleaved else np.split(rows, 2, axis=1)
    if (one != other).any():
        raise Decline(f"the coordinates of a pair have different numbers in '{operand.name}'")
    return np.broadcast_to(one, (batch, *one.shape)).copy()

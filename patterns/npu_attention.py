"""Set "npu": Attention and RotaryEmbedding as products, sums and a Softmax."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from surgeon_passes import Decline, Match, Replacement, rule

from ._dims import same
from ._masks import require_open_rows

SETS = ("npu",)
WIDE = (TensorProto.FLOAT, TensorProto.DOUBLE)
HEADS_LAST = "Transpose(Reshape({x}, {shape}))<perm=[0, 2, 1, 3]>"


def _attention(heads: bool, mask: bool) -> str:
    """The rewrite of Attention; with ``heads`` its operands are [batch, sequence, heads·size]."""
    q, k, v = (HEADS_LAST.format(x=x, shape=s) if heads else x for x, s in (("q", "Q"), ("k", "K"), ("v", "K")))
    scores = f"MatMul(Mul({q}, Scale), Transpose({k})<perm=[0, 1, 3, 2]>)"
    scores = f"Add({scores}, mask)" if mask else scores
    found = f"MatMul(Softmax({scores})<axis=-1>, {v})"
    return f"y = Reshape(Transpose({found})<perm=[0, 2, 1, 3]>, Joined)" if heads else f"y = {found}"


@rule(
    pattern="y = Attention(q, k, v, mask?, past_key?, past_value?, sizes?)",
    rewrite={
        "four": _attention(heads=False, mask=False),
        "four_masked": _attention(heads=False, mask=True),
        "three": _attention(heads=True, mask=False),
        "three_masked": _attention(heads=True, mask=True),
    },
    exactness="rounding",
    sets=SETS,
    opset=(23, None),
    may_grow=True,
    opposes=("fuse_attention",),
)
def decompose_attention(m: Match) -> Replacement:
    """Attention is two MatMuls with a Softmax between them.

    Algebra
        softmax(scale·q·kᵀ + mask)·v, scale = 1/√size of a head unless it is given

    Declines when
        there is a cache of keys and values, a causal or boolean mask, a window, a softcap, or another use of
        the scores;
        the mask may hold -infinity (a row that is all masked is 0 in ONNX Runtime's Attention, and NaN in Softmax), or
        does not have certainly as many columns as there are keys;
        query and key do not have equally many heads, or the size of a head is unknown;
        q is of half precision, where the scores may overflow.

    Example
        before:
            g (float[B,2,T,4] q, float[B,2,S,4] k, float[B,2,S,4] v) => (float[B,2,T,4] y) {
                y = Attention(q, k, v)
            }
        after:
            g (float[B,2,T,4] q, float[B,2,S,4] k, float[B,2,S,4] v) => (float[B,2,T,4] y) {
                scale = Constant<value = float {0.5}>()
                s = Mul(q, scale)
                t = Transpose<perm = [0, 1, 3, 2]>(k)
                p = MatMul(s, t)
                w = Softmax<axis = -1>(p)
                y = MatMul(w, v)
            }
    """
    _require_plain(m)
    rank = m.q.rank
    if rank not in (3, 4) or m.k.rank != rank or m.v.rank != rank:
        raise Decline("the ranks of q, k and v are unknown, or not 3 or 4 in all")
    heads, size = _heads(m, rank)
    if m.mask is not None:
        _require_mask(m)
    given = m.y.attr("scale")
    scale = 1 / np.sqrt(size) if given is None else float(given)
    outcome = ("three" if rank == 3 else "four") + ("" if m.mask is None else "_masked")
    shape = [0, 0, heads, -1]
    return Replacement(outcome, Scale=scale, Q=shape, K=shape, Joined=[0, 0, -1])


def _require_plain(m: Match) -> None:
    """Raise Decline for what the rewrite does not say."""
    if m.q.dtype not in WIDE:
        raise Decline(f"'{m.q.name}' is of half precision, or of unknown type")
    if any(t is not None for t in (m.past_key, m.past_value, m.sizes)):
        raise Decline("it keeps keys and values, or masks by lengths")
    if m.y.attr("is_causal") or m.y.attr("softcap"):
        raise Decline("it is causal, or caps its scores")
    if any(m.y.attr(side) not in (None, -1) for side in ("left_window_size", "right_window_size")):
        raise Decline("a query sees the keys of a window only")
    precision = m.y.attr("softmax_precision")
    if precision and precision != m.q.dtype:
        raise Decline("its Softmax is of another precision")
    if m.mask is not None and m.mask.dtype != m.q.dtype:
        raise Decline(f"'{m.mask.name}' is not of the type of '{m.q.name}'")
    if m.mask is not None and m.mask.rank is None:
        raise Decline(f"the rank of '{m.mask.name}' is unknown")


def _require_mask(m: Match) -> None:
    """That Add takes the mask as Attention does, at every value it may have. Raises Decline."""
    columns, keys = m.mask.shape, m.k.shape
    if not columns or keys is None or not same(columns[-1], keys[-2]):
        raise Decline(f"the mask '{m.mask.name}' has not certainly as many columns as there are keys")
    require_open_rows(m.mask)


def _heads(m: Match, rank: int) -> tuple[int, int]:
    """Heads, and the size of one. Raises Decline where they are unknown, or fewer for keys than for queries."""
    dims = [operand.shape for operand in (m.q, m.k, m.v)]
    if rank == 4:
        counts = {shape[1] for shape in dims}
        size = dims[0][3]
    else:
        counts = {m.y.attr("q_num_heads"), m.y.attr("kv_num_heads")}
        whole = dims[0][2]
        heads = m.y.attr("q_num_heads")
        size = whole // heads if isinstance(whole, int) and heads else None
    if len(counts) > 1 or not all(isinstance(c, int) and c for c in counts):
        raise Decline("query and key are not known to have equally many heads")
    if not isinstance(size, int) or size == 0:
        raise Decline("the size of a head is unknown")
    return int(counts.pop()), size


@rule(
    pattern="y = RotaryEmbedding(x, cos, sin)",
    rewrite="""
        a = Slice(x, Zero, Half, Axis)
        b = Slice(x, Half, Size, Axis)
        c = Unsqueeze(cos, One)
        s = Unsqueeze(sin, One)
        y = Concat(Sub(Mul(a, c), Mul(b, s)), Add(Mul(a, s), Mul(b, c)))<axis=3>
    """,
    exactness="rounding",
    sets=SETS,
    opset=(23, None),
    may_grow=True,
    opposes=(
        "fuse_rotary_embedding",
        "fuse_computed_rotary_embedding",
        "fuse_interleaved_rotary_embedding",
    ),
)
def decompose_rotary_embedding(m: Match) -> Replacement:
    """RotaryEmbedding turns the two halves of each head by an angle.

    Algebra
        [a, b] -> [a·cos - b·sin, a·sin + b·cos], a and b the halves of the last axis

    Declines when
        x is not [batch, heads, sequence, size] with a known size, or only a part of it is turned;
        the halves are interleaved, or positions pick from the caches.

    Example
        before:
            g (float[B,2,T,4] x, float[B,T,2] cos, float[B,T,2] sin) => (float[B,2,T,4] y) {
                y = RotaryEmbedding(x, cos, sin)
            }
        after:
            g (float[B,2,T,4] x, float[B,T,2] cos, float[B,T,2] sin) => (float[B,2,T,4] y) {
                zero = Constant<value = int64[1] {0}>()
                half = Constant<value = int64[1] {2}>()
                size = Constant<value = int64[1] {4}>()
                axis = Constant<value = int64[1] {3}>()
                one = Constant<value = int64[1] {1}>()
                a = Slice(x, zero, half, axis)
                b = Slice(x, half, size, axis)
                c = Unsqueeze(cos, one)
                s = Unsqueeze(sin, one)
                ac = Mul(a, c)
                bs = Mul(b, s)
                real = Sub(ac, bs)
                as = Mul(a, s)
                bc = Mul(b, c)
                imaginary = Add(as, bc)
                y = Concat<axis = 3>(real, imaginary)
            }
    """
    if m.x.rank != 4 or not isinstance(m.x.shape[3], int):
        raise Decline(f"'{m.x.name}' is not [batch, heads, sequence, size] with a known size")
    size = m.x.shape[3]
    if m.y.attr("interleaved") or m.y.attr("rotary_embedding_dim") not in (0, size):
        raise Decline("the halves are interleaved, or only a part of the size is turned")
    if m.cos.rank != 3 or m.sin.rank != 3:
        raise Decline("positions pick from the caches, or their rank is unknown")
    return Replacement(Zero=[0], Half=[size // 2], Size=[size], Axis=[3], One=[1])

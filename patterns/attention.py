"""Scaled dot-product attention that is written out with MatMul and Softmax: one Attention."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._conditions import number
from ._dims import same, same_shape
from ._masks import leaves, require_open_rows

HEADS_FIRST, ROWS_FIRST = (0, 1, 3, 2), (0, 2, 3, 1)
"""How keys [N, heads, rows, size], and keys [N, rows, heads, size], are put for the product with the queries."""


@rule(
    pattern="""
        queries = Mul(q, cq: const) | Div(q, dq: const) | q
        turned = Transpose(k)<perm=@perm>
        keys = Mul(turned, ck: const) | Div(turned, dk: const) | turned
        product = MatMul(queries, keys)
        scaled = Mul(product, cs: const) | Div(product, ds: const) | product
        masked = Add(scaled, mask) | scaled
        s = Softmax(masked)
        y = MatMul(s, v)
    """,
    rewrite={
        "attention": "y = Attention(q, k, v, mask)<scale=@scale>",
        "turn": "y = Attention(q, Transpose(k)<perm=[0, 2, 1, 3]>, v, mask)<scale=@scale>",
    },
    exactness="rounding",
    sets=("fusion",),
    opset=(23, None),
)
def fuse_attention(m: Match) -> Replacement:
    """Softmax of the scaled product of queries and keys, with or without a mask, times values, is one Attention.

    Algebra
        softmax(q·kᵀ·scale + mask)·v; factors of queries, keys and product multiply to the scale

    Declines when
        the opset is below 23; queries, keys and values are not of rank 4 with the same batch and heads, certainly;
        they are double: there ONNX Runtime's Attention takes 1.4 times the time;
        a factor is not one positive number; Softmax is over another axis;
        the mask does not have certainly the product's rows and columns (ONNX Runtime does not broadcast these), or may
        hold -infinity: a row that is all masked is NaN where it is written out, and 0 in Attention;
        the mask is of half precision and may be below -16 in a whole row: the sum there has lost the scores;
        the inner results are used elsewhere.

    Example
        before:
            g (float[1,2,3,4] q, float[1,2,5,4] k, float[1,2,5,6] v) => (float[1,2,3,6] y) {
                half = Constant<value = float {0.5}>()
                t = Transpose<perm = [0, 1, 3, 2]>(k)
                p = MatMul(q, t)
                c = Mul(p, half)
                s = Softmax(c)
                y = MatMul(s, v)
            }
        after:
            g (float[1,2,3,4] q, float[1,2,5,4] k, float[1,2,5,6] v) => (float[1,2,3,6] y) {
                y = Attention<scale = 0.5>(q, k, v)
            }
    """
    order = tuple(m.attr("perm"))
    if order not in (HEADS_FIRST, ROWS_FIRST):
        raise Decline
    _require_same_heads(m)
    if m.axis("s") != 3:
        raise Decline("Softmax is not over the last axis")
    if m.mask is not None:
        _require_mask(m)
    return Replacement("attention" if order == HEADS_FIRST else "turn", scale=_scale(m))


def _require_same_heads(m: Match) -> None:
    """That the products broadcast nothing. Raises Decline."""
    shapes = [operand.shape for operand in (m.q, m.turned, m.v)]
    if any(shape is None or len(shape) != 4 for shape in shapes):
        raise Decline("queries, keys and values are not known to be of rank 4")
    q, k, v = shapes
    if not same_shape(q[:2], k[:2]) or not same_shape(q[:2], v[:2]):
        raise Decline("queries, keys and values have not certainly the same batch and heads")
    if m.q.dtype not in (TensorProto.FLOAT, TensorProto.FLOAT16):
        raise Decline(f"'{m.q.name}' is double, where Attention is slower, or of unknown type")


def _scale(m: Match) -> float:
    factors = [number(f) for f in (m.cq, m.ck, m.cs) if f is not None]
    factors += [1 / number(f) if number(f) else 0.0 for f in (m.dq, m.dk, m.ds) if f is not None]
    if any(f <= 0 for f in factors):
        raise Decline(f"the factors {factors} are not all positive")
    if any(f.value.ndim > 4 for f in (m.cq, m.ck, m.cs, m.dq, m.dk, m.ds) if f is not None):
        raise Decline("a factor raises the rank")
    return float(np.prod(factors))


def _require_mask(m: Match) -> None:
    """That Attention takes the mask as Add does, at every value it may have. Raises Decline."""
    mask, product = m.mask, m.product
    shape, wanted = mask.shape, product.shape
    if shape is None or wanted is None or not 2 <= len(shape) <= 4 or not same_shape(shape[-2:], wanted[-2:]):
        raise Decline(f"the mask '{mask.name}' has not certainly the rows and columns of the product")
    if any(d != 1 and not same(d, w) for d, w in zip(shape[-3::-1], wanted[-3::-1], strict=False)):
        raise Decline(f"the mask '{mask.name}' may enlarge the product")
    if mask.dtype != product.dtype:
        raise Decline(f"the type of the mask '{mask.name}' is unknown")
    require_open_rows(mask)
    if mask.dtype == TensorProto.FLOAT16:
        _require_small(mask)


LOWEST_HALF = -16
"""From here on half precision keeps less than six bits behind the point of what is added."""


def _require_small(mask: Operand) -> None:
    """That no row of a half precision mask is so far below zero all over that the sum loses the scores. Raises Decline.

    Attention adds in single precision, where they are not lost.
    """
    known = mask.value
    rows = [known.max(axis=-1)] if isinstance(known, np.ndarray) else leaves(mask) or []
    if any((row < LOWEST_HALF).any() for row in rows):
        raise Decline(
            f"a row of the mask '{mask.name}' may be below {LOWEST_HALF}: half precision loses the scores there"
        )

"""Constant Mul, Div, Add and Sub after a linear operator go into its weight and bias.

Only constants that hold one number an output channel, or one number at all, are such: broadcasting aligns from the right,
so that a constant [C] after a Conv scales columns, and [1, C, H, W] differs from place to place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Replacement, rule

from ._arrays import Affine, along, channel_vector, constant_affine, finite, output_channels, product, scale_outputs


def _affine(m: Match, channels: int, axis: int, rank: int) -> Affine:
    """What ``y`` does to ``c``, with the constant ``k`` on either side."""
    k = channel_vector(m.k, channels, axis, rank)
    return constant_affine(m.y.op, k, m.k.name, from_constant=m.y.node.input(0) is not m.c.tensor)


def _require_rank(m: Match, *constants: Any) -> None:
    """A constant of more than one dim must not be what gives the result its rank."""
    for constant in constants:
        if constant.rank > 1 and (m.x.rank is None or m.x.rank < constant.rank):
            known = "unknown" if m.x.rank is None else m.x.rank
            raise Decline(f"'{constant.name}' may raise the rank of the result: that of '{m.x.name}' is {known}")


def _require_own_weight(m: Match, affine: Affine) -> None:
    if affine.scales and len(m.w.consumers) > 1:
        raise Decline(f"the weight '{m.w.name}' has other users: scaling it would keep a second copy")


@rule(
    pattern="""
        c = Conv|ConvTranspose(x, w: const, b?: const)
        y = Mul|Div|Add|Sum|Sub(c, k: const) | Sub(k: const, c)
    """,
    rewrite="y = @c(x, W, B)<@c>",
    exactness="rounding",
    sets=("fusion",),
    tag="scaled",
)
def fold_constant_into_conv(m: Match) -> Replacement:
    """A constant multiplied with, or added to, the output channels of a Conv or ConvTranspose goes into weight and bias.

    Algebra
        k·(w*x + b) = (k·w)*x + k·b;  (w*x + b) + k = w*x + (b + k);  k - (w*x + b) = (-w)*x + (k - b)

    Declines when
        the constant is not one number a channel ([C, 1, 1], [1, C, 1, 1] or a single one), raises rank or batch;
        it, the weight or the bias is empty or holds NaN or infinities; it divides by zero;
        weight or bias is not constant;
        the weight would have to be scaled and has other users.

    Example
        before:
            g (float[1,1,H,W] x) => (float[1,2,H,W] y) {
                w = Constant<value = float[2,1,1,1] {1.0, 2.0}>()
                b = Constant<value = float[2] {1.0, 1.0}>()
                k = Constant<value = float[2,1,1] {3.0, 4.0}>()
                c = Conv(x, w, b)
                y = Mul(k, c)
            }
        after:
            g (float[1,1,H,W] x) => (float[1,2,H,W] y) {
                w = Constant<value = float[2,1,1,1] {3.0, 8.0}>()
                b = Constant<value = float[2] {3.0, 4.0}>()
                y = Conv(x, w, b)
            }
    """
    if m.c.is_shared:  # asked before weights are worked out
        raise Decline(f"'{m.c.name}' is used elsewhere, too")
    op, group = m.c.op, m.c.attr("group")
    weight = finite(m.w)
    affine = _affine(m, output_channels(op, weight, group), axis=1, rank=weight.ndim)
    _require_own_weight(m, affine)
    bias = affine.bias(finite(m.b) if m.b is not None else None)
    return Replacement(W=scale_outputs(op, weight, affine.scale, group) if affine.scales else m.w, B=bias)


@rule(
    pattern="""
        c = Gemm(x, w: const, b?: const)
        y = Mul|Div|Add|Sum|Sub(c, k: const) | Sub(k: const, c)
    """,
    rewrite="y = Gemm(x, W, B)<@c, beta=1.0>",
    exactness="rounding",
    sets=("fusion",),
    opset=(7, None),
    tag="scaled",
)
def fold_constant_into_gemm(m: Match) -> Replacement:
    """A constant multiplied with, or added to, the columns of a Gemm goes into weight and bias.

    Algebra
        k·(alpha·A·W + beta·C) = alpha·A·(W·diag(k)) + k·beta·C, and likewise for sums; with transB the rows of W are scaled

    Declines when
        the constant, or the bias, is not one number a column, or raises the rank;
        it, the weight or the bias is empty or holds NaN or infinities; it divides by zero;
        weight or bias is not constant, or not floating;
        the weight would have to be scaled and has other users.

    Example
        before:
            g (float[N,1] x) => (float[N,2] y) {
                w = Constant<value = float[1,2] {1.0, 2.0}>()
                b = Constant<value = float[2] {1.0, 1.0}>()
                k = Constant<value = float[2] {3.0, 4.0}>()
                c = Gemm(x, w, b)
                y = Sub(k, c)
            }
        after:
            g (float[N,1] x) => (float[N,2] y) {
                w = Constant<value = float[1,2] {-1.0, -2.0}>()
                b = Constant<value = float[2] {2.0, 3.0}>()
                y = Gemm<beta = 1.0>(x, w, b)
            }
    """
    weight = finite(m.w)
    axis = 0 if m.c.attr("transB") else 1
    channels = weight.shape[axis]
    affine = _affine(m, channels, axis=1, rank=2)
    _require_own_weight(m, affine)
    bias = None
    if m.b is not None and m.c.attr("beta") != 0:
        bias = m.c.attr("beta") * channel_vector(m.b, channels, axis=1, rank=2)
    shifted = affine.bias(bias)
    if shifted is None and m.opset < 11:  # C is optional from opset 11 on
        shifted = np.zeros(channels)
    return Replacement(W=product(weight, along(affine.scale, axis, 2)) if affine.scales else m.w, B=shifted)


@rule(
    pattern="""
        c = MatMul(x, w: const)
        y = Mul|Div(c, k: const)
    """,
    rewrite="y = MatMul(x, W)",
    exactness="rounding",
    sets=("fusion",),
    tag="scaled",
)
def fold_constant_into_matmul(m: Match) -> Replacement:
    """A constant multiplied with the columns of a MatMul goes into its weight, in any rank.

    Algebra
        (A·w)·diag(k) = A·(w·diag(k))

    Declines when
        the constant is not one number a column, or may raise the rank;
        it, the weight or the bias is empty or holds NaN or infinities; it divides by zero;
        the weight is a vector, is not floating, or has other users.

    Example
        before:
            g (float[N,T,1] x) => (float[N,T,2] y) {
                w = Constant<value = float[1,2] {1.0, 2.0}>()
                k = Constant<value = float[2] {4.0, 4.0}>()
                c = MatMul(x, w)
                y = Div(c, k)
            }
        after:
            g (float[N,T,1] x) => (float[N,T,2] y) {
                w = Constant<value = float[1,2] {0.25, 0.5}>()
                y = MatMul(x, w)
            }
    """
    weight = finite(m.w)
    if weight.ndim < 2:
        raise Decline(f"'{m.w.name}' is a vector")
    affine = _affine(m, weight.shape[-1], axis=weight.ndim - 1, rank=weight.ndim)
    _require_rank(m, m.k)
    _require_own_weight(m, affine)
    return Replacement(W=product(weight, affine.scale) if affine.scales else m.w)


@rule(
    pattern="""
        c = Add(MatMul(x, w: const), b: const)
        y = Mul|Div|Add|Sum|Sub(c, k: const) | Sub(k: const, c)
    """,
    rewrite="y = Add(MatMul(x, W), B)",
    exactness="rounding",
    sets=("fusion",),
    opset=(7, None),
    tag="scaled",
)
def fold_constant_into_linear(m: Match) -> Replacement:
    """A constant multiplied with, or added to, the features of MatMul + bias goes into weight and bias, in any rank.

    Algebra
        k·(A·w + b) = A·(w·diag(k)) + k·b, and likewise for sums

    Declines when
        the constant, or the bias, is not one number a feature, or may raise the rank;
        it, the weight or the bias is empty or holds NaN or infinities; it divides by zero;
        the weight is a vector, is not floating, or would have to be scaled and has other users.

    Example
        before:
            g (float[N,T,1] x) => (float[N,T,2] y) {
                w = Constant<value = float[1,2] {1.0, 2.0}>()
                b = Constant<value = float[2] {1.0, 1.0}>()
                k = Constant<value = float {2.0}>()
                p = MatMul(x, w)
                c = Add(p, b)
                y = Mul(c, k)
            }
        after:
            g (float[N,T,1] x) => (float[N,T,2] y) {
                w = Constant<value = float[1,2] {2.0, 4.0}>()
                b = Constant<value = float[2] {2.0, 2.0}>()
                p = MatMul(x, w)
                y = Add(p, b)
            }
    """
    weight = finite(m.w)
    if weight.ndim < 2:
        raise Decline(f"'{m.w.name}' is a vector")
    channels, axis = weight.shape[-1], weight.ndim - 1
    affine = _affine(m, channels, axis, weight.ndim)
    _require_rank(m, m.k, m.b)
    _require_own_weight(m, affine)
    bias = affine.scale * channel_vector(m.b, channels, axis, weight.ndim) + affine.shift
    return Replacement(W=product(weight, affine.scale) if affine.scales else m.w, B=bias)

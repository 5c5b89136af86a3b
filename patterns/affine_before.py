"""Inference BatchNormalization, and constant Mul, Div, Add and Sub, in front of a linear operator go into it.

What stands in front is ``x -> s·x + t`` on each input channel. ``s`` goes into the weight, always. ``t`` reaches the result
through the weight: it is a bias only where every place gets all of it, so not where the operator pads with zeros, which
come after the shift.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._arrays import Affine, Floats, along, batch_norm, channel_vector, constant_affine, finite, product, require_finite
from ._dims import broadcasts_into, same


def _steps(m: Match, channels: int, axis: int, rank: int) -> Affine:
    """What the node that makes ``a`` does to the channels of ``x``, which lie on ``axis`` of ``rank``. Raises Decline."""
    if m.x.rank != rank:
        raise Decline(f"'{m.x.name}' is not known to be of rank {rank}")
    if m.a.op == "BatchNormalization":
        affine = batch_norm(m.a, m.gamma, m.beta, m.mean, m.var)
        affine.require_channels(channels, "the linear operator")
        return affine
    if not same(m.x.shape[axis], channels) or not broadcasts_into(m.k.value.shape, m.x.shape):
        raise Decline(f"'{m.k.name}' may enlarge '{m.x.name}'")
    held = channel_vector(m.k, channels, axis, rank)
    return constant_affine(m.a.op, held, m.k.name, from_constant=m.a.node.input(0) is m.k.tensor)


def _require_own_weight(m: Match, affine: Affine) -> None:
    if affine.scales and len(m.w.consumers) > 1:
        raise Decline(f"the weight '{m.w.name}' has other users: scaling it would keep a second copy")


# --- Conv ----------------------------------------------------------------------------------------------------------------


@rule(
    pattern="""
        a = BatchNormalization(x, gamma: const, beta: const, mean: const, var: const)
          | Mul|Div|Add|Sub(x, k: const) | Sub(k: const, x)
        y = Conv(a, w: const, b?: const)
    """,
    rewrite="y = Conv(x, W, B)<@y>",
    exactness="rounding",
    sets=("fusion",),
    recursive=True,
    tag="affine_before",
)
def fold_affine_before_conv(m: Match) -> Replacement:
    """BatchNormalization, or a constant multiplied or added, in front of a Conv goes into its weight and bias.

    Algebra
        w*(s·x + t) + b = (w·diag(s))*x + (sum over taps and input channels of w·t + b), in any rank and with any group

    Declines when
        the Conv pads and the shift is not 0: padded places get 0, not t;
        the BatchNormalization still trains, or var + epsilon <= 0 in some channel;
        the constant is not one number an input channel, or may enlarge x;
        weight, bias or a constant is not constant, is empty, or holds NaN or infinities;
        what stands in front is used elsewhere;
        the weight would have to be scaled and has other users.

    Example
        before:
            g (float[1,2,H,W] x) => (float[1,1,H,W] y) {
                w = Constant<value = float[1,2,1,1] {1.0, 2.0}>()
                gamma = Constant<value = float[2] {2.0, 3.0}>()
                beta = Constant<value = float[2] {0.5, 0.0}>()
                mean = Constant<value = float[2] {1.0, 2.0}>()
                var = Constant<value = float[2] {3.0, 8.0}>()
                a = BatchNormalization<epsilon = 1.0>(x, gamma, beta, mean, var)
                y = Conv(a, w)
            }
        after:
            g (float[1,2,H,W] x) => (float[1,1,H,W] y) {
                w = Constant<value = float[1,2,1,1] {1.0, 2.0}>()
                b = Constant<value = float[1] {-4.5}>()
                y = Conv(x, w, b)
            }
    """
    weight, group = finite(m.w), m.y.attr("group")
    affine = _steps(m, weight.shape[1] * group, axis=1, rank=weight.ndim)
    _require_own_weight(m, affine)
    if affine.shifts and _pads(m.y, weight):
        raise Decline("the Conv pads with zeros, and a shift stands before them")
    scale, shift = (np.repeat(v.reshape(group, -1), len(weight) // group, axis=0) for v in (affine.scale, affine.shift))
    with np.errstate(all="ignore"):  # what overflows is declined
        taps = weight.reshape(*weight.shape[:2], -1).sum(axis=2)
        moved = (taps * shift).sum(axis=1)
    scaled = product(weight, scale.reshape(scale.shape + (1,) * (weight.ndim - 2)))
    return _folded(m, affine, scaled, _bias(m.b, moved, affine))


def _pads(y: Operand, weight: Floats) -> bool:
    """Whether a Conv may read places outside of its operand. A kernel of one place never needs to."""
    if y.attr("auto_pad") in ("SAME_UPPER", "SAME_LOWER"):
        return any(size != 1 for size in weight.shape[2:])
    return y.attr("auto_pad") == "NOTSET" and any(y.attr("pads"))


def _bias(bias: Operand | None, moved: Floats, affine: Affine) -> Any:
    """The bias with what the shift adds, or as it was where there is no shift."""
    held = None if bias is None else finite(bias)
    if not affine.shifts:
        return bias
    return moved if held is None else held + moved


def _folded(m: Match, affine: Affine, scaled: Floats, bias: Any) -> Replacement:
    """With the scaled weight, or the held one where nothing scales. Raises Decline where the bias overflows a double."""
    if isinstance(bias, np.ndarray):
        require_finite(bias, "the bias with the shift")
    return Replacement(W=scaled if affine.scales else m.w, B=bias)


@rule(
    pattern="""
        a = BatchNormalization(x, gamma: const, beta: const, mean: const, var: const)
          | Mul|Div|Add|Sub(x, k: const) | Sub(k: const, x)
        y = ConvTranspose(a, w: const, b?: const)
    """,
    rewrite="y = ConvTranspose(x, W, B)<@y>",
    exactness="rounding",
    sets=("fusion",),
    recursive=True,
    tag="affine_before",
)
def fold_affine_before_conv_transpose(m: Match) -> Replacement:
    """BatchNormalization, or a constant multiplied or added, in front of a ConvTranspose goes into its weight and bias.

    Algebra
        as for Conv; the weight is [C_in, C_out/group, k…], so that its rows are scaled

    Declines when
        the shift is not 0 and the ConvTranspose is not one tap a place (kernel and stride 1, no output_padding): the
        others reach some places by fewer taps, or by different ones;
        the BatchNormalization still trains, or var + epsilon <= 0 in some channel;
        the constant is not one number an input channel, or may enlarge x;
        weight, bias or a constant is not constant, is empty, or holds NaN or infinities;
        what stands in front is used elsewhere;
        the weight would have to be scaled and has other users.

    Example
        before:
            g (float[1,2,H] x) => (float[1,1,H2] y) {
                w = Constant<value = float[2,1,2] {1.0, 2.0, 3.0, 4.0}>()
                k = Constant<value = float[2,1] {2.0, 3.0}>()
                a = Mul(x, k)
                y = ConvTranspose<strides = [2]>(a, w)
            }
        after:
            g (float[1,2,H] x) => (float[1,1,H2] y) {
                w = Constant<value = float[2,1,2] {2.0, 4.0, 9.0, 12.0}>()
                y = ConvTranspose<strides = [2]>(x, w)
            }
    """
    weight, group = finite(m.w), m.y.attr("group")
    affine = _steps(m, len(weight), axis=1, rank=weight.ndim)
    _require_own_weight(m, affine)
    if affine.shifts and not _is_one_tap(m.y, weight):
        raise Decline("a shift reaches some places of a ConvTranspose by fewer taps than others")
    taps = weight.reshape(group, -1, weight.shape[1], int(np.prod(weight.shape[2:])))[..., 0]
    with np.errstate(all="ignore"):  # what overflows is declined
        moved = np.einsum("gio,gi->go", taps, affine.shift.reshape(group, -1)).reshape(-1)
    scaled = product(weight, along(affine.scale, 0, weight.ndim))
    return _folded(m, affine, scaled, _bias(m.b, moved, affine))


def _is_one_tap(y: Operand, weight: Floats) -> bool:
    """Whether each place of a ConvTranspose's result is one place of its operand times the weight."""
    ones = (*weight.shape[2:], *y.attr("strides"))
    grown = [*(y.attr("output_padding") or ()), *(y.attr("output_shape") or ())]
    return all(size == 1 for size in ones) and not any(grown)


# --- Gemm and MatMul -----------------------------------------------------------------------------------------------------


@rule(
    pattern="""
        a = BatchNormalization(x, gamma: const, beta: const, mean: const, var: const)
          | Mul|Div|Add|Sub(x, k: const) | Sub(k: const, x)
        y = Gemm(a, w: const, b?: const)<transA=0>
    """,
    rewrite="y = Gemm(x, W, B)<@y, beta=1.0>",
    exactness="rounding",
    sets=("fusion",),
    opset=(7, None),
    recursive=True,
    tag="affine_before",
)
def fold_affine_before_gemm(m: Match) -> Replacement:
    """BatchNormalization, or a constant multiplied or added, in front of a Gemm goes into its weight and bias.

    Algebra
        alpha·(A·diag(s) + t)·W + beta·C = alpha·A·(diag(s)·W) + (alpha·t·W + beta·C); with transB W's columns are scaled

    Declines when
        the BatchNormalization still trains, or var + epsilon <= 0 in some channel;
        the constant is not one number a column of A, or may enlarge it; the bias runs along the rows;
        weight, bias or a constant is not constant, is empty, or holds NaN or infinities;
        what stands in front is used elsewhere;
        the weight would have to be scaled and has other users.

    Example
        before:
            g (float[N,2] x) => (float[N,1] y) {
                w = Constant<value = float[1,2] {1.0, 2.0}>()
                b = Constant<value = float[1] {1.0}>()
                k = Constant<value = float[2] {3.0, 4.0}>()
                a = Add(x, k)
                y = Gemm<transB = 1>(a, w, b)
            }
        after:
            g (float[N,2] x) => (float[N,1] y) {
                w = Constant<value = float[1,2] {1.0, 2.0}>()
                b = Constant<value = float[1] {12.0}>()
                y = Gemm<transB = 1, beta = 1.0>(x, w, b)
            }
    """
    weight, axis = finite(m.w), 1 if m.y.attr("transB") else 0
    affine = _steps(m, weight.shape[axis], axis=1, rank=2)
    _require_own_weight(m, affine)
    return _rows_scaled(m, affine, weight, axis)


@rule(
    pattern="""
        a = BatchNormalization(x, gamma: const, beta: const, mean: const, var: const)
        f = Flatten(a)<axis=1> | Reshape(a, t: const)
        y = Gemm(f, w: const, b?: const)<transA=0>
    """,
    rewrite="y = Gemm(@f(x, t)<@f>, W, B)<@y, beta=1.0>",
    exactness="rounding",
    sets=("fusion",),
    opset=(7, None),
    recursive=True,
    tag="affine_before",
)
def fold_batch_norm_before_flat_gemm(m: Match) -> Replacement:
    """BatchNormalization of maps that are flattened for a Gemm goes into the Gemm (the head of a face embedding).

    Algebra
        a row of the flat matrix holds channel after channel: s and t are repeated for each place of a channel

    Declines when
        the rows are not certainly channels times places (an unknown size, or a Reshape to something else);
        the BatchNormalization still trains, or var + epsilon <= 0 in some channel; the bias runs along the rows;
        weight, bias or a statistic is not constant, is empty, or holds NaN or infinities;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N,2,1,2] x) => (float[N,1] y) {
                w = Constant<value = float[4,1] {1.0, 2.0, 3.0, 4.0}>()
                gamma = Constant<value = float[2] {2.0, 3.0}>()
                beta = Constant<value = float[2] {0.5, 0.0}>()
                mean = Constant<value = float[2] {0.0, 0.0}>()
                var = Constant<value = float[2] {0.0, 8.0}>()
                a = BatchNormalization<epsilon = 1.0>(x, gamma, beta, mean, var)
                f = Flatten(a)
                y = Gemm(f, w)
            }
        after:
            g (float[N,2,1,2] x) => (float[N,1] y) {
                w = Constant<value = float[4,1] {2.0, 4.0, 3.0, 4.0}>()
                b = Constant<value = float[1] {1.5}>()
                f = Flatten(x)
                y = Gemm<beta = 1.0>(f, w, b)
            }
    """
    weight, axis = finite(m.w), 1 if m.y.attr("transB") else 0
    affine, places = batch_norm(m.a, m.gamma, m.beta, m.mean, m.var), _places(m, weight.shape[axis])
    affine.require_channels(weight.shape[axis] // places, "the Gemm")
    _require_own_weight(m, affine)
    spread = Affine(np.repeat(affine.scale, places), np.repeat(affine.shift, places))
    return _rows_scaled(m, spread, weight, axis)


def _places(m: Match, length: int) -> int:
    """Places of a channel, where a row of ``f`` certainly is x's channels, one after the other."""
    shape, flat = m.x.shape, m.f.shape
    if shape is None or len(shape) < 2 or not all(isinstance(d, int) for d in shape[1:]):
        raise Decline(f"the size of the maps '{m.x.name}' is unknown")
    if int(np.prod(shape[1:])) != length or flat is None or len(flat) != 2 or not same(flat[1], length):
        raise Decline(f"the rows of '{m.f.name}' are not certainly the maps of '{m.x.name}'")
    return int(np.prod(shape[2:]))


def _rows_scaled(m: Match, affine: Affine, weight: Floats, axis: int) -> Replacement:
    """The Gemm whose weight takes ``affine`` along ``axis``."""
    columns = weight.T if axis else weight
    alpha, beta = m.y.attr("alpha"), m.y.attr("beta")
    with np.errstate(all="ignore"):  # what overflows is declined
        moved = alpha * (affine.shift @ columns)
        if m.b is not None and beta != 0:
            moved = beta * channel_vector(m.b, columns.shape[1], axis=1, rank=2) + moved
    scaled = product(weight, along(affine.scale, axis, 2))
    return _folded(m, affine, scaled, moved)


@rule(
    pattern="""
        a = BatchNormalization(x, gamma: const, beta: const, mean: const, var: const)
        y = MatMul(a, w: const) | Add(MatMul(a, w: const), b: const)
    """,
    rewrite="y = Gemm(x, W, B)",
    exactness="rounding",
    sets=("fusion",),
    opset=(7, None),
    tag="affine_before",
)
def fold_batch_norm_before_matmul(m: Match) -> Replacement:
    """BatchNormalization in front of a MatMul of matrices, with or without a bias, is one Gemm with it.

    Algebra
        (A·diag(s) + t)·w + b = A·(diag(s)·w) + (t·w + b)

    Declines when
        x is not known to be a matrix, or the weight is none;
        the BatchNormalization still trains, or var + epsilon <= 0 in some channel;
        the bias is not one number a column;
        weight, bias or a statistic is not constant, is empty, or holds NaN or infinities;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N,2] x) => (float[N,1] y) {
                w = Constant<value = float[2,1] {1.0, 2.0}>()
                gamma = Constant<value = float[2] {2.0, 3.0}>()
                beta = Constant<value = float[2] {0.5, 0.0}>()
                mean = Constant<value = float[2] {1.0, 2.0}>()
                var = Constant<value = float[2] {3.0, 8.0}>()
                a = BatchNormalization<epsilon = 1.0>(x, gamma, beta, mean, var)
                y = MatMul(a, w)
            }
        after:
            g (float[N,2] x) => (float[N,1] y) {
                w = Constant<value = float[2,1] {1.0, 2.0}>()
                b = Constant<value = float[1] {-4.5}>()
                y = Gemm(x, w, b)
            }
    """
    weight = finite(m.w)
    if weight.ndim != 2:
        raise Decline(f"'{m.w.name}' is no matrix")
    affine = _steps(m, len(weight), axis=1, rank=2)
    _require_own_weight(m, affine)
    with np.errstate(all="ignore"):  # what overflows is declined
        moved = affine.shift @ weight
        if m.b is not None:
            moved = moved + channel_vector(m.b, weight.shape[1], axis=1, rank=2)
    return Replacement(W=product(weight, along(affine.scale, 0, 2)), B=require_finite(moved, "the bias with the shift"))


@rule(
    pattern="""
        a = Mul|Div(x, k: const)
        y = MatMul(a, w: const)
    """,
    rewrite="y = MatMul(x, W)",
    exactness="rounding",
    sets=("fusion",),
    recursive=True,
    tag="affine_before",
)
def fold_scale_before_matmul(m: Match) -> Replacement:
    """A constant multiplied in front of a MatMul goes into its weight, in any rank (query scaling, input scaling).

    Algebra
        (A·diag(k))·w = A·(diag(k)·w)

    Declines when
        the constant is not one number a column of x, or may enlarge it; the weight is a vector, or not floating;
        either is empty or holds NaN or infinities; the constant divides by zero;
        the scaled tensor, or the weight, is used elsewhere.

    Example
        before:
            g (float[N,T,2] x) => (float[N,T,1] y) {
                w = Constant<value = float[2,1] {1.0, 2.0}>()
                k = Constant<value = float {0.5}>()
                a = Mul(x, k)
                y = MatMul(a, w)
            }
        after:
            g (float[N,T,2] x) => (float[N,T,1] y) {
                w = Constant<value = float[2,1] {0.5, 1.0}>()
                y = MatMul(x, w)
            }
    """
    weight, rank = finite(m.w), m.x.rank
    if weight.ndim < 2 or rank is None or rank < 1:
        raise Decline(f"'{m.w.name}' is a vector, or the rank of '{m.x.name}' is unknown")
    affine = _steps(m, weight.shape[-2], axis=rank - 1, rank=rank)
    _require_own_weight(m, affine)
    return Replacement(W=product(weight, along(affine.scale, weight.ndim - 2, weight.ndim)) if affine.scales else m.w)


# --- past a pool ---------------------------------------------------------------------------------------------------------


@rule(
    pattern="""
        a = BatchNormalization(x, gamma, beta, mean: const, var: const)
        y = GlobalAveragePool|AveragePool(a)
    """,
    rewrite="y = BatchNormalization(@y(x)<@y>, gamma, beta, mean, var)<@a>",
    exactness="rounding",
    sets=("fusion",),
    recursive=True,
)
def sink_batch_norm_past_average_pool(m: Match) -> Replacement:
    """BatchNormalization in front of an AveragePool comes after it: fewer elements, and nearer to a linear operator.

    Algebra
        the weights of an average add up to 1: mean(s·x + t) = s·mean(x) + t

    Declines when
        pads count as zeros (count_include_pad = 1), or the output size is rounded up;
        it pads and the kernel is dilated: a window may hold nothing but pads, whose average is no average of x;
        the BatchNormalization still trains; its result is used elsewhere.

    Example
        before:
            g (float[1,2,H,W] x) => (float[1,2,1,1] y) {
                gamma = Constant<value = float[2] {2.0, 3.0}>()
                beta = Constant<value = float[2] {0.5, 0.0}>()
                mean = Constant<value = float[2] {1.0, 2.0}>()
                var = Constant<value = float[2] {3.0, 8.0}>()
                a = BatchNormalization<epsilon = 1.0>(x, gamma, beta, mean, var)
                y = GlobalAveragePool(a)
            }
        after:
            g (float[1,2,H,W] x) => (float[1,2,1,1] y) {
                gamma = Constant<value = float[2] {2.0, 3.0}>()
                beta = Constant<value = float[2] {0.5, 0.0}>()
                mean = Constant<value = float[2] {1.0, 2.0}>()
                var = Constant<value = float[2] {3.0, 8.0}>()
                p = GlobalAveragePool(x)
                y = BatchNormalization<epsilon = 1.0>(p, gamma, beta, mean, var)
            }
    """
    if m.a.attr("training_mode"):
        raise Decline("the BatchNormalization is in training mode")
    if m.y.op == "AveragePool":
        pads = m.y.attr("auto_pad").startswith("SAME") or any(m.y.attr("pads") or ())
        if pads and any(step != 1 for step in m.y.attr("dilations") or ()):
            raise Decline("it pads and the kernel is dilated: a window may hold pads alone")
        if m.y.attr("count_include_pad") and pads:
            raise Decline("pads count as zeros in the average")
        if m.y.attr("ceil_mode"):
            raise Decline("the output size is rounded up: the last window may count what is not there")
    return Replacement()

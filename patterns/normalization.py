"""Normalizations that exporters write out as means, differences and quotients: one operator again."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._arrays import Floats, finite, floats
from ._conditions import number, require_same_rank, require_single_or_half

# --- LayerNormalization --------------------------------------------------------------------------------------------------


@rule(
    pattern="""
        mu = ReduceMean(x, axes: const)<keepdims=1>
        d = Sub(x, mu)
        square = Pow(d, 2) | Mul(d, d)
        v = ReduceMean(square, axes: const)<keepdims=1>
        e = sum(v, eps: const) | v
        s = Sqrt(e) | Pow(e, 0.5)
        i = Reciprocal(s) | Div(1, s) | Pow(e, -0.5)
        y = Div(d, s) | Mul(d, i)
    """,
    rewrite="y = LayerNormalization(x, Scale)<axis=@axis, epsilon=@epsilon>",
    exactness="rounding",
    sets=("fusion",),
    opset=(17, None),
    may_grow=True,
    tag="layer_norm",
)
def fuse_layer_normalization(m: Match) -> Replacement:
    """Mean, variance and division by the deviation, over the last axes, are one LayerNormalization.

    Algebra
        (x - mean(x)) / √(mean((x - mean(x))²) + epsilon), with a scale of ones;
        fold_constant_into_layer_normalization brings in a scale and a bias that follow. Where the mean is far larger than
        the deviation both cancel; LayerNormalization then stays as near to the truth or nearer (mean 1e4, deviation 1, 4096
        elements: off by 5e-4, written out 2e-3). That is measured with ONNX Runtime 1.32; the kernel of 1.25 loses 5e-2 at a
        mean of 100, and is NaN at 1e4: verify with --data where such a runtime serves

    Declines when
        the opset is below 17, or x is double (LayerNormalization computes in single precision);
        the axes are not the last ones, or one of their sizes is unknown;
        epsilon is not one finite number; a constant raises the rank of x.

    Example
        before:
            g (float[N,4] x) => (float[N,4] y) {
                axes = Constant<value = int64[1] {-1}>()
                two = Constant<value = float {2.0}>()
                eps = Constant<value = float {0.00001}>()
                mu = ReduceMean(x, axes)
                d = Sub(x, mu)
                q = Pow(d, two)
                v = ReduceMean(q, axes)
                e = Add(v, eps)
                s = Sqrt(e)
                y = Div(d, s)
            }
        after:
            g (float[N,4] x) => (float[N,4] y) {
                ones = Constant<value = float[4] {1.0, 1.0, 1.0, 1.0}>()
                y = LayerNormalization<axis = 1, epsilon = 0.00001>(x, ones)
            }
    """
    axis, sizes = _last_axes(m, "LayerNormalization")
    require_same_rank(m.x, m.y)
    return Replacement(Scale=np.ones(sizes), axis=axis, epsilon=_epsilon(m.eps, m.x))


@rule(
    pattern="""
        n = LayerNormalization(x, scale: const, bias?: const)
        y = Mul|Add(n, k: const)
    """,
    rewrite="y = LayerNormalization(x, Scale, Bias)<@n>",
    exactness="rounding",
    sets=("fusion",),
    opset=(17, None),
    may_grow=True,
    tag="scaled",
)
def fold_constant_into_layer_normalization(m: Match) -> Replacement:
    """A constant multiplied with, or added to, a LayerNormalization goes into its scale or bias.

    Algebra
        (n·scale + bias)·k = n·(scale·k) + bias·k;  (n·scale + bias) + k = n·scale + (bias + k)

    Declines when
        the constant has other dims than the normalised axes (or is one number), or holds NaN or infinities;
        scale or bias is not constant;
        the statistics are used.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                ones = Constant<value = float[2] {1.0, 1.0}>()
                k = Constant<value = float[2] {0.5, -0.5}>()
                n = LayerNormalization(x, ones)
                y = Add(k, n)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                ones = Constant<value = float[2] {1.0, 1.0}>()
                k = Constant<value = float[2] {0.5, -0.5}>()
                y = LayerNormalization(x, ones, k)
            }
    """
    scale = floats(m.scale)
    bias = floats(m.bias) if m.bias is not None else None
    k = _normalised(m.k, scale.shape)
    if bias is not None and bias.shape != scale.shape:
        raise Decline(f"bias of shape {list(bias.shape)}, scale of shape {list(scale.shape)}")
    if m.y.op == "Add":
        return Replacement(Scale=m.scale, Bias=k if bias is None else bias + k)
    return Replacement(Scale=scale * k, Bias=None if bias is None else bias * k)


# --- RMSNormalization ----------------------------------------------------------------------------------------------------


@rule(
    pattern="""
        square = Pow(x, 2) | Mul(x, x)
        v = ReduceMean(square, axes: const)<keepdims=1>
        e = sum(v, eps: const) | v
        s = Sqrt(e) | Pow(e, 0.5)
        i = Reciprocal(s) | Div(1, s) | Pow(e, -0.5)
        y = Div(x, s) | Mul(x, i)
    """,
    rewrite="y = RMSNormalization(x, Scale)<axis=@axis, epsilon=@epsilon>",
    exactness="rounding",
    sets=("fusion",),
    opset=(23, None),
    may_grow=True,
    tag="rms_norm",
)
def fuse_rms_normalization(m: Match) -> Replacement:
    """Division by the root of the mean square, over the last axes, is one RMSNormalization.

    Algebra
        x / √(mean(x²) + epsilon), with a scale of ones; fold_scale_into_rms_normalization brings in one that follows

    Declines when
        the opset is below 23, or x is double (epsilon and the sums may be of single precision);
        the axes are not the last ones, or one of their sizes is unknown;
        epsilon is not one finite number; a constant raises the rank of x.

    Example
        before:
            g (float[N,4] x) => (float[N,4] y) {
                axes = Constant<value = int64[1] {-1}>()
                two = Constant<value = float {2.0}>()
                eps = Constant<value = float {0.00001}>()
                q = Pow(x, two)
                v = ReduceMean(q, axes)
                e = Add(v, eps)
                s = Sqrt(e)
                r = Reciprocal(s)
                y = Mul(x, r)
            }
        after:
            g (float[N,4] x) => (float[N,4] y) {
                ones = Constant<value = float[4] {1.0, 1.0, 1.0, 1.0}>()
                y = RMSNormalization<axis = 1, epsilon = 0.00001>(x, ones)
            }
    """
    axis, sizes = _last_axes(m, "RMSNormalization")
    require_same_rank(m.x, m.y)
    return Replacement(Scale=np.ones(sizes), axis=axis, epsilon=_epsilon(m.eps, m.x))


@rule(
    pattern="""
        n = RMSNormalization(x, scale: const)
        y = Mul(n, k: const)
    """,
    rewrite="y = RMSNormalization(x, Scale)<@n>",
    exactness="rounding",
    sets=("fusion",),
    opset=(23, None),
    may_grow=True,
    tag="scaled",
)
def fold_scale_into_rms_normalization(m: Match) -> Replacement:
    """A constant multiplied with an RMSNormalization goes into its scale.

    Algebra
        (n·scale)·k = n·(scale·k)

    Declines when
        the constant has other dims than the normalised axes (or is one number), or holds NaN or infinities.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                ones = Constant<value = float[2] {1.0, 1.0}>()
                k = Constant<value = float[2] {0.5, -0.5}>()
                n = RMSNormalization(x, ones)
                y = Mul(k, n)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                k = Constant<value = float[2] {0.5, -0.5}>()
                y = RMSNormalization(x, k)
            }
    """
    scale = floats(m.scale)
    return Replacement(Scale=scale * _normalised(m.k, scale.shape))


def _last_axes(m: Match, op: str) -> tuple[int, tuple[int, ...]]:
    """The first of the normalised axes, which are the last ones of x, and their sizes. Raises Decline for others."""
    require_single_or_half(m.x, op)
    shape = m.x.shape
    if shape is None:
        raise Decline(f"the rank of '{m.x.name}' is unknown")
    axes = sorted({int(a) % len(shape) for a in m.axes.value.ravel()})
    if not axes or axes != list(range(axes[0], len(shape))):
        raise Decline(f"the axes {axes} are not the last ones of {len(shape)}")
    sizes = tuple(shape[axes[0] :])
    if not all(isinstance(d, int) for d in sizes):
        raise Decline("the size of a normalised axis is unknown")
    return axes[0], sizes


def _epsilon(operand: Operand | None, x: Operand) -> float:
    """Epsilon, 0 where there is none. Raises Decline where it is not one finite number, or raises the rank of x."""
    if operand is None:
        return 0.0
    if operand.value.size != 1:
        raise Decline(f"epsilon is not one number, but of shape {list(operand.value.shape)}")
    if x.rank is None or operand.value.ndim > x.rank:
        raise Decline("epsilon raises the rank, or that is unknown")
    return number(operand)


def _normalised(operand: Operand, shape: tuple[int, ...]) -> Floats:
    """A constant in the shape of the normalised axes. Raises Decline for one that says more, or may raise the rank."""
    values = finite(operand)
    if values.ndim > len(shape) or (values.size != 1 and values.shape != shape[len(shape) - values.ndim :]):
        raise Decline(
            f"'{operand.name}' of shape {list(values.shape)} does not go along the normalised axes {list(shape)}"
        )
    return np.broadcast_to(values, shape).astype(np.float64)


# --- float16 -------------------------------------------------------------------------------------------------------------


@rule(
    pattern="""
        w = Cast(x)<to=1>
        n = LayerNormalization(w, scale: const, bias?: const) | RMSNormalization(w, scale: const)
        y = Cast(n)<to=@to>
    """,
    rewrite="y = @n(x, Scale, Bias)<@n>",
    exactness="rounding",
    sets=("fusion",),
    opset=(17, None),
    tag="half",
)
def drop_casts_around_normalization(m: Match) -> Replacement:
    """A normalization between Casts from float16 and back is one of float16.

    Algebra
        the operators compute in single precision whatever their input (stash_type = 1), and round once

    Declines when
        x or the result is not float16; stash_type is another one;
        scale or bias would be rounded, or are not finite;
        the inner results are used elsewhere.

    Example
        before:
            g (float16[N,2] x) => (float16[N,2] y) {
                ones = Constant<value = float[2] {1.0, 1.0}>()
                w = Cast<to = 1>(x)
                n = LayerNormalization(w, ones)
                y = Cast<to = 10>(n)
            }
        after:
            g (float16[N,2] x) => (float16[N,2] y) {
                ones = Constant<value = float16[2] {15360, 15360}>()
                y = LayerNormalization(x, ones)
            }
    """
    if m.x.dtype != TensorProto.FLOAT16 or m.attr("to") != TensorProto.FLOAT16:
        raise Decline(f"'{m.x.name}' is not cast from float16 and back")
    if m.n.attr("stash_type") != TensorProto.FLOAT:
        raise Decline("stash_type is not float")
    return Replacement(Scale=_as_half(m.scale), Bias=None if m.bias is None else _as_half(m.bias))


def _as_half(operand: Operand) -> Floats:
    """A constant that float16 holds as it is. Raises Decline for another."""
    values = finite(operand)
    with np.errstate(over="ignore"):
        if (values.astype(np.float16).astype(np.float64) != values).any():
            raise Decline(f"'{operand.name}' would be rounded to float16")
    return values

"""Operators that exporters write out as several: put together again where ONNX has the operator at the model's opset."""

from __future__ import annotations

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._arrays import Floats, floats, require_finite

DOUBLE = 11
"""TensorProto.DOUBLE"""


# --- Gelu ----------------------------------------------------------------------------------------------------------------


@rule(
    pattern="""
        d = Div(x, 1.4142135) | Mul(x, 0.70710678)
        y = prod(x, 0.5, sum(Erf(d), 1))
    """,
    rewrite='y = Gelu(x)<approximate="none">',
    exactness="rounding",
    sets=("fusion",),
    opset=(20, None),
)
def fuse_gelu(m: Match) -> Replacement:
    """Gelu written with Erf, its factors in any order and association, is one Gelu.

    Algebra
        gelu(x) = x·½·(1 + erf(x / √2))

    Declines when
        the opset is below 20;
        a constant raises the rank of x, or a rank is unknown;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                root = Constant<value = float {1.4142135}>()
                one = Constant<value = float {1.0}>()
                half = Constant<value = float {0.5}>()
                d = Div(x, root)
                e = Erf(d)
                s = Add(e, one)
                p = Mul(x, s)
                y = Mul(p, half)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = Gelu<approximate = "none">(x)
            }
    """
    _require_same_rank(m)
    return Replacement()


@rule(
    pattern="""
        inner = sum(x, prod(Pow(x, 3), 0.044715)) | sum(x, prod(x, x, x, 0.044715))
        y = prod(x, 0.5, sum(Tanh(prod(inner, 0.79788456)), 1))
    """,
    rewrite='y = Gelu(x)<approximate="tanh">',
    exactness="rounding",
    sets=("fusion",),
    opset=(20, None),
)
def fuse_tanh_gelu(m: Match) -> Replacement:
    """Gelu written with Tanh, its factors in any order and association, is one Gelu.

    Algebra
        gelu(x) ≈ x·½·(1 + tanh(√(2/pi)·(x + 0.044715·x³))), which ONNX calls approximate = "tanh"

    Declines when
        the opset is below 20;
        a constant raises the rank of x, or a rank is unknown;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                three = Constant<value = float {3.0}>()
                small = Constant<value = float {0.044715}>()
                root = Constant<value = float {0.7978845608}>()
                one = Constant<value = float {1.0}>()
                half = Constant<value = float {0.5}>()
                cube = Pow(x, three)
                little = Mul(cube, small)
                all = Add(x, little)
                scaled = Mul(all, root)
                t = Tanh(scaled)
                s = Add(one, t)
                h = Mul(x, half)
                y = Mul(h, s)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = Gelu<approximate = "tanh">(x)
            }
    """
    _require_same_rank(m)
    return Replacement()


def _require_same_rank(m: Match) -> None:
    """A constant of one element may still have many dims."""
    if m.x.rank is None or m.x.rank != m.y.rank:
        raise Decline(f"'{m.x.name}' and '{m.y.name}' are not known to have the same rank")


# --- LayerNormalization --------------------------------------------------------------------------------------------------


@rule(
    pattern="""
        mu = ReduceMean(x, axes: const)<keepdims=1>
        d = Sub(x, mu)
        square = Pow(d, 2) | Mul(d, d)
        variance = ReduceMean(square, axes: const)<keepdims=1>
        s = Sqrt(Add(variance, eps: const))
        y = Div(d, s) | Mul(d, Reciprocal(s))
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
        fold_constant_into_layer_normalization brings in a scale and a bias that follow

    Declines when
        the opset is below 17, or x is double (LayerNormalization computes in single precision);
        the axes are not the last ones, or one of their sizes is unknown;
        epsilon is not one number.

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
    epsilon = require_finite(floats(m.eps), "epsilon")
    rank, dtype = m.x.rank, m.x.dtype
    if dtype is None or dtype == DOUBLE:
        raise Decline(f"'{m.x.name}' is double, or of unknown type")
    if epsilon.size != 1 or rank is None or epsilon.ndim > rank:
        raise Decline("epsilon is not one number, or the rank is unknown")
    axes = sorted({int(a) % rank for a in m.axes.value.ravel()})
    if not axes or axes != list(range(axes[0], rank)):
        raise Decline(f"the axes {axes} are not the last ones of {rank}")
    sizes = m.x.shape[axes[0] :]
    if not all(isinstance(d, int) for d in sizes):
        raise Decline("the size of a normalised axis is unknown")
    return Replacement(Scale=np.ones(sizes), axis=axes[0], epsilon=float(epsilon.reshape(())))


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


def _normalised(operand: Operand, shape: tuple[int, ...]) -> Floats:
    """A constant in the shape of the normalised axes. Raises Decline for one that says more, or may raise the rank."""
    values = require_finite(floats(operand), f"'{operand.name}'")
    if values.ndim > len(shape) or (values.size != 1 and values.shape != shape[len(shape) - values.ndim :]):
        raise Decline(
            f"'{operand.name}' of shape {list(values.shape)} does not go along the normalised axes {list(shape)}"
        )
    return np.broadcast_to(values, shape).astype(np.float64)

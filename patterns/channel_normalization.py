"""Normalizations over groups, chosen axes and vectors. Fewer nodes, but not faster: all in the set "compact"."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from surgeon_passes import Decline, Match, Replacement, rule

from ._arrays import channel_vector, finite, floats
from ._conditions import number, require_same_rank, require_single_or_half
from ._dims import ints, same, same_shape

# --- GroupNormalization --------------------------------------------------------------------------------------------------


@rule(
    pattern="""
        r = Reshape(x, grouped: partial)
        n = InstanceNormalization(r, scale: const, bias: const)
        y = Reshape(n, whole: partial)
    """,
    rewrite="y = GroupNormalization(x, Scale, Bias)<num_groups=@num_groups, epsilon=@epsilon>",
    exactness="rounding",
    sets=("compact",),
    opset=(21, None),
    may_grow=True,
    tag="group_norm",
)
def fuse_group_normalization(m: Match) -> Replacement:
    """An InstanceNormalization of channels that are gathered in groups, and given back, is one GroupNormalization.

    Fewer nodes, but slower: ONNX Runtime has no kernel for GroupNormalization and computes its definition, twice the time.

    Algebra
        [N, C, …] seen as [N, G, C/G·…] has the groups where InstanceNormalization has its channels; its scale and bias of
        a group become those of the group's channels. fold_constant_into_group_normalization brings in those that follow

    Declines when
        the opset is below 21, or x is double (ONNX Runtime computes it in single precision);
        the batch, or the number of channels or groups, is not known to be what it must be;
        the result has not certainly the shape of x; scale or bias is not finite; groups hold one element each.

    Example
        before:
            g (float[N,4,3] x) => (float[N,4,3] y) {
                two = Constant<value = int64[3] {0, 2, -1}>()
                four = Constant<value = int64[3] {0, 4, 3}>()
                ones = Constant<value = float[2] {1.0, 1.0}>()
                zeros = Constant<value = float[2] {0.0, 0.0}>()
                r = Reshape(x, two)
                n = InstanceNormalization<epsilon = 0.00001>(r, ones, zeros)
                y = Reshape(n, four)
            }
        after:
            g (float[N,4,3] x) => (float[N,4,3] y) {
                ones = Constant<value = float[4] {1.0, 1.0, 1.0, 1.0}>()
                zeros = Constant<value = float[4] {0.0, 0.0, 0.0, 0.0}>()
                y = GroupNormalization<num_groups = 2, epsilon = 0.00001>(x, ones, zeros)
            }
    """
    require_single_or_half(m.x, "GroupNormalization")
    shape, grouped = m.x.shape, m.r.shape
    if shape is None or len(shape) < 3 or grouped is None or len(grouped) < 3:
        raise Decline(f"'{m.x.name}' or '{m.r.name}' is not known to have spatial axes")
    if not same(shape[0], grouped[0]) or not same_shape(shape, m.y.shape):
        raise Decline(f"'{m.r.name}' does not certainly keep the batch, or '{m.y.name}' not the shape of '{m.x.name}'")
    channels, groups = shape[1], grouped[1]
    if not isinstance(channels, int) or not isinstance(groups, int) or channels % groups:
        raise Decline(f"{channels} channels, {groups} groups")
    repeats = channels // groups
    if repeats == 1 and all(dim == 1 for dim in shape[2:]):
        raise Decline("its groups hold one element: what is left of that element is rounding")
    scale, bias = (np.repeat(finite(t), repeats) for t in (m.scale, m.bias))
    return Replacement(Scale=scale, Bias=bias, num_groups=groups, epsilon=m.n.attr("epsilon"))


@rule(
    pattern="""
        n = GroupNormalization(x, scale: const, bias: const)
        y = Mul|Add(n, k: const)
    """,
    rewrite="y = GroupNormalization(x, Scale, Bias)<@n>",
    exactness="rounding",
    sets=("compact",),
    opset=(21, None),
    may_grow=True,
    tag="scaled",
)
def fold_constant_into_group_normalization(m: Match) -> Replacement:
    """A constant of each channel that is multiplied with, or added to, a GroupNormalization goes into scale or bias.

    Algebra
        (n·scale + bias)·k = n·(scale·k) + bias·k;  (n·scale + bias) + k = n·scale + (bias + k)

    Declines when
        the constant is not one number a channel, or holds NaN or infinities; a rank is unknown.

    Example
        before:
            g (float[N,2,3] x) => (float[N,2,3] y) {
                ones = Constant<value = float[2] {1.0, 1.0}>()
                zeros = Constant<value = float[2] {0.0, 0.0}>()
                k = Constant<value = float[2,1] {0.5, -0.5}>()
                n = GroupNormalization<num_groups = 1>(x, ones, zeros)
                y = Mul(n, k)
            }
        after:
            g (float[N,2,3] x) => (float[N,2,3] y) {
                k = Constant<value = float[2] {0.5, -0.5}>()
                zeros = Constant<value = float[2] {0.0, 0.0}>()
                y = GroupNormalization<num_groups = 1>(x, k, zeros)
            }
    """
    scale, bias, rank = floats(m.scale), floats(m.bias), m.x.rank
    if rank is None:
        raise Decline(f"the rank of '{m.x.name}' is unknown")
    k = channel_vector(m.k, len(scale), 1, rank)
    if m.y.op == "Add":
        return Replacement(Scale=m.scale, Bias=bias + k)
    return Replacement(Scale=scale * k, Bias=bias * k)


# --- MeanVarianceNormalization -------------------------------------------------------------------------------------------


@rule(
    pattern="""
        mu = ReduceMean(x, axes: const)<keepdims=1>
        d = Sub(x, mu)
        square = Pow(d, 2) | Mul(d, d)
        s = Sqrt(ReduceMean(square, axes: const)<keepdims=1>)
        y = Div(d, s)
    """,
    rewrite="y = MeanVarianceNormalization(x)<axes=@over>",
    exactness="rounding",
    sets=("compact",),
    opset=(9, None),
)
def fuse_mean_variance_normalization(m: Match) -> Replacement:
    """Mean and deviation over any axes, without an epsilon, are one MeanVarianceNormalization.

    Not faster everywhere: over batch and space 1.2 times the time in ONNX Runtime, over space 0.9 times.

    Algebra
        (x - mean(x)) / √(mean((x - mean(x))²)); of a constant x what is written out is NaN, and so is ONNX Runtime's, while
        ONNX's definition, which adds 1e-9 to the deviation, gives 0. For the same reason nothing with an epsilon is
        rewritten: ONNX Runtime leaves it out

    Declines when
        the opset is below 9, or x is not float32 (ONNX Runtime has no other kernel);
        the rank is unknown, or raised by a constant; the axes are none.

    Example
        before:
            g (float[N,2,4] x) => (float[N,2,4] y) {
                axes = Constant<value = int64[2] {0, 2}>()
                mu = ReduceMean(x, axes)
                d = Sub(x, mu)
                q = Mul(d, d)
                v = ReduceMean(q, axes)
                s = Sqrt(v)
                y = Div(d, s)
            }
        after:
            g (float[N,2,4] x) => (float[N,2,4] y) {
                y = MeanVarianceNormalization<axes = [0, 2]>(x)
            }
    """
    if m.x.dtype != TensorProto.FLOAT:
        raise Decline(f"'{m.x.name}' is not known to be float32")
    if m.x.rank is None:
        raise Decline(f"the rank of '{m.x.name}' is unknown")
    axes = sorted({axis % m.x.rank for axis in ints(m.axes)})
    if not axes:
        raise Decline("it names no axes")
    require_same_rank(m.x, m.y)
    return Replacement(over=axes)


# --- LpNormalization -----------------------------------------------------------------------------------------------------


SMALL = 1e-6
"""Largest bound of a norm that is there to keep a division by zero away, and for nothing else."""


@rule(
    pattern="""
        r = ReduceL1|ReduceL2(x, axes: const)<keepdims=1>
        y = Div(x, Clip(r, least: const)) | Div(x, Max(r, least: const))
    """,
    rewrite="y = LpNormalization(x)<axis=@axis, p=@p>",
    exactness="approximate",
    sets=("compact",),
    opset=(22, None),
)
def fuse_lp_normalization(m: Match) -> Replacement:
    """Division by the norm, which a tiny bound keeps from being zero, is one LpNormalization.

    Only nearly equal, and slower: over channels 1.5 times the time in ONNX Runtime, over the last axis about the same.

    Algebra
        x / max(‖x‖, least) = x / ‖x‖ where ‖x‖ >= least; a shorter vector becomes x / least, and a unit vector by
        LpNormalization; zero stays zero in both. Without the bound zero would be NaN, which LpNormalization never gives:
        such a division is left

    Declines when
        the opset is below 22 (what is zero was not defined);
        the norm is over several axes, the rank is unknown, or the bound is no number from 0 to 1e-6.

    Example
        options:
            approximate
        before:
            g (float[N,4] x) => (float[N,4] y) {
                axes = Constant<value = int64[1] {-1}>()
                least = Constant<value = float {1e-12}>()
                r = ReduceL2(x, axes)
                c = Clip(r, least)
                y = Div(x, c)
            }
        after:
            g (float[N,4] x) => (float[N,4] y) {
                y = LpNormalization<axis = 1, p = 2>(x)
            }
    """
    axes, rank = ints(m.axes), m.x.rank
    if len(axes) != 1 or rank is None:
        raise Decline(f"the norm is over the axes {axes} of rank {rank}")
    least = number(m.least)
    if not 0 < least <= SMALL or m.least.value.ndim > rank:
        raise Decline(f"the norm is at least {least}")
    return Replacement(axis=axes[0] % rank, p=1 if m.r.op == "ReduceL1" else 2)

"""Activations in pieces (rectifiers, hard ones, Elu) that are written out as several operators: one again."""

from __future__ import annotations

import numpy as np

from surgeon_passes import Decline, Match, Replacement, rule

from ._arrays import floats, require_finite
from ._conditions import number, require_same_rank, require_single_or_half

_LARGEST = float(np.finfo(np.float32).max)

# --- HardSigmoid and HardSwish -------------------------------------------------------------------------------------------


@rule(
    pattern="""
        c = Clip(sum(x, 3), 0, 6)
        y = Div(c, 6) | Mul(c, 0.16666667)
    """,
    rewrite="y = HardSigmoid(x)<alpha=0.16666667, beta=0.5>",
    exactness="rounding",
    sets=("fusion",),
    opset=(6, None),
)
def fuse_hard_sigmoid(m: Match) -> Replacement:
    """A sixth of x + 3, clipped to 0 and 6, is one HardSigmoid.

    Algebra
        clip(x + 3, 0, 6) / 6 = clip(x / 6 + 1/2, 0, 1)

    Declines when
        x is double (ONNX Runtime has no such kernel);
        a constant raises the rank of x, or a rank is unknown;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                three = Constant<value = float {3.0}>()
                zero = Constant<value = float {0.0}>()
                six = Constant<value = float {6.0}>()
                s = Add(x, three)
                c = Clip(s, zero, six)
                y = Div(c, six)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)
            }
    """
    require_same_rank(m.x, m.y)
    require_single_or_half(m.x, "HardSigmoid")
    return Replacement()


@rule(
    pattern="""
        c = Clip(x, 0, high: const)
        y = Div(c, high: const) | Mul(c, factor: const)
    """,
    rewrite="y = HardSigmoid(x)<alpha=@alpha, beta=0.0>",
    exactness="rounding",
    sets=("fusion",),
    opset=(6, None),
)
def fuse_scaled_clip(m: Match) -> Replacement:
    """A Clip from 0 to some number, over that number, is one HardSigmoid.

    So a hard sigmoid ends whose 3 went into the bias of a Conv.

    Algebra
        clip(x, 0, high) / high = clip(x / high, 0, 1)

    Declines when
        the numbers are not each other's reciprocal, or not positive and finite, also as a float32;
        x is double (ONNX Runtime has no such kernel);
        a constant raises the rank of x, or a rank is unknown;
        the Clip is used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                zero = Constant<value = float {0.0}>()
                six = Constant<value = float {6.0}>()
                c = Clip(x, zero, six)
                y = Div(c, six)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = HardSigmoid<alpha = 0.16666667, beta = 0.0>(x)
            }
    """
    require_same_rank(m.x, m.y)
    require_single_or_half(m.x, "HardSigmoid")
    high = number(m.high)
    if not 1 / _LARGEST <= high <= _LARGEST:
        raise Decline(f"it clips to 0 and {high}")
    if m.factor is not None and abs(number(m.factor) * high - 1) > 1e-6:
        raise Decline(f"{number(m.factor)} is not the reciprocal of {high}")
    return Replacement(alpha=1 / high)


@rule(
    pattern="y = prod(x, HardSigmoid(x)<alpha=0.16666667, beta=0.5>)",
    rewrite="y = HardSwish(x)",
    exactness="rounding",
    sets=("fusion",),
    opset=(14, None),
)
def fuse_hard_swish(m: Match) -> Replacement:
    """x times HardSigmoid of x is one HardSwish.

    Algebra
        hardswish(x) = x·clip(x / 6 + 1/2, 0, 1)

    Declines when
        the opset is below 14; alpha is not 1/6, or beta not 1/2;
        the HardSigmoid is used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                s = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)
                y = Mul(s, x)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = HardSwish(x)
            }
    """
    return Replacement()


@rule(
    pattern="""
        p = prod(x, Clip(sum(x, 3), 0, 6))
        y = Div(p, 6) | Mul(p, 0.16666667)
    """,
    rewrite="y = HardSwish(x)",
    exactness="rounding",
    sets=("fusion",),
    opset=(14, None),
)
def fuse_written_out_hard_swish(m: Match) -> Replacement:
    """x times x + 3, clipped to 0 and 6, over 6, is one HardSwish.

    Algebra
        hardswish(x) = x·clip(x + 3, 0, 6) / 6; where 6·x is beyond the largest number, what is written out is infinite,
        and HardSwish gives the value

    Declines when
        the opset is below 14, or x is double (ONNX Runtime has no such kernel);
        a constant raises the rank of x, or a rank is unknown;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                three = Constant<value = float {3.0}>()
                zero = Constant<value = float {0.0}>()
                six = Constant<value = float {6.0}>()
                s = Add(x, three)
                c = Clip(s, zero, six)
                p = Mul(x, c)
                y = Div(p, six)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = HardSwish(x)
            }
    """
    require_same_rank(m.x, m.y)
    require_single_or_half(m.x, "HardSwish")
    return Replacement()


# --- rectifiers ----------------------------------------------------------------------------------------------------------


@rule(
    pattern="""
        s = Mul(x, slope: const)
        y = Max(x, s)
          | Where(Greater|GreaterOrEqual(x, 0), x, s)
          | Where(Less|LessOrEqual(x, 0), s, x)
    """,
    rewrite="y = LeakyRelu(x)<alpha=@alpha>",
    exactness="rounding",
    sets=("fusion",),
    opset=(6, None),
)
def fuse_leaky_relu(m: Match) -> Replacement:
    """The larger of x and a part of x, or the part where x is negative, is one LeakyRelu.

    Algebra
        leaky(x) = x for x >= 0, else slope·x; max(x, slope·x) is that for slopes above 0, up to 1

    Declines when
        the slope is not one finite number; Max is given one above 1, or not above 0 (0·∞ is NaN);
        x is double (the slope would be rounded to single precision);
        a constant raises the rank of x, or a rank is unknown;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                slope = Constant<value = float {0.1}>()
                s = Mul(x, slope)
                y = Max(s, x)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = LeakyRelu<alpha = 0.1>(x)
            }
    """
    require_same_rank(m.x, m.y)
    require_single_or_half(m.x, "LeakyRelu")
    alpha = number(m.slope)
    if m.y.op == "Max" and not 0 < alpha <= 1:
        raise Decline(f"the larger of x and {alpha}·x is not x where x is positive")
    return Replacement(alpha=alpha)


@rule(
    pattern="""
        n = prod(Relu(Neg(x)), slope: const)
        y = Sub(Relu(x), n) | Add(Relu(x), n)
    """,
    rewrite="y = PRelu(x, Slope)",
    exactness="rounding",
    sets=("compact",),
    opset=(9, None),
    tag="slope",
)
def fuse_prelu(m: Match) -> Replacement:
    """Relu of x and a part of Relu of -x are one PRelu.

    Fewer nodes, but slower: ONNX Runtime computes PRelu element by element, 4 to 6 times the time of the five operators.

    Algebra
        relu(x) - slope·relu(-x) = x for x >= 0, else slope·x

    Declines when
        the opset is below 9, or x is double (ONNX Runtime has no such kernel);
        the slope is not finite, or raises the rank or the shape of x; a shape is unknown;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                slope = Constant<value = float[2] {0.25, -0.5}>()
                p = Relu(x)
                m = Neg(x)
                r = Relu(m)
                s = Mul(slope, r)
                y = Sub(p, s)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                slope = Constant<value = float[2] {0.25, -0.5}>()
                y = PRelu(x, slope)
            }
    """
    require_single_or_half(m.x, "PRelu")
    slope = require_finite(floats(m.slope), "the slope")
    shape = m.x.shape
    if shape is None or slope.ndim > len(shape):
        raise Decline(f"the slope raises the rank of '{m.x.name}', or that is unknown")
    if any(d not in (1, own) for d, own in zip(reversed(slope.shape), reversed(shape), strict=False)):
        raise Decline(f"the slope of shape {list(slope.shape)} may enlarge '{m.x.name}'")
    return Replacement(Slope=slope if m.y.op == "Sub" else -slope)


@rule(
    pattern="y = Where(Greater(x, threshold: const), x, 0)",
    rewrite="y = ThresholdedRelu(x)<alpha=@alpha>",
    exactness="rounding",
    sets=("fusion",),
    opset=(10, None),
)
def fuse_thresholded_relu(m: Match) -> Replacement:
    """x where it is above a number, else 0, is one ThresholdedRelu.

    Algebra
        thresholded(x) = x for x > alpha, else 0 (for NaN, too)

    Declines when
        the opset is below 10, or x is double (ONNX Runtime has no such kernel);
        the threshold is not one finite number; a constant raises the rank of x, or a rank is unknown;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                alpha = Constant<value = float {0.5}>()
                zero = Constant<value = float {0.0}>()
                above = Greater(x, alpha)
                y = Where(above, x, zero)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = ThresholdedRelu<alpha = 0.5>(x)
            }
    """
    require_same_rank(m.x, m.y)
    require_single_or_half(m.x, "ThresholdedRelu")
    alpha = number(m.threshold)
    if alpha != float(np.float32(alpha)):
        raise Decline(f"the threshold {alpha} is no float32: another number could pass it")
    return Replacement(alpha=alpha)


# --- Elu and Softsign ----------------------------------------------------------------------------------------------------


@rule(
    pattern="""
        e = Sub(Exp(x), 1) | sum(Exp(x), -1)
        s = Mul(e, scale: const) | e
        y = Where(Greater|GreaterOrEqual(x, 0), x, s) | Where(Less|LessOrEqual(x, 0), s, x)
    """,
    rewrite="y = Elu(x)<alpha=@alpha>",
    exactness="rounding",
    sets=("fusion",),
    opset=(6, None),
)
def fuse_elu(m: Match) -> Replacement:
    """x where it is positive, else a multiple of Exp of x less 1, is one Elu.

    Algebra
        elu(x) = x for x > 0, else alpha·(eˣ - 1)

    Declines when
        alpha is not one finite number; x is double (ONNX Runtime has no such kernel);
        a constant raises the rank of x, or a rank is unknown;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                zero = Constant<value = float {0.0}>()
                one = Constant<value = float {1.0}>()
                e = Exp(x)
                s = Sub(e, one)
                above = Greater(x, zero)
                y = Where(above, x, s)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = Elu<alpha = 1.0>(x)
            }
    """
    require_same_rank(m.x, m.y)
    require_single_or_half(m.x, "Elu")
    return Replacement(alpha=1.0 if m.scale is None else number(m.scale))


@rule(
    pattern="y = Div(x, sum(Abs(x), 1))",
    rewrite="y = Softsign(x)",
    exactness="rounding",
    sets=("fusion",),
)
def fuse_softsign(m: Match) -> Replacement:
    """x over one plus its absolute value is one Softsign.

    Algebra
        softsign(x) = x / (1 + |x|)

    Declines when
        x is double (ONNX Runtime has no such kernel);
        the constant raises the rank of x, or a rank is unknown;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                one = Constant<value = float {1.0}>()
                a = Abs(x)
                s = Add(a, one)
                y = Div(x, s)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = Softsign(x)
            }
    """
    require_same_rank(m.x, m.y)
    require_single_or_half(m.x, "Softsign")
    return Replacement()

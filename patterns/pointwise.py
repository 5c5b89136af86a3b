"""Pairs of one pointwise operator that are one. All bit-exact: NaN, infinities and the sign of zero included."""

from __future__ import annotations

from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._conditions import require_nonnegative

ROUNDING = {"Ceil", "Floor", "Round"}
"""What gives whole numbers, and leaves them alone."""


@rule(
    pattern="""
        a = Relu|Abs|Ceil|Floor|Round|Sign(x)
        y = Relu|Abs|Ceil|Floor|Round|Sign(a)
    """,
    rewrite={
        "merge": "y = @a(x)<@a>",
        "share": """
            a = @a(x)<@a>
            y = a
        """,
    },
    exactness="exact",
    sets=("cleanup",),
)
def merge_idempotent_pair(m: Match) -> Replacement:
    """Relu of Relu is one Relu; likewise Abs and Sign, and Ceil, Floor and Round of one another.

    Algebra
        f(f(x)) = f(x); what is rounded to an integer is one

    Declines when
        the two are different operators, but for those that round.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                a = Relu(x)
                y = Relu(a)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = Relu(x)
            }
    """
    if m.a.op != m.y.op and not {m.a.op, m.y.op} <= ROUNDING:
        raise Decline
    return Replacement("share" if m.a.is_shared else "merge")


@rule(
    pattern="""
        a = Neg|Not(x)
        y = Neg|Not(a)
    """,
    rewrite={
        "alone": "y = x",
        "shared": """
            a = @a(x)<@a>
            y = x
        """,
    },
    exactness="exact",
    sets=("cleanup",),
)
def drop_inverse_pair(m: Match) -> Replacement:
    """Neg of Neg and Not of Not go.

    Algebra
        both only flip a bit, and flip it back: the sign of NaN and of zero included

    Declines when
        both sides are interface of a graph: an output must be made by a node.

    Example
        before:
            g (bool[N] x) => (bool[N] y) {
                a = Not(x)
                b = Not(a)
                y = And(b, x)
            }
        after:
            g (bool[N] x) => (bool[N] y) {
                y = And(x, x)
            }
    """
    return Replacement("shared" if m.a.is_shared else "alone")


@rule(
    pattern="""
        a = Sigmoid|HardSigmoid|Softmax|Exp|Abs(x)
        y = Relu(a)
    """,
    rewrite={
        "alone": "y = @a(x)<@a>",
        "shared": """
            a = @a(x)<@a>
            y = a
        """,
    },
    exactness="exact",
    sets=("cleanup",),
)
def drop_relu_of_nonnegative(m: Match) -> Replacement:
    """A Relu of what is never negative goes.

    Algebra
        max(0, a) = a where a is +0 or above; NaN stays NaN

    Declines when
        the operator in front of it is an Abs that is not known to be of floats or unsigned integers: the lowest integer
        stays negative.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                a = Softmax(x)
                y = Relu(a)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                y = Softmax(x)
            }
    """
    require_nonnegative(m.a)
    return Replacement("shared" if m.a.is_shared else "alone")


@rule(
    pattern="""
        a = Clip(x, low1?: const, high1?: const)
        y = Clip(a, low2?: const, high2?: const)
    """,
    rewrite="y = Clip(x, Low, High)",
    exactness="exact",
    sets=("cleanup",),
    tag="merged",
)
def merge_clips(m: Match) -> Replacement:
    """Clip of Clip is one Clip.

    Algebra
        clip is monotone, so clip2(clip1(x)) = clip(x, clip2(low1), clip2(high1)); a bound that is missing gives way

    Declines when
        a bound is NaN, infinite or not constant;
        a low bound lies above a high one (the sign of a zero bound would depend on x);
        the inner result is used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                zero = Constant<value = float {0.0}>()
                six = Constant<value = float {6.0}>()
                five = Constant<value = float {5.0}>()
                a = Clip(x, zero, six)
                y = Clip(a, , five)
            }
        after:
            g (float[N] x) => (float[N] y) {
                zero = Constant<value = float {0.0}>()
                five = Constant<value = float {5.0}>()
                y = Clip(x, zero, five)
            }
    """
    low1, high1, low2, high2 = (_bound(b) for b in (m.low1, m.high1, m.low2, m.high2))
    if any(bound is not None and np.isinf(bound) for bound in (low1, high1, low2, high2)):
        raise Decline("a bound is infinite, and a missing one is the largest number")
    for low, high in ((low1, high1), (low2, high2)):
        if low is not None and high is not None and low > high:
            raise Decline(f"the bounds {low} and {high} are the wrong way round")
    for low, high in ((low1, high2), (low2, high1)):
        if low is not None and high is not None and low > high:
            raise Decline(f"the bounds do not overlap: all becomes {low if high is high1 else high}")
    return Replacement(Low=_clip(low1, low2, high2, low2), High=_clip(high1, low2, high2, high2))


def _bound(operand: Operand | None) -> Any:
    if operand is None:
        return None
    value = operand.value.reshape(())
    if np.isnan(value):
        raise Decline(f"'{operand.name}' is NaN")
    return value


def _clip(bound: Any, low: Any, high: Any, missing: Any) -> Any:
    """A bound of the inner Clip, clipped by the outer one."""
    if bound is None:
        return missing
    if low is not None and bound < low:
        bound = low
    return high if high is not None and bound > high else bound

"""Rectifiers and clips that follow one another, and Min with Max: one Clip."""

from __future__ import annotations

from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._conditions import require_same_rank, require_single_or_half


@rule(
    pattern="""
        r = Relu(x)
        y = Clip(r, low?: const, high: const)
    """,
    rewrite="y = Clip(x, Low, high)",
    exactness="exact",
    sets=("fusion",),
    opset=(6, None),
    tag="clipped",
    recursive=True,
)
def fuse_relu_into_clip(m: Match) -> Replacement:
    """A Relu in front of a Clip is its lower bound.

    Algebra
        clip(max(x, 0), low, high) = clip(x, max(low, 0), high)

    Declines when
        the upper bound is missing, not positive, or below the lower one; a bound is NaN;
        the Relu is used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                six = Constant<value = float {6.0}>()
                r = Relu(x)
                y = Clip(r, , six)
            }
        after:
            g (float[N] x) => (float[N] y) {
                zero = Constant<value = float {0.0}>()
                six = Constant<value = float {6.0}>()
                y = Clip(x, zero, six)
            }
    """
    low, high = _bound(m.low), _bound(m.high)
    if not high > 0 or (low is not None and low > high):
        raise Decline(f"the bounds {low} and {high} leave nothing of what is positive")
    return Replacement(Low=m.low if low is not None and low > 0 else np.zeros((), m.high.value.dtype))


@rule(
    pattern="""
        c = Clip(x, low?: const, high?: const)
        y = Relu(c)
    """,
    rewrite="y = Clip(x, Low, high)",
    exactness="rounding",
    sets=("fusion",),
    opset=(6, None),
    tag="clipped",
    recursive=True,
)
def fuse_relu_after_clip(m: Match) -> Replacement:
    """A Relu behind a Clip is its lower bound.

    Algebra
        max(clip(x, low, high), 0) = clip(x, max(low, 0), high) where high > 0; the sign of a zero may change

    Declines when
        the upper bound is not positive, or below the lower one; a bound is NaN; the Clip has no bound at all;
        the Clip is used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                one = Constant<value = float {1.0}>()
                minus = Constant<value = float {-1.0}>()
                c = Clip(x, minus, one)
                y = Relu(c)
            }
        after:
            g (float[N] x) => (float[N] y) {
                zero = Constant<value = float {0.0}>()
                one = Constant<value = float {1.0}>()
                y = Clip(x, zero, one)
            }
    """
    low, high = _bound(m.low), _bound(m.high)
    given = m.high if m.high is not None else m.low
    if given is None:
        raise Decline("the Clip has no bound")
    if high is not None and (not high > 0 or (low is not None and low > high)):
        raise Decline(f"the bounds {low} and {high} leave nothing of what is positive")
    return Replacement(Low=m.low if low is not None and low > 0 else np.zeros((), given.value.dtype))


@rule(
    pattern="""
        a = Min|Max(x, inner: const)
        y = Min|Max(a, outer: const)
    """,
    rewrite="y = Clip(x, Low, High)",
    exactness="rounding",
    sets=("fusion",),
    opset=(6, None),
    tag="clipped",
)
def fuse_min_max(m: Match) -> Replacement:
    """Min and Max of one number each are one Clip.

    Algebra
        max(min(x, high), low) = min(max(x, low), high) = clip(x, low, high) where low <= high

    Declines when
        both are the same operator; a bound is not one number, or NaN; low is above high;
        a bound raises the rank of x, or a rank is unknown;
        x is double and the opset below 12 (ONNX Runtime has no such Clip);
        the inner result is used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                six = Constant<value = float {6.0}>()
                zero = Constant<value = float {0.0}>()
                a = Min(x, six)
                y = Max(a, zero)
            }
        after:
            g (float[N] x) => (float[N] y) {
                zero = Constant<value = float {0.0}>()
                six = Constant<value = float {6.0}>()
                y = Clip(x, zero, six)
            }
    """
    if m.a.op == m.y.op:
        raise Decline
    require_same_rank(m.x, m.y)
    if m.opset < 12:
        require_single_or_half(m.x, "Clip")
    inner, outer = _bound(m.inner), _bound(m.outer)
    low, high = (inner, outer) if m.a.op == "Max" else (outer, inner)
    if low > high:
        raise Decline(f"the bounds {low} and {high} are the wrong way round")
    return Replacement(Low=low.reshape(()), High=high.reshape(()))


def _bound(operand: Operand | None) -> Any:
    """The one number of a bound, in its own dtype; None where it is missing. Raises Decline for several, and for NaN."""
    if operand is None:
        return None
    if operand.value.size != 1:
        raise Decline(f"'{operand.name}' of shape {list(operand.value.shape)} is not one number")
    value = operand.value.reshape(())
    if np.isnan(value):
        raise Decline(f"'{operand.name}' is NaN")
    return value

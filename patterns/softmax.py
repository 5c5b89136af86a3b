"""Softmax and its logarithm written out: one operator again."""

from __future__ import annotations

from surgeon_passes import Decline, Match, Replacement, rule

from ._dims import ints


@rule(
    pattern="""
        top = ReduceMax(x, axes: const)<keepdims=1>
        e = Exp(Sub(x, top))
        y = Div(e, ReduceSum(e, axes: const)<keepdims=1>)
    """,
    rewrite="y = Softmax(x)<axis=@axis>",
    exactness="rounding",
    sets=("fusion",),
    opset=(13, None),
)
def fuse_softmax(m: Match) -> Replacement:
    """Exp of what x is below its maximum, over its sum, is one Softmax.

    Without the maximum nothing is rewritten: there an x of 89 gives NaN.

    Algebra
        softmax(x) = eˣ⁻ᵐ / Σ eˣ⁻ᵐ with m = max(x)

    Declines when
        the opset is below 13;
        maximum and sum are not over one axis;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N,4] x) => (float[N,4] y) {
                axes = Constant<value = int64[1] {-1}>()
                m = ReduceMax(x, axes)
                d = Sub(x, m)
                e = Exp(d)
                s = ReduceSum(e, axes)
                y = Div(e, s)
            }
        after:
            g (float[N,4] x) => (float[N,4] y) {
                y = Softmax<axis = -1>(x)
            }
    """
    return Replacement(axis=_axis(m))


@rule(
    pattern="""
        top = ReduceMax(x, axes: const)<keepdims=1>
        d = Sub(x, top)
        y = Sub(d, Log(ReduceSum(Exp(d), axes: const)<keepdims=1>))
    """,
    rewrite="y = LogSoftmax(x)<axis=@axis>",
    exactness="rounding",
    sets=("fusion",),
    opset=(13, None),
)
def fuse_log_softmax(m: Match) -> Replacement:
    """What x is below its maximum, less Log of the sum of its Exp, is one LogSoftmax.

    Algebra
        logsoftmax(x) = (x - m) - ln Σ eˣ⁻ᵐ with m = max(x)

    Declines when
        the opset is below 13;
        maximum and sum are not over one axis;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N,4] x) => (float[N,4] y) {
                axes = Constant<value = int64[1] {-1}>()
                m = ReduceMax(x, axes)
                d = Sub(x, m)
                e = Exp(d)
                s = ReduceSum(e, axes)
                l = Log(s)
                y = Sub(d, l)
            }
        after:
            g (float[N,4] x) => (float[N,4] y) {
                y = LogSoftmax<axis = -1>(x)
            }
    """
    return Replacement(axis=_axis(m))


@rule(
    pattern="""
        s = Softmax(x)
        y = Log(s)
    """,
    rewrite="y = LogSoftmax(x)<@s>",
    exactness="rounding",
    sets=("fusion",),
    opset=(13, None),
)
def fuse_log_of_softmax(m: Match) -> Replacement:
    """Log of Softmax is one LogSoftmax.

    Algebra
        ln softmax(x) = logsoftmax(x); where x is more than 103 below the maximum, Softmax is 0 in float32 and its Log
        -infinity, while LogSoftmax gives the value

    Declines when
        the opset is below 13;
        the Softmax is used elsewhere.

    Example
        before:
            g (float[N,4] x) => (float[N,4] y) {
                s = Softmax<axis = 1>(x)
                y = Log(s)
            }
        after:
            g (float[N,4] x) => (float[N,4] y) {
                y = LogSoftmax<axis = 1>(x)
            }
    """
    return Replacement()


def _axis(m: Match) -> int:
    axes = ints(m.axes)
    if len(axes) != 1:
        raise Decline(f"the sum is over the axes {axes}")
    return axes[0]

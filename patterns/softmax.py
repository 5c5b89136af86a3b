"""Softmax and its logarithm written out: one operator again.

Along the last axis ONNX Runtime is two to four times as fast with the operator; along another, where its kernel transposes,
five times as fast with what is written out: rules of the set "compact".
"""

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
        maximum and sum are not over the last axis alone, or the rank is unknown;
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
    return Replacement(axis=_axis(m, last=True))


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
        maximum and sum are not over the last axis alone, or the rank is unknown;
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
    return Replacement(axis=_axis(m, last=True))


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


@rule(
    pattern="""
        top = ReduceMax(x, axes: const)<keepdims=1>
        e = Exp(Sub(x, top))
        y = Div(e, ReduceSum(e, axes: const)<keepdims=1>)
    """,
    rewrite="y = Softmax(x)<axis=@axis>",
    exactness="rounding",
    sets=("compact",),
    opset=(13, None),
)
def fuse_softmax_along_inner_axis(m: Match) -> Replacement:
    """fuse_softmax along another axis than the last.

    Fewer nodes, but slower: 5 to 15 times the time in ONNX Runtime, along the channels of an image.

    Algebra
        softmax(x) = eˣ⁻ᵐ / Σ eˣ⁻ᵐ with m = max(x)

    Declines when
        the opset is below 13;
        maximum and sum are not over one axis;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N,4,2] x) => (float[N,4,2] y) {
                axes = Constant<value = int64[1] {1}>()
                m = ReduceMax(x, axes)
                d = Sub(x, m)
                e = Exp(d)
                s = ReduceSum(e, axes)
                y = Div(e, s)
            }
        after:
            g (float[N,4,2] x) => (float[N,4,2] y) {
                y = Softmax<axis = 1>(x)
            }
    """
    return Replacement(axis=_axis(m, last=False))


@rule(
    pattern="""
        top = ReduceMax(x, axes: const)<keepdims=1>
        d = Sub(x, top)
        y = Sub(d, Log(ReduceSum(Exp(d), axes: const)<keepdims=1>))
    """,
    rewrite="y = LogSoftmax(x)<axis=@axis>",
    exactness="rounding",
    sets=("compact",),
    opset=(13, None),
)
def fuse_log_softmax_along_inner_axis(m: Match) -> Replacement:
    """fuse_log_softmax along another axis than the last.

    Fewer nodes, but slower: 5 to 12 times the time in ONNX Runtime, along the channels of an image.

    Algebra
        logsoftmax(x) = (x - m) - ln Σ eˣ⁻ᵐ with m = max(x)

    Declines when
        the opset is below 13;
        maximum and sum are not over one axis;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N,4,2] x) => (float[N,4,2] y) {
                axes = Constant<value = int64[1] {1}>()
                m = ReduceMax(x, axes)
                d = Sub(x, m)
                e = Exp(d)
                s = ReduceSum(e, axes)
                l = Log(s)
                y = Sub(d, l)
            }
        after:
            g (float[N,4,2] x) => (float[N,4,2] y) {
                y = LogSoftmax<axis = 1>(x)
            }
    """
    return Replacement(axis=_axis(m, last=False))


def _axis(m: Match, *, last: bool) -> int:
    """The one axis of the sum. Raises Decline for several, and for another than the last where that is asked for."""
    axes = ints(m.axes)
    if len(axes) != 1:
        raise Decline(f"the sum is over the axes {axes}")
    if last and axes[0] != -1 and (m.x.rank is None or axes[0] != m.x.rank - 1):
        raise Decline(f"the sum is over axis {axes[0]}, not certainly the last")
    return axes[0]

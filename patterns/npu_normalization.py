"""Set "npu": normalizations as means, products and a square root.

MeanVarianceNormalization stays: of a constant input ONNX makes 0 and ONNX Runtime NaN, so no form of it can be checked.
"""

from __future__ import annotations

from onnx import TensorProto

from surgeon_passes import Decline, Match, Operand, Replacement, rule

SETS = ("npu",)
WIDE = (TensorProto.FLOAT, TensorProto.DOUBLE)


@rule(
    pattern="y = LayerNormalization(x, scale, bias?)",
    rewrite={
        "biased": """
            d = Sub(x, ReduceMean(x, Axes)<keepdims=1>)
            s = Sqrt(Add(ReduceMean(Mul(d, d), Axes)<keepdims=1>, Epsilon))
            y = Add(Mul(Div(d, s), scale), bias)
        """,
        "plain": """
            d = Sub(x, ReduceMean(x, Axes)<keepdims=1>)
            s = Sqrt(Add(ReduceMean(Mul(d, d), Axes)<keepdims=1>, Epsilon))
            y = Mul(Div(d, s), scale)
        """,
    },
    exactness="rounding",
    sets=SETS,
    opset=(17, None),
    may_grow=True,
    opposes=("fuse_layer_normalization", "fold_constant_into_layer_normalization"),
)
def decompose_layer_normalization(m: Match) -> Replacement:
    """LayerNormalization is a mean, a variance, a division and a scale.

    Algebra
        (x - mean(x)) / √(mean((x - mean(x))²) + epsilon)·scale + bias, means over the axes from ``axis`` on

    Declines when
        the rank is unknown;
        x is of half precision: squares of what LayerNormalization computes in single precision would overflow;
        the statistics are used.

    Example
        before:
            g (float[N,4] x) => (float[N,4] y) {
                scale = Constant<value = float[4] {1.0, 2.0, 3.0, 4.0}>()
                y = LayerNormalization(x, scale)
            }
        after:
            g (float[N,4] x) => (float[N,4] y) {
                scale = Constant<value = float[4] {1.0, 2.0, 3.0, 4.0}>()
                axes = Constant<value = int64[1] {1}>()
                eps = Constant<value = float {0.00001}>()
                mu = ReduceMean<keepdims = 1>(x, axes)
                d = Sub(x, mu)
                q = Mul(d, d)
                v = ReduceMean<keepdims = 1>(q, axes)
                e = Add(v, eps)
                s = Sqrt(e)
                n = Div(d, s)
                y = Mul(n, scale)
            }
    """
    outcome = "plain" if m.bias is None else "biased"
    return Replacement(outcome, Axes=_axes_from(m), Epsilon=float(m.y.attr("epsilon")))


@rule(
    pattern="y = RMSNormalization(x, scale)",
    rewrite="""
        s = Sqrt(Add(ReduceMean(Mul(x, x), Axes)<keepdims=1>, Epsilon))
        y = Mul(Div(x, s), scale)
    """,
    exactness="rounding",
    sets=SETS,
    opset=(23, None),
    may_grow=True,
    opposes=("fuse_rms_normalization", "fold_scale_into_rms_normalization"),
)
def decompose_rms_normalization(m: Match) -> Replacement:
    """RMSNormalization is a mean of squares, a division and a scale.

    Algebra
        x / √(mean(x²) + epsilon)·scale, the mean over the axes from ``axis`` on

    Declines when
        the rank is unknown;
        x is of half precision: squares of what RMSNormalization computes in single precision would overflow.

    Example
        before:
            g (float[N,4] x) => (float[N,4] y) {
                scale = Constant<value = float[4] {1.0, 2.0, 3.0, 4.0}>()
                y = RMSNormalization(x, scale)
            }
        after:
            g (float[N,4] x) => (float[N,4] y) {
                scale = Constant<value = float[4] {1.0, 2.0, 3.0, 4.0}>()
                axes = Constant<value = int64[1] {1}>()
                eps = Constant<value = float {0.00001}>()
                q = Mul(x, x)
                v = ReduceMean<keepdims = 1>(q, axes)
                e = Add(v, eps)
                s = Sqrt(e)
                n = Div(x, s)
                y = Mul(n, scale)
            }
    """
    return Replacement(Axes=_axes_from(m), Epsilon=float(m.y.attr("epsilon")))


def _axes_from(m: Match) -> list[int]:
    """The normalised axes, ``axis`` and what follows. Raises Decline for half precision and an unknown rank."""
    _require_wide(m.x)
    if m.x.rank is None:
        raise Decline(f"the rank of '{m.x.name}' is unknown")
    return list(range(m.axis("y"), m.x.rank))


def _require_wide(x: Operand) -> None:
    if x.dtype not in WIDE:
        raise Decline(f"'{x.name}' is of half precision, or of unknown type: its squares may overflow")


@rule(
    pattern="y = GroupNormalization(x, scale, bias)",
    rewrite="""
        r = Reshape(x, Grouped)
        d = Sub(r, ReduceMean(r, Axes)<keepdims=1>)
        s = Sqrt(Add(ReduceMean(Mul(d, d), Axes)<keepdims=1>, Epsilon))
        n = Reshape(Div(d, s), Target)
        y = Add(Mul(n, Reshape(scale, Channels)), Reshape(bias, Channels))
    """,
    exactness="rounding",
    sets=SETS,
    opset=(21, None),
    may_grow=True,
    opposes=("fuse_group_normalization", "fold_constant_into_group_normalization"),
)
def decompose_group_normalization(m: Match) -> Replacement:
    """GroupNormalization is a normalization of the input reshaped to groups, and a scale and bias per channel.

    Algebra
        (r - mean(r)) / √(mean((r - mean(r))²) + epsilon) with r = x as [N, groups, rest], means over rest;
        then, as x's shape again, ·scale + bias per channel

    Declines when
        the opset is below 21, where scale and bias are per group;
        more than one size behind the channels is unknown, or the channels are;
        x is of half precision: squares of what GroupNormalization computes in single precision would overflow;
        x is double, and stash_type has the statistics in single precision.

    Example
        before:
            g (float[N,4,W] x) => (float[N,4,W] y) {
                scale = Constant<value = float[4] {1.0, 2.0, 3.0, 4.0}>()
                y = GroupNormalization<num_groups = 2>(x, scale, scale)
            }
        after:
            g (float[N,4,W] x) => (float[N,4,W] y) {
                scale = Constant<value = float[4] {1.0, 2.0, 3.0, 4.0}>()
                grouped = Constant<value = int64[3] {0, 2, -1}>()
                axes = Constant<value = int64[1] {2}>()
                eps = Constant<value = float {0.00001}>()
                target = Constant<value = int64[3] {0, 4, -1}>()
                channels = Constant<value = int64[3] {1, 4, 1}>()
                r = Reshape(x, grouped)
                mu = ReduceMean<keepdims = 1>(r, axes)
                d = Sub(r, mu)
                q = Mul(d, d)
                v = ReduceMean<keepdims = 1>(q, axes)
                e = Add(v, eps)
                s = Sqrt(e)
                n = Div(d, s)
                back = Reshape(n, target)
                k = Reshape(scale, channels)
                m = Mul(back, k)
                b = Reshape(scale, channels)
                y = Add(m, b)
            }
    """
    _require_wide(m.x)
    if m.x.dtype == TensorProto.DOUBLE and m.y.attr("stash_type") == TensorProto.FLOAT:
        raise Decline("of doubles the statistics are in single precision")
    shape = m.x.shape
    if shape is None or len(shape) < 2 or not isinstance(shape[1], int):
        raise Decline(f"the channels of '{m.x.name}' are unknown")
    rest = [d if isinstance(d, int) else -1 for d in shape[2:]]
    if rest.count(-1) > 1 or 0 in rest:
        raise Decline(f"more than one size of '{m.x.name}' is unknown, or it is empty")
    return Replacement(
        Grouped=[0, int(m.y.attr("num_groups")), -1],
        Target=[0, shape[1], *rest],
        Channels=[1, shape[1], *(1 for _ in rest)],
        Axes=[2],
        Epsilon=float(m.y.attr("epsilon")),
    )


@rule(
    pattern="y = LpNormalization(x)",
    rewrite={
        "one": """
            n = ReduceL1(x, Axes)<keepdims=1>
            y = Div(x, Add(n, Sub(1, Sign(n))))
        """,
        "two": """
            n = ReduceL2(x, Axes)<keepdims=1>
            y = Div(x, Add(n, Sub(1, Sign(n))))
        """,
    },
    exactness="rounding",
    sets=SETS,
    opset=(11, None),
    may_grow=True,
    opposes=("fuse_lp_normalization",),
)
def decompose_lp_normalization(m: Match) -> Replacement:
    """LpNormalization is a division by the norm, by one where that is zero.

    Algebra
        x / (‖x‖ + (1 - sign(‖x‖))) over the axis: 0 where ‖x‖ = 0, as x is 0 there, too

    Declines when
        x is of half precision: what ReduceL2 squares may overflow.

    Example
        before:
            g (float[N,4] x) => (float[N,4] y) {
                y = LpNormalization<axis = 1, p = 1>(x)
            }
        after:
            g (float[N,4] x) => (float[N,4] y) {
                axes = Constant<value = int64[1] {1}>()
                one = Constant<value = float {1.0}>()
                n = ReduceL1<keepdims = 1>(x, axes)
                g = Sign(n)
                z = Sub(one, g)
                s = Add(n, z)
                y = Div(x, s)
            }
    """
    _require_wide(m.x)
    return Replacement("one" if m.y.attr("p") == 1 else "two", Axes=[int(m.y.attr("axis"))])

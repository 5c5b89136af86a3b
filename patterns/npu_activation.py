"""Set "npu": activations that compilers for accelerators commonly lack, as plain elementwise operators."""

from __future__ import annotations

from onnx import TensorProto

from surgeon_passes import Decline, Match, Replacement, rule

SETS = ("npu",)
FLOAT, FLOAT16, DOUBLE = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE


@rule(
    pattern="y = HardSwish(x)",
    rewrite="y = Mul(x, Mul(Clip(Add(x, 3), 0, 6), 0.16666666666666666))",
    exactness="rounding",
    sets=SETS,
    opset=(14, None),
    may_grow=True,
    opposes=("fuse_hard_swish", "fuse_written_out_hard_swish"),
)
def decompose_hard_swish(m: Match) -> Replacement:
    """HardSwish is a product of its input and a Clip.

    Algebra
        hardswish(x) = x·min(max(x + 3, 0), 6)/6

    Declines when
        x is double: ONNX defines HardSwish by an attribute, and attributes are float32, so that a sixth is off by 1e-8.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                y = HardSwish(x)
            }
        after:
            g (float[N] x) => (float[N] y) {
                three = Constant<value = float {3.0}>()
                zero = Constant<value = float {0.0}>()
                six = Constant<value = float {6.0}>()
                sixth = Constant<value = float {0.16666667}>()
                s = Add(x, three)
                c = Clip(s, zero, six)
                g = Mul(c, sixth)
                y = Mul(x, g)
            }
    """
    if m.x.dtype == DOUBLE:
        raise Decline("for doubles HardSwish takes the sixth that a float32 holds")
    return Replacement()


@rule(
    pattern="y = HardSigmoid(x)",
    rewrite="y = Clip(Add(Mul(x, Alpha), Beta), 0, 1)",
    exactness="rounding",
    sets=SETS,
    may_grow=True,
    opposes=("fuse_hard_sigmoid", "fuse_scaled_clip"),
)
def decompose_hard_sigmoid(m: Match) -> Replacement:
    """HardSigmoid is a Clip of a straight line.

    Algebra
        hardsigmoid(x) = min(max(alpha·x + beta, 0), 1)

    Declines when
        a function's caller gives alpha or beta.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                y = HardSigmoid<alpha = 0.25, beta = 0.5>(x)
            }
        after:
            g (float[N] x) => (float[N] y) {
                alpha = Constant<value = float {0.25}>()
                beta = Constant<value = float {0.5}>()
                zero = Constant<value = float {0.0}>()
                one = Constant<value = float {1.0}>()
                p = Mul(x, alpha)
                s = Add(p, beta)
                y = Clip(s, zero, one)
            }
    """
    return Replacement(Alpha=float(m.y.attr("alpha")), Beta=float(m.y.attr("beta")))


@rule(
    pattern="y = Gelu(x)",
    rewrite={
        "none": "y = Mul(Mul(x, 0.5), Add(Erf(Mul(x, 0.7071067811865476)), 1))",
        "tanh": """
            inner = Mul(Add(x, Mul(Mul(x, Mul(x, x)), 0.044715)), 0.7978845608028654)
            y = Mul(Mul(x, 0.5), Add(Tanh(inner), 1))
        """,
    },
    exactness="rounding",
    sets=SETS,
    opset=(20, None),
    may_grow=True,
    opposes=("fuse_gelu", "fuse_tanh_gelu"),
)
def decompose_gelu(m: Match) -> Replacement:
    """Gelu is written with Erf, or with Tanh where it says so: never one for the other.

    Algebra
        gelu(x) = x·½·(1 + erf(x/√2));  approximate = "tanh": x·½·(1 + tanh(√(2/pi)·(x + 0.044715·x³)))

    Declines when
        a function's caller gives approximate.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                y = Gelu(x)
            }
        after:
            g (float[N] x) => (float[N] y) {
                half = Constant<value = float {0.5}>()
                root = Constant<value = float {0.70710678}>()
                one = Constant<value = float {1.0}>()
                h = Mul(x, half)
                d = Mul(x, root)
                e = Erf(d)
                s = Add(e, one)
                y = Mul(h, s)
            }
    """
    return Replacement(str(m.y.attr("approximate")))


@rule(
    pattern="y = Mish(x)",
    rewrite="y = Mul(x, Tanh(Softplus(x)))",
    exactness="rounding",
    sets=SETS,
    opset=(18, None),
    may_grow=True,
    opposes=("fuse_mish",),
)
def decompose_mish(m: Match) -> Replacement:
    """Mish is a product of its input and a Tanh.

    Algebra
        mish(x) = x·tanh(softplus(x))

    Declines when
        never.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                y = Mish(x)
            }
        after:
            g (float[N] x) => (float[N] y) {
                s = Softplus(x)
                t = Tanh(s)
                y = Mul(x, t)
            }
    """
    return Replacement()


@rule(
    pattern="y = Swish(x)",
    rewrite={"one": "y = Mul(x, Sigmoid(x))", "other": "y = Mul(x, Sigmoid(Mul(x, Alpha)))"},
    exactness="rounding",
    sets=SETS,
    opset=(24, None),
    may_grow=True,
    opposes=("fuse_swish",),
)
def decompose_swish(m: Match) -> Replacement:
    """Swish is a product of its input and a Sigmoid.

    Algebra
        swish(x) = x·sigmoid(alpha·x)

    Declines when
        a function's caller gives alpha.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                y = Swish(x)
            }
        after:
            g (float[N] x) => (float[N] y) {
                s = Sigmoid(x)
                y = Mul(x, s)
            }
    """
    alpha = float(m.y.attr("alpha"))
    return Replacement("one") if alpha == 1 else Replacement("other", Alpha=alpha)


@rule(
    pattern="y = Celu(x)",
    rewrite={"one": "y = Elu(x)<alpha=1.0>", "other": "y = Mul(Elu(Mul(x, Inverse))<alpha=1.0>, Alpha)"},
    exactness="rounding",
    sets=SETS,
    opset=(12, None),
    may_grow=True,
)
def decompose_celu(m: Match) -> Replacement:
    """Celu is an Elu of the scaled input.

    Algebra
        celu(x) = max(0, x) + min(0, alpha·(exp(x/alpha) - 1)) = alpha·elu(x/alpha) for alpha > 0;
        of an x above alpha times the largest float32 the scaled form is infinite

    Declines when
        alpha is below 1e-3 (x/alpha may overflow), or a function's caller gives it.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                y = Celu<alpha = 2.0>(x)
            }
        after:
            g (float[N] x) => (float[N] y) {
                inverse = Constant<value = float {0.5}>()
                alpha = Constant<value = float {2.0}>()
                d = Mul(x, inverse)
                e = Elu<alpha = 1.0>(d)
                y = Mul(e, alpha)
            }
    """
    alpha = float(m.y.attr("alpha"))
    if not alpha > 0:
        raise Decline(f"alpha is {alpha:g}: the scaled form bends the other way")
    if alpha < 1e-3:
        raise Decline(f"alpha is {alpha:g}: x/alpha may overflow")
    return Replacement("one") if alpha == 1 else Replacement("other", Inverse=1 / alpha, Alpha=alpha)


@rule(
    pattern="y = Selu(x)",
    rewrite="y = Mul(Elu(x)<alpha=@alpha>, Gamma)",
    exactness="rounding",
    sets=SETS,
    may_grow=True,
)
def decompose_selu(m: Match) -> Replacement:
    """Selu is a scaled Elu.

    Algebra
        selu(x) = gamma·elu(x) with the same alpha

    Declines when
        a function's caller gives alpha or gamma.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                y = Selu<alpha = 1.5, gamma = 2.0>(x)
            }
        after:
            g (float[N] x) => (float[N] y) {
                gamma = Constant<value = float {2.0}>()
                e = Elu<alpha = 1.5>(x)
                y = Mul(e, gamma)
            }
    """
    return Replacement(alpha=float(m.y.attr("alpha")), Gamma=float(m.y.attr("gamma")))


@rule(
    pattern="y = IsNaN(x)",
    rewrite="y = Not(Equal(x, x))",
    exactness="exact",
    sets=SETS,
    opset=(11, None),
    may_grow=True,
)
def decompose_is_nan(m: Match) -> Replacement:
    """What is not a number is what does not equal itself.

    Algebra
        isnan(x) = ¬(x = x)

    Declines when
        the type of x is one that Equal does not take at this opset.

    Example
        before:
            g (float[N] x) => (bool[N] y) {
                y = IsNaN(x)
            }
        after:
            g (float[N] x) => (bool[N] y) {
                e = Equal(x, x)
                y = Not(e)
            }
    """
    if m.x.dtype not in (FLOAT, FLOAT16, DOUBLE):
        raise Decline(f"'{m.x.name}' is of a type that Equal may not take")
    return Replacement()

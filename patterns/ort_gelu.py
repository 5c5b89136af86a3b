"""Set "ort": Gelu and Swish in their forms, with the bias in front, as operators of com.microsoft."""

from __future__ import annotations

from typing import Any

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._arrays import along_last, require_float, scalar

SETS = ("ort",)


@rule(
    pattern="""
        d = Div(x, 1.4142135) | Mul(x, 0.70710678)
        y = prod(x, 0.5, sum(Erf(d), 1))
    """,
    rewrite="y = com.microsoft.Gelu(x)",
    exactness="rounding",
    sets=SETS,
    opset=(9, 19),
)
def fuse_erf_into_contrib_gelu(m: Match) -> Replacement:
    """Below opset 20, where ONNX has none, Gelu written with Erf is the Gelu of com.microsoft.

    Algebra
        gelu(x) = x·½·(1 + erf(x / √2))

    Declines when
        the type is not float32;
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
                y = com.microsoft.Gelu(x)
            }
    """
    _require_same_rank(m)
    return Replacement()


@rule(
    pattern="""
        inner = sum(x, prod(Pow(x, 3), 0.044715)) | sum(x, prod(x, x, x, 0.044715))
        y = prod(x, 0.5, sum(Tanh(prod(inner, 0.79788456)), 1))
    """,
    rewrite="y = com.microsoft.FastGelu(x)",
    exactness="rounding",
    sets=SETS,
    opset=(7, 19),
)
def fuse_tanh_into_fast_gelu(m: Match) -> Replacement:
    """Below opset 20, where ONNX has none, Gelu written with Tanh is FastGelu.

    Algebra
        fastgelu(x) = x·½·(1 + tanh(√(2/pi)·(x + 0.044715·x³)))

    Declines when
        the type is not float32;
        a constant raises the rank of x, or a rank is unknown;
        x is a scalar (the kernel of FastGelu takes none);
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
                y = com.microsoft.FastGelu(x)
            }
    """
    _require_same_rank(m)
    if m.x.rank == 0:
        raise Decline(f"'{m.x.name}' is a scalar: the kernel of FastGelu takes none")
    return Replacement()


def _require_same_rank(m: Match) -> None:
    """A constant of one element may still have many dims."""
    require_float(m.x)
    if m.x.rank is None or m.x.rank != m.y.rank:
        raise Decline(f"'{m.x.name}' and '{m.y.name}' are not known to have the same rank")


@rule(
    pattern="y = Gelu(Add(x, b: const))",
    rewrite={"none": "y = com.microsoft.BiasGelu(x, b)", "tanh": "y = com.microsoft.FastGelu(x, b)"},
    exactness="rounding",
    sets=SETS,
    late=True,
    opset=(20, None),
)
def fuse_bias_into_gelu(m: Match) -> Replacement:
    """A constant vector added in front of Gelu goes into BiasGelu, or FastGelu where it is the tanh form.

    Algebra
        biasgelu(x, b) = gelu(x + b)

    Declines when
        the type is not float32;
        the constant is no vector along the last axis;
        the sum is used elsewhere.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                b = Constant<value = float[2] {1.0, -1.0}>()
                s = Add(x, b)
                y = Gelu(s)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                b = Constant<value = float[2] {1.0, -1.0}>()
                y = com.microsoft.BiasGelu(x, b)
            }
    """
    along_last(m.x, m.b)
    return Replacement(str(m.y.attr("approximate")))


@rule(
    pattern="y = com.microsoft.Gelu(Add(x, b: const)) | com.microsoft.FastGelu(Add(x, b: const))",
    rewrite={"Gelu": "y = com.microsoft.BiasGelu(x, b)", "FastGelu": "y = com.microsoft.FastGelu(x, b)"},
    exactness="rounding",
    sets=SETS,
    late=True,
    recursive=True,
)
def fuse_bias_into_contrib_gelu(m: Match) -> Replacement:
    """A constant vector added in front of com.microsoft's Gelu or FastGelu goes into BiasGelu or FastGelu.

    Algebra
        biasgelu(x, b) = gelu(x + b);  fastgelu(x, b) = fastgelu(x + b)

    Declines when
        the type is not float32;
        the constant is no vector along the last axis;
        the sum is used elsewhere.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                b = Constant<value = float[2] {1.0, -1.0}>()
                s = Add(x, b)
                y = com.microsoft.Gelu(s)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                b = Constant<value = float[2] {1.0, -1.0}>()
                y = com.microsoft.BiasGelu(x, b)
            }
    """
    along_last(m.x, m.b)
    return Replacement(m.y.op)


@rule(
    pattern="""
        gate = Sigmoid(x) | Sigmoid(Mul(x, a: const))
        y = Mul(x, gate)
    """,
    rewrite="y = com.microsoft.QuickGelu(x)<alpha=@alpha>",
    exactness="rounding",
    sets=SETS,
    opposes=("fuse_swish",),
)
def fuse_quick_gelu(m: Match) -> Replacement:
    """A tensor times its Sigmoid (Swish, SiLU; or with a factor inside, as CLIP has it) is one QuickGelu.

    Algebra
        quickgelu(x) = x·sigmoid(alpha·x)

    Declines when
        the type is not float32;
        the factor is not one finite number;
        the Sigmoid is used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                a = Constant<value = float {1.702}>()
                p = Mul(x, a)
                s = Sigmoid(p)
                y = Mul(x, s)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = com.microsoft.QuickGelu<alpha = 1.702>(x)
            }
    """
    require_float(m.x)
    return Replacement(alpha=_factor(m))


def _factor(m: Match) -> float:
    factor: Operand | Any = m.a
    return 1.0 if factor is None else scalar(factor, m.x.rank)

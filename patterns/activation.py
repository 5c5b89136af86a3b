"""Smooth activations that exporters write out as several operators: one again where ONNX has it at the model's opset."""

from __future__ import annotations

from onnx import TensorProto

from surgeon_passes import Decline, Match, Replacement, rule

from ._arrays import floats
from ._conditions import number, require_same_rank, require_single_or_half

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
        gelu(x) = x·½·(1 + erf(x / √2)); where 2·x is beyond the largest number, the factors give infinity in some orders,
        and Gelu the value

    Declines when
        the opset is below 20, or x is double (ONNX Runtime has no such kernel);
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
    require_same_rank(m.x, m.y)
    require_single_or_half(m.x, "Gelu")
    return Replacement()


@rule(
    pattern="""
        t = prod(sum(x, prod(Pow(x, 3), 0.044715)), 0.79788456)
          | prod(sum(x, prod(x, x, x, 0.044715)), 0.79788456)
          | prod(x, 0.79788456, sum(prod(x, x, 0.044715), 1))
          | prod(x, 0.79788456, sum(prod(Pow(x, 2), 0.044715), 1))
        y = prod(x, 0.5, sum(Tanh(t), 1))
    """,
    rewrite='y = Gelu(x)<approximate="tanh">',
    exactness="rounding",
    sets=("fusion",),
    opset=(20, None),
)
def fuse_tanh_gelu(m: Match) -> Replacement:
    """Gelu written with Tanh, its factors in any order and association, is one Gelu.

    Algebra
        gelu(x) ≈ x·½·(1 + tanh(√(2/pi)·(x + 0.044715·x³))), which ONNX calls approximate = "tanh"; the polynomial also as
        x·(1 + 0.044715·x²)

    Declines when
        the opset is below 20, or x is double (ONNX Runtime computes it with constants of single precision);
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
    require_same_rank(m.x, m.y)
    require_single_or_half(m.x, "Gelu")
    return Replacement()


# --- Softplus, Mish, Swish -----------------------------------------------------------------------------------------------


@rule(
    pattern="y = Log(sum(Exp(x), 1))",
    rewrite="y = Softplus(x)",
    exactness="rounding",
    sets=("compact",),
)
def fuse_softplus(m: Match) -> Replacement:
    """Log of one plus Exp is one Softplus.

    Fewer nodes, but slower: ONNX Runtime computes Softplus element by element, 4.6 times the time of the three operators.

    Algebra
        softplus(x) = ln(1 + eˣ); from x = 89 on, eˣ is infinite in float32 and so is what was written out, while Softplus
        gives the value, x

    Declines when
        x is float16 (eˣ is infinite from 12 on: values that occur), or double (ONNX Runtime has no such kernel);
        the constant raises the rank of x, or a rank is unknown.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                one = Constant<value = float {1.0}>()
                e = Exp(x)
                s = Add(e, one)
                y = Log(s)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = Softplus(x)
            }
    """
    require_same_rank(m.x, m.y)
    if m.x.dtype != TensorProto.FLOAT:
        raise Decline(f"'{m.x.name}' is not known to be float32")
    return Replacement()


@rule(
    pattern="y = Where(Greater(x, threshold: const), x, Softplus(x))",
    rewrite="y = Softplus(x)",
    exactness="rounding",
    sets=("fusion",),
    opset=(9, None),
)
def drop_threshold_of_softplus(m: Match) -> Replacement:
    """Softplus that is x itself beyond a number, as torch has it, is Softplus.

    Algebra
        softplus(x) = x + ln(1 + e⁻ˣ), which is x but for a relative 2e-9 from 17 on, less than rounding

    Declines when
        the threshold is below 17, or not one number; x is double (there the difference shows);
        a constant raises the rank of x, or a rank is unknown;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                twenty = Constant<value = float {20.0}>()
                s = Softplus(x)
                far = Greater(x, twenty)
                y = Where(far, x, s)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = Softplus(x)
            }
    """
    require_same_rank(m.x, m.y)
    require_single_or_half(m.x, "Softplus")
    threshold = floats(m.threshold)
    if threshold.size != 1 or not threshold.reshape(()) >= 17:
        raise Decline(f"the threshold '{m.threshold.name}' is not one number from 17 on")
    return Replacement()


@rule(
    pattern="y = prod(x, Tanh(Softplus(x)))",
    rewrite="y = Mish(x)",
    exactness="rounding",
    sets=("fusion",),
    opset=(18, None),
)
def fuse_mish(m: Match) -> Replacement:
    """x times Tanh of Softplus is one Mish.

    The set "compact" turns a Softplus that is written out into one first.

    Algebra
        mish(x) = x·tanh(softplus(x))

    Declines when
        the opset is below 18;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                p = Softplus(x)
                t = Tanh(p)
                y = Mul(x, t)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = Mish(x)
            }
    """
    return Replacement()


@rule(
    pattern="""
        a = Mul(x, factor: const) | x
        y = prod(x, Sigmoid(a))
    """,
    rewrite="y = Swish(x)<alpha=@alpha>",
    exactness="rounding",
    sets=("compact",),
    opset=(24, None),
)
def fuse_swish(m: Match) -> Replacement:
    """x times Sigmoid of x, or of a multiple of x, is one Swish.

    Fewer nodes, but slower: ONNX Runtime has no kernel for Swish and computes its definition, 1.3 to 1.5 times the time.

    Algebra
        swish(x) = x·sigmoid(alpha·x): with alpha = 1 also called SiLU, with 1.702 quick Gelu

    Declines when
        the opset is below 24, or x is double (alpha would be rounded to single precision);
        alpha is not one finite number, or raises the rank; a rank is unknown;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                s = Sigmoid(x)
                y = Mul(x, s)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = Swish<alpha = 1.0>(x)
            }
    """
    require_single_or_half(m.x, "Swish")
    if m.factor is None:
        return Replacement(alpha=1.0)
    require_same_rank(m.x, m.y)
    return Replacement(alpha=number(m.factor))

"""Set "ort": operators of ONNX Runtime's own domain, com.microsoft, for models that run nowhere else.

Only what its CPU provider has a kernel for. float32 alone: other types fall back to casts, or have no kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._arrays import floats, require_float, scalar
from ._dims import same_shape

SETS = ("ort",)
SMALLEST, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


# --- activations ---------------------------------------------------------------------------------------------------------


def _activation(m: Match) -> dict[str, Any]:
    """``activation`` and ``activation_params`` of FusedConv for the node that makes ``y``."""
    op = m.y.op
    if op == "Clip":
        if m.low is None or m.high is None:
            raise Decline("the Clip has one bound only")
        bounds = [float(floats(bound).reshape(())) for bound in (m.low, m.high)]
        return {"activation": op, "activation_params": bounds}
    names = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}.get(op, ())
    return {"activation": op, "activation_params": [float(m.y.attr(name)) for name in names] or None}


@rule(
    pattern="""
        c = Conv(x, w, b?)
        y = Relu|Sigmoid|Tanh|LeakyRelu|HardSigmoid(c) | Clip(c, low?: const, high?: const)
    """,
    rewrite="y = com.microsoft.FusedConv(x, w, b)<@c, activation=@activation, activation_params=@activation_params>",
    exactness="rounding",
    sets=SETS,
    late=True,
)
def fuse_activation_into_conv(m: Match) -> Replacement:
    """A Conv and its activation are one FusedConv.

    Algebra
        FusedConv(x, w, b) = activation(Conv(x, w, b))

    Declines when
        the type is not float32;
        a Clip has one bound only, or a bound is not constant;
        the Conv is used elsewhere.

    Example
        before:
            g (float[1,1,H] x) => (float[1,1,H2] y) {
                w = Constant<value = float[1,1,3] {1.0, 2.0, 3.0}>()
                c = Conv<pads = [1, 1]>(x, w)
                y = LeakyRelu<alpha = 0.5>(c)
            }
        after:
            g (float[1,1,H] x) => (float[1,1,H2] y) {
                w = Constant<value = float[1,1,3] {1.0, 2.0, 3.0}>()
                y = com.microsoft.FusedConv<activation = "LeakyRelu", activation_params = [0.5], pads = [1, 1]>(x, w)
            }
    """
    require_float(m.x)
    return Replacement(**_activation(m))


@rule(
    pattern="""
        c = Conv(x, w, b?)
        y = Relu|Sigmoid|Tanh|LeakyRelu|HardSigmoid(Add(c, z)) | Clip(Add(c, z), low?: const, high?: const)
    """,
    rewrite="y = com.microsoft.FusedConv(x, w, b, z)<@c, activation=@activation, activation_params=@activation_params>",
    exactness="rounding",
    sets=SETS,
    late=True,
)
def fuse_sum_and_activation_into_conv(m: Match) -> Replacement:
    """A Conv, what is added to it and the activation of the sum are one FusedConv.

    Algebra
        FusedConv(x, w, b, z) = activation(Conv(x, w, b) + z)

    Declines when
        the type is not float32;
        the two summands are not known to have the same shape;
        a Clip has one bound only, or a bound is not constant;
        the Conv or the sum is used elsewhere.

    Example
        before:
            g (float[1,1,8] x, float[1,1,8] z) => (float[1,1,8] y) {
                w = Constant<value = float[1,1,3] {1.0, 2.0, 3.0}>()
                c = Conv<pads = [1, 1]>(x, w)
                s = Add(c, z)
                y = Relu(s)
            }
        after:
            g (float[1,1,8] x, float[1,1,8] z) => (float[1,1,8] y) {
                w = Constant<value = float[1,1,3] {1.0, 2.0, 3.0}>()
                y = com.microsoft.FusedConv<activation = "Relu", pads = [1, 1]>(x, w, , z)
            }
    """
    require_float(m.x, m.z)
    if not same_shape(m.c.shape, m.z.shape):
        raise Decline(f"'{m.c.name}' and '{m.z.name}' are not known to have the same shape")
    return Replacement(**_activation(m))


@rule(
    pattern="""
        g = Gemm(a, b, c?)
        y = Relu|Sigmoid|Tanh|LeakyRelu(g)
    """,
    rewrite="y = com.microsoft.FusedGemm(a, b, c)<@g, activation=@activation, activation_alpha=@alpha>",
    exactness="rounding",
    sets=SETS,
    late=True,
    opset=(7, None),
)
def fuse_activation_into_gemm(m: Match) -> Replacement:
    """A Gemm and its activation are one FusedGemm.

    Algebra
        FusedGemm(a, b, c) = activation(Gemm(a, b, c))

    Declines when
        the type is not float32;
        the Gemm is used elsewhere.

    Example
        before:
            g (float[N,2] a, float[2,3] b, float[3] c) => (float[N,3] y) {
                g = Gemm<alpha = 0.5>(a, b, c)
                y = Relu(g)
            }
        after:
            g (float[N,2] a, float[2,3] b, float[3] c) => (float[N,3] y) {
                y = com.microsoft.FusedGemm<activation = "Relu", alpha = 0.5>(a, b, c)
            }
    """
    require_float(m.a)
    alpha = float(m.y.attr("alpha")) if m.y.op == "LeakyRelu" else None
    return Replacement(activation=m.y.op, alpha=alpha)


# --- MatMul --------------------------------------------------------------------------------------------------------------


def _form(product: Operand, alpha: float = 1.0, flip_a: bool = False, flip_b: bool = False) -> dict[str, Any]:
    """Attributes of FusedMatMul for a MatMul or FusedMatMul that is scaled, or whose operands are flipped."""
    held = {"alpha": 1.0, "transA": 0, "transB": 0}
    if product.op == "FusedMatMul":
        held.update({k: v for k, v in product.node.attrs.items() if k in held})
        if any(product.node.attrs.get(name) for name in ("transBatchA", "transBatchB")):
            raise Decline(f"'{product.name}' transposes batches")
    scaled = float(held["alpha"]) * alpha
    if not SMALLEST <= abs(scaled) <= LARGEST:
        raise Decline(f"the factor {scaled:.3g} is out of the range of alpha, a float32")
    return {
        "alpha": scaled,
        "transA": int(held["transA"]) ^ flip_a,
        "transB": int(held["transB"]) ^ flip_b,
    }


def _require_matrices(m: Match) -> None:
    require_float(m.a, m.b)
    if (m.a.rank or 0) < 2 or (m.b.rank or 0) < 2:
        raise Decline("an operand is a vector, or of unknown rank")


@rule(
    pattern="""
        p = MatMul(a, b) | com.microsoft.FusedMatMul(a, b)
        y = Mul(p, s: const) | Div(p, s: const)
    """,
    rewrite="y = com.microsoft.FusedMatMul(a, b)<@form>",
    exactness="rounding",
    sets=SETS,
    late=True,
    recursive=True,
)
def fuse_scale_into_matmul(m: Match) -> Replacement:
    """A product of matrices times a number is one FusedMatMul.

    Algebra
        FusedMatMul(a, b) = alpha·(a·b)

    Declines when
        the type is not float32, or an operand is a vector;
        the factor is not one finite number, is zero, or is out of the range of a float32 where it is inverted or joined
        with another;
        the product is used elsewhere.

    Example
        before:
            g (float[N,2,3] a, float[N,3,4] b) => (float[N,2,4] y) {
                s = Constant<value = float {4.0}>()
                p = MatMul(a, b)
                y = Div(p, s)
            }
        after:
            g (float[N,2,3] a, float[N,3,4] b) => (float[N,2,4] y) {
                y = com.microsoft.FusedMatMul<alpha = 0.25, transA = 0, transB = 0>(a, b)
            }
    """
    _require_matrices(m)
    factor = scalar(m.s, m.p.rank)
    if m.y.op == "Div":
        if factor == 0:
            raise Decline(f"'{m.s.name}' is zero")
        factor = 1 / factor
    return Replacement(form=_form(m.p, factor))


@rule(
    pattern="""
        t = Transpose(x)<perm=@perm>
        y = MatMul(t, b) | com.microsoft.FusedMatMul(t, b)
    """,
    rewrite="y = com.microsoft.FusedMatMul(x, b)<@form>",
    exactness="rounding",
    sets=SETS,
    late=True,
    recursive=True,
)
def fuse_transposed_left_into_matmul(m: Match) -> Replacement:
    """A Transpose of the last two axes of the left operand goes into FusedMatMul.

    Algebra
        FusedMatMul<transA = 1>(x, b) = xᵀ·b

    Declines when
        the Transpose moves other axes, or is used elsewhere;
        the type is not float32, or an operand is a vector.

    Example
        before:
            g (float[N,3,2] x, float[N,3,4] b) => (float[N,2,4] y) {
                t = Transpose<perm = [0, 2, 1]>(x)
                y = MatMul(t, b)
            }
        after:
            g (float[N,3,2] x, float[N,3,4] b) => (float[N,2,4] y) {
                y = com.microsoft.FusedMatMul<alpha = 1.0, transA = 1, transB = 0>(x, b)
            }
    """
    _require_flip(m, m.b)
    return Replacement(form=_form(m.y, flip_a=True))


@rule(
    pattern="""
        t = Transpose(x)<perm=@perm>
        y = MatMul(a, t) | com.microsoft.FusedMatMul(a, t)
    """,
    rewrite="y = com.microsoft.FusedMatMul(a, x)<@form>",
    exactness="rounding",
    sets=SETS,
    late=True,
    recursive=True,
)
def fuse_transposed_right_into_matmul(m: Match) -> Replacement:
    """A Transpose of the last two axes of the right operand goes into FusedMatMul.

    Algebra
        FusedMatMul<transB = 1>(a, x) = a·xᵀ

    Declines when
        the Transpose moves other axes, or is used elsewhere;
        the type is not float32, or an operand is a vector.

    Example
        before:
            g (float[N,2,3] a, float[N,4,3] x) => (float[N,2,4] y) {
                t = Transpose<perm = [0, 2, 1]>(x)
                y = MatMul(a, t)
            }
        after:
            g (float[N,2,3] a, float[N,4,3] x) => (float[N,2,4] y) {
                y = com.microsoft.FusedMatMul<alpha = 1.0, transA = 0, transB = 1>(a, x)
            }
    """
    _require_flip(m, m.a)
    return Replacement(form=_form(m.y, flip_b=True))


def _require_flip(m: Match, other: Operand) -> None:
    """That the Transpose swaps the last two axes and no others. Raises Decline."""
    require_float(m.x, other)
    perm = list(m.attr("perm"))
    rank = len(perm)
    if rank < 2 or perm != [*range(rank - 2), rank - 1, rank - 2]:
        raise Decline(f"the Transpose moves other axes than the last two ({perm})")
    if (other.rank or 0) < 2:
        raise Decline("an operand is a vector, or of unknown rank")


# --- normalization -------------------------------------------------------------------------------------------------------


@rule(
    pattern="""
        s = Add(x, z)
        y = LayerNormalization(s, scale, bias?)
    """,
    rewrite={
        "alone": "y = com.microsoft.SkipLayerNormalization(x, z, scale, bias)<epsilon=@epsilon>",
        "kept": "y, , , s = com.microsoft.SkipLayerNormalization(x, z, scale, bias)<epsilon=@epsilon>",
    },
    exactness="rounding",
    sets=SETS,
    late=True,
    opset=(17, None),
)
def fuse_skip_layer_normalization(m: Match) -> Replacement:
    """A sum and its LayerNormalization are one SkipLayerNormalization, which gives the sum, too, where others read it.

    Algebra
        SkipLayerNormalization(x, z) = LayerNormalization(x + z) over the last axis

    Declines when
        the type is not float32, or the rank is neither 2 nor 3;
        the summands are not known to have the same shape;
        more axes than the last are normalised, or epsilon is negative;
        the scale or the bias is no vector of its size.

    Example
        before:
            g (float[N,2,4] x, float[N,2,4] z) => (float[N,2,4] y, float[N,2,4] s) {
                scale = Constant<value = float[4] {1.0, 2.0, 3.0, 4.0}>()
                s = Add(x, z)
                y = LayerNormalization<epsilon = 0.001>(s, scale)
            }
        after:
            g (float[N,2,4] x, float[N,2,4] z) => (float[N,2,4] y, float[N,2,4] s) {
                scale = Constant<value = float[4] {1.0, 2.0, 3.0, 4.0}>()
                y, a, b, s = com.microsoft.SkipLayerNormalization<epsilon = 0.001>(x, z, scale)
            }
    """
    _require_skip(m, m.scale, m.bias)
    return Replacement("kept" if m.s.is_shared else "alone", epsilon=_epsilon(m))


@rule(
    pattern="""
        s = Add(x, z)
        y = RMSNormalization(s, scale)
    """,
    rewrite={
        "alone": "y = com.microsoft.SkipSimplifiedLayerNormalization(x, z, scale)<epsilon=@epsilon>",
        "kept": "y, , , s = com.microsoft.SkipSimplifiedLayerNormalization(x, z, scale)<epsilon=@epsilon>",
    },
    exactness="rounding",
    sets=SETS,
    late=True,
    opset=(23, None),
)
def fuse_skip_rms_normalization(m: Match) -> Replacement:
    """A sum and its RMSNormalization are one SkipSimplifiedLayerNormalization, which gives the sum, too.

    Algebra
        SkipSimplifiedLayerNormalization(x, z) = RMSNormalization(x + z) over the last axis

    Declines when
        the type is not float32, or the rank is neither 2 nor 3;
        the summands are not known to have the same shape;
        more axes than the last are normalised, or epsilon is negative;
        the scale is no vector of its size.

    Example
        before:
            g (float[N,2,4] x, float[N,2,4] z) => (float[N,2,4] y) {
                scale = Constant<value = float[4] {1.0, 2.0, 3.0, 4.0}>()
                s = Add(x, z)
                y = RMSNormalization<epsilon = 0.001>(s, scale)
            }
        after:
            g (float[N,2,4] x, float[N,2,4] z) => (float[N,2,4] y) {
                scale = Constant<value = float[4] {1.0, 2.0, 3.0, 4.0}>()
                y = com.microsoft.SkipSimplifiedLayerNormalization<epsilon = 0.001>(x, z, scale)
            }
    """
    _require_skip(m, m.scale)
    return Replacement("kept" if m.s.is_shared else "alone", epsilon=_epsilon(m))


def _epsilon(m: Match) -> float:
    """Raises Decline where ONNX Runtime's operator would not load."""
    epsilon = float(m.y.attr("epsilon"))
    if not epsilon >= 0:
        raise Decline(f"epsilon is {epsilon:g}")
    return epsilon


def _require_skip(m: Match, *vectors: Operand | None) -> None:
    """The kernels broadcast nothing, as the normalizations would their scale and bias."""
    require_float(m.x, m.z, m.scale)
    rank = m.x.rank
    if rank not in (2, 3) or m.axis("y") != rank - 1:
        raise Decline("the rank is neither 2 nor 3, or more axes than the last are normalised")
    if not same_shape(m.x.shape, m.z.shape):
        raise Decline(f"'{m.x.name}' and '{m.z.name}' are not known to have the same shape")
    for vector in vectors:
        if vector is not None and not _along_the_last_axis(vector, m.x):
            raise Decline(f"'{vector.name}' is no vector of the size of the last axis of '{m.x.name}'")


def _along_the_last_axis(vector: Operand, x: Operand) -> bool:
    shape, whole = vector.shape, x.shape
    if shape is None or whole is None or len(shape) != 1:
        return False
    return (isinstance(shape[0], int) and shape[0] != 1) or same_shape(shape, whole[-1:])

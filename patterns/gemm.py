"""What a Gemm does besides multiplying: transposed operands, a factor, a sum. Weights need not be constant."""

from __future__ import annotations

from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._arrays import GEMM_TYPES, finite
from ._dims import broadcasts_into


@rule(
    pattern="""
        t = Transpose(x)
        y = Gemm(t, w, b?) | Gemm(w, t, b?)
    """,
    rewrite={"first": "y = Gemm(x, w, b)<@y, transA=@turned>", "second": "y = Gemm(w, x, b)<@y, transB=@turned>"},
    exactness="rounding",
    sets=("fusion",),
    recursive=True,
)
def fold_transpose_into_gemm(m: Match) -> Replacement:
    """A Transpose in front of a Gemm becomes its transA or transB.

    Algebra
        Gemm reads a matrix by rows or by columns

    Declines when
        the transposed matrix is used elsewhere, or twice.

    Example
        before:
            g (float[K,N] x, float[K,M] w) => (float[N,M] y) {
                t = Transpose<perm = [1, 0]>(x)
                y = Gemm(t, w)
            }
        after:
            g (float[K,N] x, float[K,M] w) => (float[N,M] y) {
                y = Gemm<transA = 1>(x, w)
            }
    """
    is_first = m.y.node.input(0) is m.t.tensor
    if is_first and m.y.node.input(1) is m.t.tensor:
        raise Decline(f"'{m.t.name}' is used twice")
    _require_matrix(m.t, m.x)
    turned = not m.y.attr("transA" if is_first else "transB")
    return Replacement("first" if is_first else "second", turned=int(turned))


def _require_matrix(t: Operand, x: Operand) -> None:
    """That ``t`` is the transposed matrix ``x``. Raises Decline."""
    if x.rank != 2:
        raise Decline(f"'{x.name}' is not known to be a matrix")
    perm = t.attr("perm")
    if perm is not None and list(perm) != [1, 0]:
        raise Decline


@rule(
    pattern="""
        t = Transpose(x)
        y = MatMul(t, w) | MatMul(w, t)
    """,
    rewrite={"first": "y = Gemm(x, w)<transA=1>", "second": "y = Gemm(w, x)<transB=1>"},
    exactness="rounding",
    sets=("fusion",),
    opset=(11, None),
)
def fuse_transposed_matmul(m: Match) -> Replacement:
    """A MatMul of matrices, one of them transposed, is one Gemm: similarities of two sets of embeddings, say.

    Algebra
        xᵀ·w = Gemm(x, w, transA = 1)

    Declines when
        one of them is not known to be a matrix; the type is none that ONNX Runtime has a Gemm for;
        the transposed matrix is used elsewhere.

    Example
        before:
            g (float[N,K] w, float[M,K] x) => (float[N,M] y) {
                t = Transpose<perm = [1, 0]>(x)
                y = MatMul(w, t)
            }
        after:
            g (float[N,K] w, float[M,K] x) => (float[N,M] y) {
                y = Gemm<transB = 1>(w, x)
            }
    """
    if m.w.rank != 2:
        raise Decline(f"'{m.w.name}' is not known to be a matrix")
    if m.w.tensor is m.t.tensor:
        raise Decline(f"'{m.t.name}' is used twice")
    _require_matrix(m.t, m.x)
    if m.x.dtype not in GEMM_TYPES:
        raise Decline(f"ONNX Runtime has no Gemm for the type of '{m.x.name}'")
    return Replacement("first" if m.y.node.input(0) is m.t.tensor else "second")


@rule(
    pattern="""
        c = Gemm(x, w, b?)
        y = Mul|Div(c, k: const)
    """,
    rewrite="y = Gemm(x, w, b)<@c, alpha=@alpha, beta=@beta>",
    exactness="rounding",
    sets=("fusion",),
    opset=(7, None),
)
def fold_factor_into_gemm(m: Match) -> Replacement:
    """One number multiplied with a Gemm goes into alpha and beta: weights may be computed or shared (a temperature).

    Algebra
        k·(alpha·A·B + beta·C) = (k·alpha)·A·B + (k·beta)·C

    Declines when
        the constant is not one number, raises the rank, is not finite, or divides by zero; alpha or beta would overflow,
        or the product is of doubles and the factor none that a float32 holds;
        the weight is constant and read by nothing else: the factor goes into it (fold_constant_into_gemm);
        the product is used elsewhere.

    Example
        before:
            g (float[N,K] x, float[K,M] w) => (float[N,M] y) {
                k = Constant<value = float {0.5}>()
                c = Gemm(x, w)
                y = Mul(c, k)
            }
        after:
            g (float[N,K] x, float[K,M] w) => (float[N,M] y) {
                y = Gemm<alpha = 0.5, beta = 0.5>(x, w)
            }
    """
    if isinstance(m.w.value, np.ndarray) and len(m.w.consumers) == 1 and (m.b is None or m.b.value is not None):
        raise Decline("the weight takes the factor in")
    factor = _factor(m, m.y)
    return Replacement(alpha=_scaled(m, m.c, "alpha", factor), beta=_scaled(m, m.c, "beta", factor))


@rule(
    pattern="""
        s = Mul|Div(x, k: const)
        y = Gemm(s, w, b?) | Gemm(w, s, b?)
    """,
    rewrite={"first": "y = Gemm(x, w, b)<@y, alpha=@alpha>", "second": "y = Gemm(w, x, b)<@y, alpha=@alpha>"},
    exactness="rounding",
    sets=("fusion",),
    opset=(7, None),
    recursive=True,
)
def fold_factor_before_gemm(m: Match) -> Replacement:
    """One number multiplied with an operand of a Gemm goes into alpha (CLIP scales its image features so).

    Algebra
        alpha·(k·A)·B + beta·C = (k·alpha)·A·B + beta·C

    Declines when
        the constant is not one number, raises the rank, is not finite, or divides by zero; alpha would overflow, or the
        product is of doubles and the factor none that a float32 holds;
        the scaled matrix is used elsewhere, or twice.

    Example
        before:
            g (float[N,K] x, float[K,M] w) => (float[N,M] y) {
                k = Constant<value = float {0.5}>()
                s = Mul(x, k)
                y = Gemm(s, w)
            }
        after:
            g (float[N,K] x, float[K,M] w) => (float[N,M] y) {
                y = Gemm<alpha = 0.5>(x, w)
            }
    """
    if m.w.tensor is m.s.tensor:
        raise Decline(f"'{m.s.name}' is used twice")
    if m.x.rank != 2:
        raise Decline(f"'{m.x.name}' is not known to be a matrix")
    first = m.y.node.input(0) is m.s.tensor
    return Replacement("first" if first else "second", alpha=_scaled(m, m.y, "alpha", _factor(m, m.s)))


def _scaled(m: Match, gemm: Operand, name: str, factor: float) -> float:
    """alpha or beta times the factor. Raises Decline where the attribute, a float32, cannot say it."""
    wanted = gemm.attr(name) * factor
    with np.errstate(all="ignore"):  # what overflows is declined
        held = float(np.float32(wanted))
    if not np.isfinite(held) or (wanted and not held) or not factor:
        raise Decline(f"the factor {factor:.3g} is out of the range of {name}")
    if m.x.dtype not in (1, 10) and held != wanted:
        raise Decline(f"{name} is a float32: it cannot hold {factor!r} for a product of doubles")
    return held


def _factor(m: Match, scaling: Operand) -> float:
    """The number that a Mul or Div scales with. Raises Decline where it is not one, or not a matrix's."""
    values: Any = finite(m.k)
    if values.size != 1 or values.ndim > 2:
        raise Decline(f"'{m.k.name}' of shape {list(values.shape)} is not one number")
    if scaling.op == "Div" and not values.any():
        raise Decline(f"'{m.k.name}' divides by zero")
    return float(values.reshape(())) if scaling.op == "Mul" else 1 / float(values.reshape(()))


@rule(
    pattern="""
        c = Gemm(x, w)
        y = Add(c, b)
    """,
    rewrite="y = Gemm(x, w, b)<@c, beta=1.0>",
    exactness="rounding",
    sets=("fusion",),
    opset=(11, None),
)
def fold_sum_into_gemm(m: Match) -> Replacement:
    """What is added to a Gemm without a bias becomes its C, computed or not.

    Algebra
        Gemm(A, B) + C = Gemm(A, B, C)

    Declines when
        C may enlarge the product; the product is used elsewhere.

    Example
        before:
            g (float[N,K] x, float[K,M] w, float[N,M] b) => (float[N,M] y) {
                c = Gemm<alpha = 2.0>(x, w)
                y = Add(c, b)
            }
        after:
            g (float[N,K] x, float[K,M] w, float[N,M] b) => (float[N,M] y) {
                y = Gemm<alpha = 2.0, beta = 1.0>(x, w, b)
            }
    """
    if m.b.tensor is m.c.tensor or not broadcasts_into(m.b.shape, m.c.shape):
        raise Decline(f"'{m.b.name}' may enlarge the product")
    return Replacement()

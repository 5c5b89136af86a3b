"""Operators of ONNX Runtime's own domain that rules emit: onnx has no schemas of them. The dtype is the first operand's."""

from __future__ import annotations

from collections.abc import Sequence

from surgeon_passes.ops.schema import MICROSOFT
from surgeon_passes.values.dims import Shape
from surgeon_passes.values.operands import Operands
from surgeon_passes.values.registry import shape_of
from surgeon_passes.values.shapes.matmul import gemm, product
from surgeon_passes.values.shapes.window import conv

shape_of(f"{MICROSOFT}.FusedConv")(conv)
shape_of(f"{MICROSOFT}.FusedGemm")(gemm)


@shape_of(f"{MICROSOFT}.Gelu", f"{MICROSOFT}.BiasGelu", f"{MICROSOFT}.FastGelu", f"{MICROSOFT}.QuickGelu")
def same_as_first(n: Operands) -> Sequence[Shape | None]:
    return [n.shape(0)]


@shape_of(f"{MICROSOFT}.SkipLayerNormalization", f"{MICROSOFT}.SkipSimplifiedLayerNormalization")
def skip_normalization(n: Operands) -> Sequence[Shape | None]:
    """The result, two statistics, the sum."""
    return [n.shape(0), None, None, n.shape(0)][: n.outputs()]


@shape_of(f"{MICROSOFT}.FusedMatMul")
def fused_matmul(n: Operands) -> Sequence[Shape | None]:
    """As MatMul, after its operands' last two axes are swapped where it says so."""
    if n.attr("transBatchA", 0) or n.attr("transBatchB", 0):
        return [None]
    a, b = (
        (*shape[:-2], shape[-1], shape[-2]) if n.attr(flag, 0) and len(shape) > 1 else shape
        for shape, flag in ((n.known_shape(0), "transA"), (n.known_shape(1), "transB"))
    )
    return [product(a, b)]

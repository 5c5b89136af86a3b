"""How far a region may be off: by what it promises, by its precision, and by the length of its sums."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

import onnx_graphsurgeon as gs
from onnx import TensorProto

from surgeon_passes.model.elements import onnx_dtype
from surgeon_passes.region import Exactness, NodeImage, Tolerances, Types

HALF = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_DOUBLE_FACTOR = 1e-6
_SUMS_OF_INPUT = {"ReduceSum", "ReduceMean", "ReduceL2", "ReduceSumSquare", "LayerNormalization"}


def reduction_length(images: Iterable[NodeImage], types: Types) -> int:
    """K: the longest sum that makes one element, over the nodes of a region. Unknown sizes count as 1."""
    return max((_sum_length(image, types) for image in images), default=1)


def _shape(tensor: gs.Tensor, types: Types) -> tuple[int, ...]:
    """The static shape, with 1 where a dim is unknown; () where the rank is."""
    if isinstance(tensor, gs.Constant):
        return tuple(int(d) for d in tensor.shape)
    return tuple(d if isinstance(d, int) else 1 for d in types.type_of(tensor).shape or ())


def _sum_length(image: NodeImage, types: Types) -> int:
    op, inputs = image.node.op, image.inputs
    if op in ("Conv", "ConvTranspose") and len(inputs) > 1:
        shape = _shape(inputs[1], types)
        if op == "Conv":
            return max(1, math.prod(shape[1:]))
        return max(1, math.prod(shape[2:]) * (shape[0] if shape else 1) // int(image.node.attrs.get("group", 1)))
    if op in ("MatMul", "Gemm") and len(inputs) > 1:
        return _contraction(image, types)
    if op in ("Sum", "Mean"):
        return max(1, len(inputs))
    if op == "GlobalAveragePool" and inputs:
        return max(1, math.prod(_shape(inputs[0], types)[2:]))
    if op == "AveragePool":
        return max(1, math.prod(int(k) for k in image.node.attrs.get("kernel_shape", ())))
    if op in _SUMS_OF_INPUT and inputs:
        return max(1, math.prod(_shape(inputs[0], types)[1:]))
    return 1


def _contraction(image: NodeImage, types: Types) -> int:
    a, b = (_shape(t, types) for t in image.inputs[:2])
    attrs = image.node.attrs
    left = (a[0] if attrs.get("transA") else a[-1]) if a else 1
    right = 1
    if b:
        right = b[-1] if attrs.get("transB") or len(b) == 1 else b[-2]
    return max(1, left, right)


@cache
def _elem_type(dtype: Any) -> int:
    return onnx_dtype(dtype)


def elem_type(constant: gs.Constant) -> int:
    """The onnx element type of a constant."""
    return _elem_type(constant.dtype)


def float_types(tensors: Iterable[gs.Tensor], types: Types) -> set[int]:
    """Float element types of ``tensors``."""
    floats = {*HALF, TensorProto.FLOAT, TensorProto.DOUBLE}
    found: set[int] = set()
    for tensor in tensors:
        kind = elem_type(tensor) if isinstance(tensor, gs.Constant) else types.type_of(tensor).dtype
        if kind in floats:
            found.add(int(kind))
    return found


def bound_of(exactness: Exactness, reduction: int, floats: set[int], tolerances: Tolerances) -> float:
    """The bound relative to a channel's scale; ``floats`` are the element types in use, the widest check aside."""
    if exactness is Exactness.EXACT:
        return 0.0
    if exactness is Exactness.APPROXIMATE:
        return tolerances.approximate
    if TensorProto.BFLOAT16 in floats:
        return tolerances.step_of("bfloat16")
    if TensorProto.FLOAT16 in floats:
        return tolerances.half
    bound = tolerances.rounding * max(1.0, math.sqrt(reduction / 256))
    return bound * _DOUBLE_FACTOR if floats == {TensorProto.DOUBLE} else bound

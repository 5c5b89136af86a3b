"""Operators whose output has the (broadcast) shape of their operands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from surgeon_passes.values import dims
from surgeon_passes.values.dims import Dim, Shape
from surgeon_passes.values.operands import Operands
from surgeon_passes.values.registry import shape_of


def broadcast_dim(a: Dim, b: Dim) -> Dim:
    """What two dims broadcast to, in a legal model.

    A dim that cannot be 1 wins over anything, an unknown one included. Of two that may each be 1 (and not 0) it is the
    larger: where they differ the smaller one is 1.
    """
    if a == 1:
        return b
    if b == 1 or dims.same(a, b):
        return a
    for dim, other in ((a, b), (b, a)):
        if dims.equal(dim, 1) is False:
            clash = isinstance(dim, int) and isinstance(other, int)
            return None if clash else dim
    return dims.maximum(a, b) if dims.at_least(a, 1) and dims.at_least(b, 1) else None


def broadcast(a: Shape, b: Shape) -> Shape:
    """numpy's rules on dims that may be symbolic or unknown."""
    rank = max(len(a), len(b))
    full = [(1,) * (rank - len(s)) + s for s in (a, b)]
    return tuple(broadcast_dim(x, y) for x, y in zip(*full, strict=True))


@shape_of("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less", until=7, irregular=True)
def broadcasting_to_the_first(n: Operands) -> Sequence[Shape | None]:
    """Before opset 7 only the second operand spreads."""
    return [n.shape(0)]


@shape_of(
    "Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal", "Greater", "Less",
    "GreaterOrEqual", "LessOrEqual", "Where", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift",
)  # fmt: skip
def broadcasting(n: Operands) -> Sequence[Shape | None]:
    shapes = [dims.type_shape(entry) for entry in n.types()]
    known = [s for s in shapes if s is not None]
    return [reduce(broadcast, known) if known and len(known) == len(shapes) else None]


@shape_of(
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "CastLike", "Ceil", "Celu", "Clip",
    "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN",
    "LeakyRelu", "Log", "Mish", "Neg", "Not", "PRelu", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign",
    "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu",
    "BatchNormalization", "GroupNormalization", "InstanceNormalization", "LRN", "LayerNormalization",
    "LpNormalization", "MeanVarianceNormalization", "RMSNormalization",
    "CumSum", "DequantizeLinear", "EyeLike", "QuantizeLinear", "RandomNormalLike", "RandomUniformLike", "Bernoulli",
    "ReverseSequence", "Scatter", "ScatterElements", "ScatterND", "Trilu",
)  # fmt: skip
def same_as_first(n: Operands) -> Sequence[Shape | None]:
    return [n.shape(0)]


@shape_of("Softmax", "LogSoftmax", "Hardmax", irregular=True)
def softmax(n: Operands) -> Sequence[Shape | None]:
    return [n.shape(0)]


@shape_of("DynamicQuantizeLinear")
def dynamic_quantize(n: Operands) -> Sequence[Shape | None]:
    return [n.shape(0), (), ()]


@shape_of("Dropout")
def dropout(n: Operands) -> Sequence[Shape | None]:
    return [n.shape(0)] * n.outputs()

"""What is true of an operator whatever its operands are. Rules and passes ask here; no pass keeps a list of names."""

from __future__ import annotations

COMMUTATIVE = frozenset(
    {"Add", "Mul", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Max", "Min", "Sum", "Mean"}
)
"""Operands may change places without changing a bit. (Max and Min too: NaN wins from either side in ONNX Runtime.)"""

RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
"""Two of them are two draws: never folded, never merged."""

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})

QUANTIZATION = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
"""Runtimes find quantised operators by these around them."""

SPATIAL = frozenset(
    {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "BatchNormalization", "InstanceNormalization"}
)
"""[N, C, spatial…] operators whose meaning does not depend on the spatial size."""

ELEMENTWISE = frozenset(
    {"Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh",
     "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Log",
     "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus",
     "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Dropout",
     "Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal", "Greater", "Less",
     "GreaterOrEqual", "LessOrEqual", "Where", "PRelu", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift"}
)  # fmt: skip
"""Each output element depends on the elements at its own (broadcast) place."""


def is_random(op: str) -> bool:
    """Whether two equal nodes give different results. Dropout and training BatchNormalization depend on attributes."""
    return op in RANDOM

"""What is true of an operator whatever its operands are. Rules and passes ask here; no pass keeps a list of names."""

from __future__ import annotations

from collections.abc import Mapping

COMMUTATIVE = frozenset(
    {"Add", "Mul", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Max", "Min", "Sum", "Mean"}
)
"""Operands may change places without changing a bit, but for Max and Min of -0.0 and 0.0: there the order may decide.
(NaN wins from either side in ONNX Runtime.)"""

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

SHAPE_READERS = frozenset({"Shape", "Size"})
"""They read their operand's shape, not its values."""

DATA_SIZED: Mapping[str, str] = {
    "NonZero": "how many elements are not zero is data",
    "NonMaxSuppression": "how many boxes are kept is data",
    "Unique": "how many elements differ is data",
    "Compress": "how many elements its condition keeps is data",
    "StringNormalizer": "how many words are no stop words is data",
    "StringSplit": "how many parts a string has is data",
    "ImageDecoder": "the size of an image is data",
}
"""Operators whose output size is decided by the values that they process, and how."""

SIZE_ARGUMENTS: Mapping[str, Mapping[int, str]] = {
    "Reshape": {1: "shape"},
    "Slice": {1: "starts", 2: "ends", 3: "axes", 4: "steps"},
    "Expand": {1: "shape"},
    "Tile": {1: "repeats"},
    "Resize": {1: "roi", 2: "scales", 3: "sizes"},
    "Upsample": {1: "scales", 2: "scales"},
    "Pad": {1: "pads", 3: "axes"},
    "Split": {1: "split"},
    "SplitToSequence": {1: "split"},
    "ConstantOfShape": {0: "input"},
    "Range": {0: "start", 1: "limit", 2: "delta"},
    "Squeeze": {1: "axes"},
    "Unsqueeze": {1: "axes"},
    "TopK": {1: "K"},
    "OneHot": {1: "depth"},
    "CenterCropPad": {1: "shape"},
    "MaxUnpool": {2: "output_shape"},
    "AffineGrid": {1: "size"},
    "Col2Im": {1: "image_shape", 2: "block_shape"},
    "DFT": {1: "dft_length", 2: "axis"},
    "STFT": {1: "frame_step", 3: "frame_length"},
    "MelWeightMatrix": {0: "num_mel_bins", 1: "dft_length"},
    **{op: {0: "size"} for op in ("HannWindow", "HammingWindow", "BlackmanWindow")},
    **{f"Reduce{op}": {1: "axes"} for op in (
        "Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")},
}  # fmt: skip
"""Operands (in the newest form) whose values decide the size of the output, by position."""


def is_random(op: str) -> bool:
    """Whether two equal nodes give different results. Dropout and training BatchNormalization depend on attributes."""
    return op in RANDOM


def is_commutative(domain: str, op: str) -> bool:
    """Whether operands may change places."""
    return not domain and op in COMMUTATIVE

"""Multiply-accumulates and parameters of one node.

A multiply-accumulate (one product added to a sum) counts once. Counted are contractions, as in published figures
(torchvision's, timm's): convolutions, matrix products, recurrent layers, attention. Work on each element alone is not:
biases, activations, BatchNormalization and other normalizations, Add, Mul, pools, Resize, the interpolation of DeformConv.

| operators | multiply-accumulates |
| --- | --- |
| Conv, ConvInteger, QLinearConv, DeformConv, FusedConv | elements of the output x C_in / group x kernel |
| ConvTranspose | elements of the input x C_out / group x kernel |
| Gemm, MatMul and their integer, quantised and fused forms | elements of the output x length of the sum |
| Einsum | operand by operand, from the left: product of the sizes of all labels that the two have |
| LSTM, GRU, RNN | steps x batch x directions x gates (4, 3, 1) x hidden x (input + hidden) |
| Attention and its kin | batch x heads x queries x keys x (size of a key + of a value), and their projections |
| LinearClassifier, LinearRegressor | rows x coefficients |
| every other standard operator | 0, less those in ``UNCOUNTED`` |

Sizes may be symbolic: then so is the number. What is not known (a size, an operator of another domain) is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import onnx_graphsurgeon as gs
from onnx import TensorProto

from surgeon_passes.ops.custom import find
from surgeon_passes.ops.einsum import contractions
from surgeon_passes.ops.schema import MICROSOFT, STANDARD
from surgeon_passes.ops.view import CallerAttribute, NodeView
from surgeon_passes.region import TensorType

Size: TypeAlias = Any
"""an int, or a symbolic dim"""
TypeOf = Callable[[gs.Tensor], TensorType]
Shape: TypeAlias = "Sequence[Size]"

UNCOUNTED = frozenset({"DFT", "STFT", "Det", "FlexAttention", "SVMClassifier", "SVMRegressor"})
"""Standard operators that sum products in a number that depends on how they are carried out."""
BODIES = frozenset({"If", "Loop", "Scan"})
"""Operators whose bodies are counted, not they themselves."""


class _Unknown(Exception):
    """A size that the count needs is not known."""


class _Sizes:
    """A node's operands and results by their sizes."""

    def __init__(self, view: NodeView, type_of: TypeOf) -> None:
        self.view = view
        self._type_of = type_of

    def has(self, place: int) -> bool:
        return self.view.input(place) is not None

    def given(self, place: int) -> Shape:
        return self._known(self.view.input(place))

    def made(self, place: int = 0) -> Shape:
        return self._known(self.view.output(place))

    def _known(self, tensor: gs.Tensor | None) -> Shape:
        shape = None if tensor is None else self._type_of(tensor).shape
        if shape is None or any(dim is None for dim in shape):
            raise _Unknown
        return shape

    def attr(self, name: str) -> Any:
        return self.view.attr(name)


def macs(view: NodeView, type_of: TypeOf) -> Size | None:
    """Multiply-accumulates of a node, bodies left out; None where they are not known."""
    formula = _FORMULAS.get((view.domain, view.op))
    if formula is None:
        return _of_others(view, type_of)
    try:
        return formula(_Sizes(view, type_of))
    except (_Unknown, CallerAttribute, ArithmeticError, IndexError, ValueError, TypeError):
        return None


def _of_others(view: NodeView, type_of: TypeOf) -> Size | None:
    if view.domain in STANDARD:
        return None if view.op in UNCOUNTED else 0
    if view.domain == MICROSOFT and view.op in _ELEMENTWISE:
        return 0
    known = find(view.domain, view.op)
    sized = (t for t in (*view.inputs, view.output(0)) if t is not None)
    if known is None or known.macs is None or not all(type_of(t).is_static for t in sized):
        return None
    return known.macs(view, type_of)


def product(sizes: Iterable[Size]) -> Size:
    found: Size = 1
    for size in sizes:
        found = size if isinstance(found, int) and found == 1 else found * size
    return found


# --- formulae ----------------------------------------------------------------------------------------------------------


def _convolution(weight: int) -> Callable[[_Sizes], Size]:
    return lambda n: product(n.made()) * product(n.given(weight)[1:])


def _transposed(n: _Sizes) -> Size:
    return product(n.given(0)) * product(n.given(1)[1:])


def _gemm(a: int, b: int) -> Callable[[_Sizes], Size]:
    def count(n: _Sizes) -> Size:
        first, second = n.given(a), n.given(b)
        inner = first[0] if n.attr("transA") else first[1]
        rows = first[1] if n.attr("transA") else first[0]
        return product((rows, inner, second[0] if n.attr("transB") else second[1]))

    return count


def _matmul(a: int, b: int) -> Callable[[_Sizes], Size]:
    """``b`` is the place of the second operand: its sum runs over the last axis but one, or its only one."""

    def count(n: _Sizes) -> Size:
        first, second = n.given(a), n.given(b)
        inner = first[-1] if isinstance(first[-1], int) else second[0] if len(second) == 1 else second[-2]
        return product(n.made()) * inner

    return count


def _fused_matmul(n: _Sizes) -> Size:
    first = n.given(0)
    if not n.attr("transA"):
        return product(n.made()) * first[-1]
    return product(n.made()) * (first[0] if n.attr("transBatchA") else first[-2])


def _packed_matmul(n: _Sizes) -> Size:
    return product(n.given(0)[:-1]) * n.attr("K") * n.attr("N")


def _einsum(n: _Sizes) -> Size:
    shapes = [n.given(place) for place in range(len(n.view.inputs))]
    return sum(product(sizes) for sizes in contractions(str(n.attr("equation")), shapes))


def _recurrent(gates: int) -> Callable[[_Sizes], Size]:
    """X [steps, batch, input] (batch first with layout 1), W [directions, gates * hidden, input]."""

    def count(n: _Sizes) -> Size:
        steps_and_batch, size = n.given(0)[:2], n.given(0)[2]
        directions, hidden = n.given(1)[0], n.given(2)[2]
        return product((*steps_and_batch, directions, gates, hidden, size + hidden))

    return count


def _quantised_lstm(n: _Sizes) -> Size:
    """W [directions, input, 4 * hidden], R [directions, hidden, 4 * hidden]."""
    weights, hidden = n.given(1), n.given(2)[1]
    return product((*n.given(0)[:2], weights[0], weights[2], n.given(0)[2] + hidden))


def _attention(n: _Sizes) -> Size:
    """Q, K, V of rank 4 [batch, heads, length, size], or of rank 3 with the heads side by side in the last axis."""
    query, key, value = n.given(0), n.given(1), n.given(2)
    heads, kept = (query[1], key[1]) if len(query) == 4 else (n.attr("q_num_heads"), n.attr("kv_num_heads"))
    key_size, value_size = (key[3], value[3]) if len(query) == 4 else (key[2] // kept, value[2] // kept)
    keys = key[-2] + (n.given(4)[2] if n.has(4) else 0)
    return product((query[0], heads, query[-2], keys, key_size + value_size))


def _multi_head(n: _Sizes) -> Size:
    """Q [batch, queries, heads * size]; K and V likewise, or [batch, heads, keys, size], or packed with Q or each other."""
    query, heads = n.given(0), n.attr("num_heads")
    if len(query) == 5:  # [batch, queries, heads, 3, size]
        return product((query[0], heads, query[1], query[1], 2 * query[4]))
    key = n.given(1)
    size = query[2] // heads
    if len(key) == 5:  # [batch, keys, heads, 2, size]
        keys, value_size = key[1], size
    else:
        value = n.given(2)
        keys, value_size = (key[2], value[3]) if len(key) == 4 else (key[1], value[2] // heads)
    keys = keys + (n.given(6)[2] if n.has(6) else 0)
    return product((query[0], heads, query[1], keys, size + value_size))


def _grouped_query(n: _Sizes) -> Size:
    """As many keys as the cache holds in the end; Q, K and V may be packed into one."""
    query, heads, kept = n.given(0), n.attr("num_heads"), n.attr("kv_num_heads")
    size = query[2] // heads if n.has(1) else query[2] // (heads + 2 * kept)
    return product((query[0], heads, query[1], n.made(1)[2], 2 * size))


def _projecting(weight: int, past: int) -> Callable[[_Sizes], Size]:
    """com.microsoft Attention: X [batch, length, input] is projected by W [input, 3 * hidden] first."""

    def count(n: _Sizes) -> Size:
        given, weights, heads = n.given(0), n.given(weight), n.attr("num_heads")
        sizes = n.attr("qkv_hidden_sizes") or (weights[1] // 3,) * 3
        keys = given[1] + (n.given(past)[3] if n.has(past) else 0)
        projected = product(given) * weights[1]
        return projected + product((given[0], heads, given[1], keys, sizes[0] // heads + sizes[2] // heads))

    return count


def _linear_model(n: _Sizes) -> Size:
    return n.given(0)[0] * len(n.attr("coefficients"))


_FORMULAS: Mapping[tuple[str, str], Callable[[_Sizes], Size]] = {
    ("", "Conv"): _convolution(1),
    ("", "ConvInteger"): _convolution(1),
    ("", "DeformConv"): _convolution(1),
    ("", "QLinearConv"): _convolution(3),
    ("", "ConvTranspose"): _transposed,
    ("", "Gemm"): _gemm(0, 1),
    ("", "MatMul"): _matmul(0, 1),
    ("", "MatMulInteger"): _matmul(0, 1),
    ("", "QLinearMatMul"): _matmul(0, 3),
    ("", "Einsum"): _einsum,
    ("", "LSTM"): _recurrent(4),
    ("", "GRU"): _recurrent(3),
    ("", "RNN"): _recurrent(1),
    ("", "Attention"): _attention,
    ("ai.onnx.ml", "LinearClassifier"): _linear_model,
    ("ai.onnx.ml", "LinearRegressor"): _linear_model,
    (MICROSOFT, "FusedConv"): _convolution(1),
    (MICROSOFT, "QLinearConv"): _convolution(3),
    (MICROSOFT, "FusedGemm"): _gemm(0, 1),
    (MICROSOFT, "QGemm"): _gemm(0, 3),
    (MICROSOFT, "FusedMatMul"): _fused_matmul,
    (MICROSOFT, "FusedMatMulActivation"): _fused_matmul,
    (MICROSOFT, "MatMulIntegerToFloat"): _matmul(0, 1),
    (MICROSOFT, "DynamicQuantizeMatMul"): _matmul(0, 1),
    (MICROSOFT, "MatMulNBits"): _packed_matmul,
    (MICROSOFT, "MatMulBnb4"): _packed_matmul,
    (MICROSOFT, "DynamicQuantizeLSTM"): _quantised_lstm,
    (MICROSOFT, "Attention"): _projecting(1, 4),
    (MICROSOFT, "QAttention"): _projecting(1, 8),
    (MICROSOFT, "MultiHeadAttention"): _multi_head,
    (MICROSOFT, "GroupQueryAttention"): _grouped_query,
}

_ON_EACH_ELEMENT = """
    Gelu FastGelu BiasGelu QuickGelu BiasSoftmax BiasDropout BiasAdd BiasSplitGelu GroupNorm SkipGroupNorm
    SimplifiedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization EmbedLayerNormalization
    QEmbedLayerNormalization RotaryEmbedding QLinearAdd QLinearMul QLinearSigmoid QLinearLeakyRelu QLinearSoftmax
    QLinearConcat QLinearAveragePool QLinearGlobalAveragePool QLinearReduceMean QLinearWhere QuantizeLinear
    DequantizeLinear Pad Trilu Unique Range ExpandDims GatherND CropAndResize NhwcMaxPool RemovePadding
    RestorePadding
"""
_ELEMENTWISE = frozenset(_ON_EACH_ELEMENT.split())
"""Of ONNX Runtime's own operators those that hold no contraction."""


# --- parameters --------------------------------------------------------------------------------------------------------

_TYPES = """
    FLOAT DOUBLE FLOAT16 BFLOAT16 FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ FLOAT8E8M0 FLOAT4E2M1
    INT32 INT16 UINT16 INT8 UINT8 INT4 UINT4 INT2 UINT2
"""
_NUMBERS = frozenset(_TYPES.split())


def parameters(found: TensorType) -> int:
    """How many parameters a constant of this type is: its elements, where those are floating-point numbers, or the integers
    that quantised weights and biases are; 0 for int64, bool and strings, which are sizes, indices, masks and words."""
    if found.dtype is None or found.shape is None or TensorProto.DataType.Name(found.dtype) not in _NUMBERS:
        return 0
    dims = [dim for dim in found.shape if isinstance(dim, int)]
    return prod(dims) if len(dims) == len(found.shape) else 0

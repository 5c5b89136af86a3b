"""Multiply-accumulates and parameters of nodes, against an independent counter and against published figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from surgeon_passes.costs import ModelCost, model_cost
from surgeon_passes.ops.macs import parameters
from surgeon_passes.pipeline import load
from surgeon_passes.region import TensorType

from ..models import floats, model
from . import counting, networks

# --- published figures -------------------------------------------------------------------------------------------------

PUBLISHED = {
    "resnet18": (networks.resnet((2, 2, 2, 2), False), 1.814e9, 11_689_512),
    "resnet50": (networks.resnet((3, 4, 6, 3), True), 4.089e9, 25_557_032),
    "mobilenet_v2": (networks.mobilenet_v2(), 0.301e9, 3_504_872),
}
"""Multiply-accumulates and parameters of one image of 224 x 224, as torchvision's documentation gives them."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_figures(name: str) -> None:
    (proto, net), macs, held = PUBLISHED[name]
    found = model_cost(load(proto))
    assert found.macs == pytest.approx(macs, rel=0.002)
    assert found.parameters - net.statistics == held
    assert found.unknown == ()


# --- the independent counter -------------------------------------------------------------------------------------------


def cost(graph: str, domain: str = "", opset: int = 20, **constants: Any) -> ModelCost:
    """Of a graph in ONNX syntax with constants of these shapes."""
    arrays = {name: np.zeros(s, np.float32) if isinstance(s, tuple) else s for name, s in constants.items()}
    proto = model(graph, opset, 10, **arrays)
    if domain:
        proto.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    return model_cost(load(proto))


def unary(op: str, shape: str, out: str, dtype: str = "float") -> str:
    return f"g ({dtype}{shape} x) => ({out} y) {{ y = {op} }}"


CASES: dict[str, tuple[Callable[[], ModelCost], Callable[[], int]]] = {
    "Conv": (
        lambda: cost(
            unary(
                "Conv<group=2, strides=[2,2], dilations=[1,1], pads=[1,1,1,1]>(x, w, b)", "[2,4,7,6]", "float[a,b,c,d]"
            ),
            w=(6, 2, 3, 3),
            b=(6,),
        ),
        lambda: counting.convolution((2, 4, 7, 6), (6, 2, 3, 3), group=2, stride=2, pad=1),
    ),
    "Conv of one dim": (
        lambda: cost(unary("Conv<dilations=[3]>(x, w)", "[1,3,20]", "float[a,b,c]"), w=(4, 3, 5)),
        lambda: counting.convolution((1, 3, 20), (4, 3, 5), dilation=3),
    ),
    "Conv of three dims": (
        lambda: cost(unary("Conv(x, w)", "[1,2,5,4,6]", "float[a,b,c,d,e]"), w=(3, 2, 2, 3, 1)),
        lambda: counting.convolution((1, 2, 5, 4, 6), (3, 2, 2, 3, 1)),
    ),
    "DeformConv": (
        lambda: cost(
            unary("DeformConv<pads=[1,1,1,1]>(x, w, o)", "[1,4,5,5]", "float[a,b,c,d]"),
            w=(6, 4, 3, 3),
            o=(1, 18, 5, 5),
        ),
        lambda: counting.convolution((1, 4, 5, 5), (6, 4, 3, 3), pad=1),
    ),
    "ConvInteger": (
        lambda: cost(
            unary("ConvInteger(x, w)", "[1,3,6,6]", "int32[a,b,c,d]", "uint8"), w=np.zeros((5, 3, 3, 3), np.uint8)
        ),
        lambda: counting.convolution((1, 3, 6, 6), (5, 3, 3, 3)),
    ),
    "QLinearConv": (
        lambda: cost(
            unary("QLinearConv<strides=[2,2]>(x, s, z, w, s, z, s, z)", "[1,3,7,7]", "uint8[a,b,c,d]", "uint8"),
            w=np.zeros((5, 3, 3, 3), np.uint8),
            s=np.float32(1),
            z=np.uint8(0),
        ),
        lambda: counting.convolution((1, 3, 7, 7), (5, 3, 3, 3), stride=2),
    ),
    "ConvTranspose": (
        lambda: cost(
            unary("ConvTranspose<group=2, strides=[2,2], output_padding=[1,1]>(x, w)", "[2,4,3,5]", "float[a,b,c,d]"),
            w=(4, 3, 3, 3),
        ),
        lambda: counting.transposed((2, 4, 3, 5), (4, 3, 3, 3), group=2),
    ),
    "Gemm": (
        lambda: cost(unary("Gemm<transA=1, transB=1>(x, w, b)", "[5,3]", "float[a,b]"), w=(4, 5), b=(4,)),
        lambda: counting.matmul((3, 5), (5, 4)),
    ),
    "MatMul that broadcasts": (
        lambda: cost(unary("MatMul(x, w)", "[2,1,3,5]", "float[a,b,c,d]"), w=(4, 5, 6)),
        lambda: counting.matmul((2, 1, 3, 5), (4, 5, 6)),
    ),
    "MatMul of a vector": (
        lambda: cost(unary("MatMul(x, w)", "[2,3,5]", "float[a,b]"), w=(5,)),
        lambda: counting.matmul((2, 3, 5), (5,)),
    ),
    "MatMul of two vectors": (
        lambda: cost(unary("MatMul(x, w)", "[5]", "float"), w=(5,)),
        lambda: counting.matmul((5,), (5,)),
    ),
    "MatMulInteger": (
        lambda: cost(unary("MatMulInteger(x, w)", "[3,5]", "int32[a,b]", "uint8"), w=np.zeros((5, 4), np.uint8)),
        lambda: counting.matmul((3, 5), (5, 4)),
    ),
    "QLinearMatMul": (
        lambda: cost(
            unary("QLinearMatMul(x, s, z, w, s, z, s, z)", "[2,3,5]", "uint8[a,b,c]", "uint8"),
            w=np.zeros((5, 4), np.uint8),
            s=np.float32(1),
            z=np.uint8(0),
        ),
        lambda: counting.matmul((2, 3, 5), (5, 4)),
    ),
    "Einsum of two": (
        lambda: cost(unary('Einsum<equation="bij,jk->bik">(x, w)', "[2,3,5]", "float[a,b,c]"), w=(5, 4)),
        lambda: counting.einsum([("bij,jk->bik", (2, 3, 5), (5, 4))]),
    ),
    "Einsum of three, from the left": (
        lambda: cost(unary('Einsum<equation="ij,jk,kl->il">(x, w, v)', "[2,3]", "float[a,b]"), w=(3, 4), v=(4, 5)),
        lambda: counting.einsum([("ij,jk->ik", (2, 3), (3, 4)), ("ik,kl->il", (2, 4), (4, 5))]),
    ),
    "Einsum with an ellipsis": (
        lambda: cost(unary('Einsum<equation="...ij,...jk">(x, w)', "[2,1,3,5]", "float[a,b,c,d]"), w=(4, 5, 6)),
        lambda: counting.einsum([("...ij,...jk", (2, 1, 3, 5), (4, 5, 6))]),
    ),
    "Einsum of one is a sum": (
        lambda: cost(unary('Einsum<equation="ij->i">(x)', "[2,3]", "float[a]")),
        lambda: 0,
    ),
    "LSTM": (
        lambda: cost(
            unary('LSTM<hidden_size=3, direction="bidirectional">(x, w, r)', "[6,2,5]", "float[a,b,c,d]"),
            w=(2, 12, 5),
            r=(2, 12, 3),
        ),
        lambda: counting.recurrent(4, 6, 2, 5, 3, 2),
    ),
    "GRU": (
        lambda: cost(unary("GRU<hidden_size=3>(x, w, r)", "[6,2,5]", "float[a,b,c,d]"), w=(1, 9, 5), r=(1, 9, 3)),
        lambda: counting.recurrent(3, 6, 2, 5, 3, 1),
    ),
    "RNN, batch first": (
        lambda: cost(
            unary("RNN<hidden_size=3, layout=1>(x, w, r)", "[2,6,5]", "float[a,b,c,d]"), w=(1, 3, 5), r=(1, 3, 3)
        ),
        lambda: counting.recurrent(1, 6, 2, 5, 3, 1),
    ),
    "Attention": (
        lambda: cost(
            unary("Attention(x, k, v)", "[2,4,5,8]", "float[a,b,c,d]"), opset=23, k=(2, 4, 7, 8), v=(2, 4, 7, 6)
        ),
        lambda: counting.attention(2, 4, 5, 7, 8, 6),
    ),
    "Attention with heads side by side, fewer for keys": (
        lambda: cost(
            unary("Attention<q_num_heads=4, kv_num_heads=2>(x, k, v)", "[2,5,32]", "float[a,b,c]"),
            opset=23,
            k=(2, 7, 16),
            v=(2, 7, 12),
        ),
        lambda: counting.attention(2, 4, 5, 7, 8, 6),
    ),
    "com.microsoft.FusedConv": (
        lambda: cost(
            unary('com.microsoft.FusedConv<activation="Relu", pads=[1,1,1,1]>(x, w)', "[1,3,6,6]", "float[1,5,6,6]"),
            "com.microsoft",
            w=(5, 3, 3, 3),
        ),
        lambda: counting.convolution((1, 3, 6, 6), (5, 3, 3, 3), pad=1),
    ),
    "com.microsoft.FusedGemm": (
        lambda: cost(
            unary('com.microsoft.FusedGemm<activation="Relu">(x, w, b)', "[3,5]", "float[3,4]"),
            "com.microsoft",
            w=(5, 4),
            b=(4,),
        ),
        lambda: counting.matmul((3, 5), (5, 4)),
    ),
    "com.microsoft.FusedMatMul": (
        lambda: cost(
            unary("com.microsoft.FusedMatMul<transA=1>(x, w)", "[2,5,3]", "float[2,3,4]"), "com.microsoft", w=(5, 4)
        ),
        lambda: counting.matmul((2, 3, 5), (5, 4)),
    ),
    "com.microsoft.MatMulNBits": (
        lambda: cost(
            unary("com.microsoft.MatMulNBits<K=32, N=4, bits=4, block_size=32>(x, w, s)", "[2,3,32]", "float[2,3,4]"),
            "com.microsoft",
            w=np.zeros((4, 1, 16), np.uint8),
            s=(4,),
        ),
        lambda: counting.matmul((2, 3, 32), (32, 4)),
    ),
    "com.microsoft.Attention": (
        lambda: cost(
            unary("com.microsoft.Attention<num_heads=2>(x, w, b)", "[2,5,8]", "float[2,5,8]"),
            "com.microsoft",
            w=(8, 24),
            b=(24,),
        ),
        lambda: counting.matmul((2, 5, 8), (8, 24)) + counting.attention(2, 2, 5, 5, 4, 4),
    ),
    "com.microsoft.MultiHeadAttention": (
        lambda: cost(
            unary("com.microsoft.MultiHeadAttention<num_heads=2>(x, k, v)", "[2,5,8]", "float[2,5,6]"),
            "com.microsoft",
            k=(2, 7, 8),
            v=(2, 7, 6),
        ),
        lambda: counting.attention(2, 2, 5, 7, 4, 3),
    ),
    "normalizations, activations and sums": (
        lambda: cost(
            "g (float[2,4,3,3] x) => (float[2,4,3,3] y) { a = BatchNormalization(x, s, s, s, s)  b = Relu(a)  c = Mul(b, x) "
            " d = InstanceNormalization(c, s, s)  y = Add(d, x) }",
            s=(4,),
        ),
        lambda: 0,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_as_the_independent_counter_has_it(name: str) -> None:
    found, expected = CASES[name][0](), CASES[name][1]()
    assert found.unknown == ()
    assert found.macs == found.at == expected


# --- what is not known, and what runs more than once -------------------------------------------------------------------


def test_symbolic_sizes_give_a_formula() -> None:
    found = cost(unary("Conv(x, w)", "[N,3,H,8]", "float[a,b,c,d]"), w=(4, 3, 1, 1))
    assert str(found.macs) == "96*H*N"
    assert found.at is None
    proto = model(unary("MatMul(x, w)", "[N,T,3]", "float[a,b,c]"), w=floats(3, 5))
    assert model_cost(load(proto), {"x": (2, 7, 3)}).at == 2 * 7 * 3 * 5
    assert model_cost(load(proto), {"x": (2, 7, 3)}).sizes == {"N": 2, "T": 7}


def test_an_operator_that_nobody_knows_is_not_nothing() -> None:
    found = cost(
        "g (float[2,3] x) => (float[2,4] y) { [own] a = some.Own(x)  [m] b = MatMul(x, w)  y = Add(a, b) }",
        "some",
        w=(3, 4),
    )
    assert found.macs == 2 * 3 * 4
    assert found.unknown == ("Own 'own'",)
    assert [(n.label, n.macs) for n in found.nodes] == [("Own 'own'", None), ("MatMul 'm'", 24), ("Add -> 'y'", 0)]


LOOP = """
    g (float[2,3] x) => (float[2,3] y) {
        count = Constant<value = int64 {COUNT}>()
        go = Constant<value = bool {1}>()
        [loop] y = Loop(count, go, x)<body = b (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] t) {
            d = CONDITION
            t = MatMul(s, w)
        }>
    }
"""


@pytest.mark.parametrize(
    ("condition", "macs", "unknown"), [("Identity(c)", 7 * 18, ()), ("Not(c)", 18, ("Loop 'loop'",))]
)
def test_a_loop_counts_each_turn(condition: str, macs: int, unknown: tuple[str, ...]) -> None:
    found = cost(LOOP.replace("COUNT", "7").replace("CONDITION", condition), w=(3, 3))
    assert (found.macs, found.unknown) == (macs, unknown)


def test_a_scan_counts_each_step() -> None:
    text = """
        g (float[5,2,3] x) => (float[5,2,4] y) {
            y = Scan<num_scan_inputs = 1, body = b (float[2,3] s) => (float[2,4] t) { t = MatMul(s, w) }>(x)
        }
    """
    assert cost(text, w=(3, 4)).macs == 5 * 2 * 3 * 4


def test_of_an_if_the_dearer_branch_counts() -> None:
    text = """
        g (bool c, float[2,3] x) => (float[2,3] y) {
            y = If(c)<then_branch = p () => (float[2,3] a) { a = MatMul(x, w) }, else_branch = q () => (float[2,3] a) {
                b = MatMul(x, v)
                a = MatMul(b, u)
            }>
        }
    """
    assert cost(text, w=(3, 3), v=(3, 5), u=(5, 3)).macs == 2 * 2 * 3 * 5


def test_of_branches_that_symbols_decide_the_formula_says_so() -> None:
    text = """
        g (bool c, float[N,3] x, float[M,3] z) => (float[a,b] y) {
            y = If(c)<then_branch = p () => (float[a,b] t) { t = MatMul(x, w) },
                      else_branch = q () => (float[a,b] t) { t = MatMul(z, w) }>
        }
    """
    proto = model(text, w=floats(3, 5))
    found = model_cost(load(proto), {"x": (2, 3), "z": (7, 3)})
    assert (str(found.macs), found.at, found.unknown) == ("max(15*M, 15*N)", 105, ())


def test_a_function_counts_at_each_call() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 20, "own" : 1]>
        g (float[2,3] x) => (float[2,3] y) { a = own.Twice(x, x)  y = own.Twice(a, x) }
        <domain: "own", opset_import: ["" : 20]>
        Twice (a, b) => (c) { d = Transpose(b)  e = MatMul(a, d)  c = MatMul(e, b) }
    """)
    assert model_cost(load(proto)).macs == 2 * (2 * 3 * 2 + 2 * 2 * 3)


# --- parameters --------------------------------------------------------------------------------------------------------


def test_a_constant_that_two_nodes_read_counts_once() -> None:
    found = cost("g (float[3,3] x) => (float[3,3] y) { a = MatMul(x, w)  y = MatMul(a, w) }", w=(3, 3))
    assert found.parameters == 9
    assert [node.parameters for node in found.nodes] == [9, 9]


def test_constant_nodes_count_and_sizes_do_not() -> None:
    text = """
        g (float[2,6] x) => (float[3,4] y) {
            t = Constant<value = int64[2] {3, 4}>()
            r = Reshape(x, t)
            b = Constant<value = float[4] {1, 2, 3, 4}>()
            y = Add(r, b)
        }
    """
    found = cost(text)
    assert found.parameters == 4
    assert [(node.op, node.parameters) for node in found.nodes] == [("Reshape", 0), ("Add", 4)]


@pytest.mark.parametrize(
    ("dtype", "shape", "number"),
    [
        (TensorProto.FLOAT, (2, 3), 6),
        (TensorProto.BFLOAT16, (), 1),
        (TensorProto.INT8, (4,), 4),
        (TensorProto.INT32, (4,), 4),
        (TensorProto.INT64, (4,), 0),
        (TensorProto.BOOL, (4,), 0),
        (TensorProto.STRING, (4,), 0),
        (TensorProto.FLOAT, (2, None), 0),
        (None, (2,), 0),
        (TensorProto.FLOAT, None, 0),
    ],
)
def test_what_is_a_parameter(dtype: int | None, shape: Any, number: int) -> None:
    assert parameters(TensorType(dtype, shape)) == number

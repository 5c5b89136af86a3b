"""The set "ort": what it makes is verified, keeps its shapes, and is at least what ONNX Runtime's own optimiser makes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import surgeon_passes as sp
from surgeon_passes import Rule
from surgeon_passes.patterns import ort, ort_gelu

from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, graph_model

DOMAIN = "com.microsoft"
ACTIVATIONS: list[tuple[str, dict[str, Any]]] = [
    ("Relu", {}),
    ("Sigmoid", {}),
    ("Tanh", {}),
    ("LeakyRelu", {"alpha": 0.3}),
    ("HardSigmoid", {"alpha": 0.25, "beta": 0.4}),
    ("Clip", {}),
]


def contrib(model: onnx.ModelProto) -> Counter[str]:
    return Counter(n.op_type for n in model.graph.node if n.domain == DOMAIN)


def by_the_runtime(model: onnx.ModelProto, folder: Path) -> Counter[str]:
    """What ONNX Runtime's offline optimisation at its extended level makes of the model."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return contrib(onnx.load(folder / "optimised.onnx"))


def assert_made(rule: Rule, model: onnx.ModelProto, sizes: Any = ({}, {"N": 2, "H": 7}), **ops: int) -> onnx.ModelProto:
    """The rule alone makes these operators, and the result is the same."""
    result = apply(rule, model)
    assert contrib(result.model) == ops, result.reasons
    assert_equal(model, result.model, sizes, tolerance=2e-5)
    return result.model


def assert_declined(rule: Rule, model: onnx.ModelProto, says: str) -> None:
    result = apply(rule, model)
    assert not result.applied and any(says in reason for reason in result.reasons), result.reasons


def activate(b: Builder, x: str, op: str, attrs: dict[str, Any], low: float = -0.2) -> str:
    bounds = (b.constant(low), b.constant(0.7)) if op == "Clip" else ()
    return str(b.node(op, x, *bounds, **attrs))


# --- convolutions --------------------------------------------------------------------------------------------------------


@property_of("fuse_activation_into_conv", "fuse_sum_and_activation_into_conv")
@given(
    st.integers(1, 3), st.sampled_from([1, 2]), st.booleans(), st.integers(1, 2), st.integers(0, 1),
    st.sampled_from(ACTIVATIONS), st.booleans(),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_fuse_activation_into_conv_of_any_form(
    rank: int, group: int, bias: bool, stride: int, pad: int, activation: tuple[str, dict[str, Any]], summed: bool
) -> None:
    b = Builder(seed=rank)
    x = b.input("x", [2, 4, *[6, 5, 4][:rank]])
    form = {"strides": [stride] * rank, "pads": [pad] * 2 * rank, "group": group}
    c = b.conv(x, 4, 6, [3] * rank, bias=bias, **form)
    if summed:
        c = str(b.node("Add", b.conv(x, 4, 6, [3] * rank, **form), c))
    rule = ort.fuse_sum_and_activation_into_conv if summed else ort.fuse_activation_into_conv
    assert_made(rule, b.model(activate(b, c, *activation)), ({},), FusedConv=1)


@declines("fuse_activation_into_conv")
def test_fuse_activation_into_conv_declines() -> None:
    rule = ort.fuse_activation_into_conv
    b = Builder()
    c = b.conv(b.input("x", ["N", 2, "H"]), 2, 3, [3])
    assert_declined(rule, b.model(b.node("Clip", c, b.constant(0.0))), "the Clip has one bound only")
    b = Builder(np.float16)
    assert_declined(rule, b.model(b.node("Relu", b.conv(b.input("x", ["N", 2, "H"]), 2, 3, [3]))), "to be float32")
    b = Builder()
    c = b.conv(b.input("x", ["N", 2, "H"]), 2, 3, [3])
    assert_declined(rule, b.model(b.node("Relu", c), b.node("Abs", c)), "is also used by")


@declines("fuse_sum_and_activation_into_conv")
def test_fuse_sum_and_activation_into_conv_declines_a_broadcast() -> None:
    b = Builder()
    c = b.conv(b.input("x", ["N", 2, "H"]), 2, 3, [3])
    y = b.node("Relu", b.node("Add", c, b.input("z", ["N", 3, 1])))
    assert_declined(ort.fuse_sum_and_activation_into_conv, b.model(y), "are not known to have the same shape")


# --- matrices ------------------------------------------------------------------------------------------------------------


@property_of("fuse_activation_into_gemm")
@given(
    st.booleans(), st.booleans(), st.sampled_from([0.5, 1.0, -2.0]), st.booleans(),
    st.sampled_from([a for a in ACTIVATIONS if a[0] not in ("Clip", "HardSigmoid")]),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_fuse_activation_into_gemm_of_any_form(
    flip_a: bool, flip_b: bool, alpha: float, bias: bool, activation: tuple[str, dict[str, Any]]
) -> None:
    b = Builder()
    x = b.input("x", [3, 4] if flip_a else [4, 3])
    operands = [x, b.random(5, 3) if flip_b else b.random(3, 5)] + ([b.random(5)] if bias else [])
    g = b.node("Gemm", *operands, transA=int(flip_a), transB=int(flip_b), alpha=alpha)
    assert_made(ort.fuse_activation_into_gemm, b.model(activate(b, g, *activation)), ({},), FusedGemm=1)


@declines("fuse_activation_into_gemm")
def test_fuse_activation_into_gemm_declines() -> None:
    b = Builder(np.float64)
    g = b.node("Gemm", b.input("x", ["N", 3]), b.random(3, 5))
    assert_declined(ort.fuse_activation_into_gemm, b.model(b.node("Relu", g)), "to be float32")


MATMUL = (ort.fuse_scale_into_matmul, ort.fuse_transposed_left_into_matmul, ort.fuse_transposed_right_into_matmul)


@property_of("fuse_scale_into_matmul", "fuse_transposed_left_into_matmul", "fuse_transposed_right_into_matmul")
@given(st.integers(2, 4), st.booleans(), st.booleans(), st.sampled_from([None, "Mul", "Div"]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_fuse_scale_and_transposes_into_matmul_of_any_form(
    rank: int, flip_a: bool, flip_b: bool, scale: str | None, last: bool
) -> None:
    b = Builder()
    lead = [2, 3][: rank - 2]
    swap = [*range(rank - 2), rank - 1, rank - 2]
    a = b.input("a", [*lead, 4, 5] if flip_a else [*lead, 5, 4])
    c = b.input("c", [*lead, 6, 4] if flip_b else [*lead, 4, 6])
    left = b.node("Transpose", a, perm=swap) if flip_a else a
    right = b.node("Transpose", c, perm=swap) if flip_b else c
    y = b.node("MatMul", left, right)
    y = b.node(scale, *((b.constant(0.3), y) if last and scale == "Mul" else (y, b.constant(0.3)))) if scale else y
    model = b.model(y)
    result = apply(MATMUL, model)
    wanted = {"FusedMatMul": 1} if flip_a or flip_b or scale else {"MatMul": 1}
    assert result.ops == wanted
    assert_equal(model, result.model, ({},), tolerance=2e-5)


@declines("fuse_scale_into_matmul")
def test_fuse_scale_into_matmul_declines() -> None:
    rule = ort.fuse_scale_into_matmul
    for value, says in (
        (np.ones(4), "is not one number"),
        (np.ones((1, 1, 1)), "may raise the rank"),
        (np.float32(np.inf), "is not finite"),
    ):
        b = Builder()
        p = b.node("MatMul", b.input("a", ["N", 3]), b.random(3, 4))
        assert_declined(rule, b.model(b.node("Mul", p, b.constant(value)), rank=max(2, np.ndim(value))), says)
    b = Builder()
    p = b.node("MatMul", b.input("a", ["N", 3]), b.random(3, 4))
    assert_declined(rule, b.model(b.node("Div", p, b.constant(0.0))), "is zero")
    for op, number in (("Div", 1e-39), ("Mul", 0.0), ("Div", 3e38)):
        b = Builder()
        p = b.node("MatMul", b.input("a", ["N", 3]), b.random(3, 4))
        assert_declined(rule, b.model(b.node(op, p, b.constant(number))), "is out of the range of alpha")
    b = Builder()
    p = b.node("MatMul", b.input("a", [3]), b.random(3, 4))
    assert_declined(rule, b.model(b.node("Mul", p, b.constant(2.0))), "an operand is a vector")


@pytest.mark.parametrize("number", [1e25, 1e-25])
def test_factors_whose_product_is_no_float32_are_not_joined(number: float) -> None:
    b = Builder()
    p = b.node("MatMul", b.input("a", ["N", 3]), b.constant(np.full((3, 4), 1 / number)))
    model = b.model(b.node("Mul", b.node("Mul", p, b.constant(number)), b.constant(number)))
    assert_made(ort.fuse_scale_into_matmul, model, FusedMatMul=1)


@declines("fuse_scale_into_matmul")
def test_transposed_batches_stay() -> None:
    model = graph_model(
        """g (float[3,2,4] a, float[2,4,5] b) => (float[2,3,5] y) <float[2,3,5] p> {
            s = Constant<value = float {2.0}>()
            p = com.microsoft.FusedMatMul<transBatchA = 1>(a, b)
            y = Mul(p, s)
        }""",
        **{"com.microsoft": 1},
    )
    assert_declined(ort.fuse_scale_into_matmul, model, "transposes batches")


@declines("fuse_transposed_left_into_matmul", "fuse_transposed_right_into_matmul")
def test_fuse_transposed_left_and_right_into_matmul_decline() -> None:
    b = Builder()
    t = b.node("Transpose", b.input("x", [4, 3, 2]), perm=[1, 0, 2])
    assert_declined(MATMUL[1], b.model(b.node("MatMul", t, b.input("c", [3, 2, 5]))), "moves other axes")
    b = Builder()
    t = b.node("Transpose", b.input("x", [4, 3, 2]), perm=[2, 1, 0])
    assert_declined(MATMUL[2], b.model(b.node("MatMul", b.input("c", [2, 5, 3]), t)), "moves other axes")
    b = Builder()
    t = b.node("Transpose", b.input("x", [4, 3]), perm=[1, 0])
    assert_declined(MATMUL[1], b.model(b.node("MatMul", t, b.input("c", [4])), rank=1), "an operand is a vector")


# --- normalization -------------------------------------------------------------------------------------------------------


@property_of("fuse_skip_layer_normalization", "fuse_skip_rms_normalization")
@given(st.integers(2, 3), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_fuse_skip_normalization_of_any_form(rank: int, rms: bool, bias: bool, kept: bool, seed: int) -> None:
    b = Builder(opset=23 if rms else 17, seed=seed)
    shape = ["N", 3, 8][-rank:]
    s = b.node("Add", b.input("x", shape), b.input("z", shape))
    operands = [s, b.random(8)] + ([b.random(8)] if bias and not rms else [])
    y = b.node("RMSNormalization" if rms else "LayerNormalization", *operands, epsilon=1e-3)
    rule = ort.fuse_skip_rms_normalization if rms else ort.fuse_skip_layer_normalization
    made = {"SkipSimplifiedLayerNormalization" if rms else "SkipLayerNormalization": 1}
    model = b.model(y, *([b.node("Neg", s)] if kept else []))
    assert_made(rule, model, **made)


@declines("fuse_skip_layer_normalization", "fuse_skip_rms_normalization")
def test_fuse_skip_normalization_declines() -> None:
    cases = (
        (["N", 3, 8], [1, 3, 8], {}, "are not known to have the same shape"),
        (["N", 2, 3, 8], ["N", 2, 3, 8], {}, "the rank is neither 2 nor 3"),
        (["N", 3, 8], ["N", 3, 8], {"axis": 1}, "more axes than the last"),
        (["N", 3, 8], ["N", 3, 8], {"epsilon": -1.0}, "epsilon is -1"),
    )
    for op, opset, rule in (
        ("LayerNormalization", 17, ort.fuse_skip_layer_normalization),
        ("RMSNormalization", 23, ort.fuse_skip_rms_normalization),
    ):
        for shape, other, attrs, says in cases:
            b = Builder(opset=opset)
            s = b.node("Add", b.input("x", shape), b.input("z", other))
            scale = b.random(3, 8) if "axis" in attrs else b.random(8)
            assert_declined(rule, b.model(b.node(op, s, scale, **attrs)), says)


@pytest.mark.parametrize(
    ("op", "shapes"),
    [("LayerNormalization", [(1,)]), ("LayerNormalization", [(8,), (1,)]), ("LayerNormalization", [(8,), (1, 8)]),
     ("RMSNormalization", [(1,)]), ("RMSNormalization", [(1, 8)])],
)  # fmt: skip
def test_a_scale_or_bias_that_is_broadcast_stays(op: str, shapes: list[tuple[int, ...]]) -> None:
    b = Builder(opset=23)
    s = b.node("Add", b.input("x", ["N", 3, 8]), b.input("z", ["N", 3, 8]))
    model = b.model(b.node(op, s, *(b.random(*shape) for shape in shapes)))
    rule = ort.fuse_skip_rms_normalization if op[0] == "R" else ort.fuse_skip_layer_normalization
    assert_declined(rule, model, "is no vector of the size of the last axis")


# --- Gelu ----------------------------------------------------------------------------------------------------------------


def erf_gelu(b: Builder, x: str) -> str:
    e = b.node("Add", b.node("Erf", b.node("Div", x, b.constant(2**0.5))), b.constant(1.0))
    return str(b.node("Mul", b.node("Mul", x, e), b.constant(0.5)))


def tanh_gelu(b: Builder, x: str) -> str:
    inner = b.node("Add", x, b.node("Mul", b.constant(0.044715), b.node("Pow", x, b.constant(3.0))))
    t = b.node("Tanh", b.node("Mul", b.constant((2 / np.pi) ** 0.5), inner))
    return str(b.node("Mul", b.node("Mul", b.constant(0.5), x), b.node("Add", t, b.constant(1.0))))


CONTRIB_GELU = (
    ort_gelu.fuse_erf_into_contrib_gelu,
    ort_gelu.fuse_tanh_into_fast_gelu,
    ort_gelu.fuse_bias_into_contrib_gelu,
)


@property_of("fuse_erf_into_contrib_gelu", "fuse_tanh_into_fast_gelu", "fuse_bias_into_contrib_gelu")
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.booleans(), st.booleans(), st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_fuse_erf_and_tanh_into_contrib_gelu_of_any_shape(shape: list[int], tanh: bool, bias: bool, seed: int) -> None:
    b = Builder(opset=17, seed=seed)
    x = b.input("x", shape)
    x = str(b.node("Add", b.random(shape[-1]), x)) if bias else x
    model = b.model(tanh_gelu(b, x) if tanh else erf_gelu(b, x))
    result = apply(CONTRIB_GELU, model)
    assert result.ops == {"FastGelu" if tanh else "BiasGelu" if bias else "Gelu": 1}
    assert_equal(model, result.model, ({},), tolerance=2e-5)


@property_of("fuse_bias_into_gelu")
@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.booleans(), st.sampled_from(["none", "tanh"]))
@settings(max_examples=15, deadline=None)
def test_fuse_bias_into_gelu_of_any_shape(shape: list[int], first: bool, approximate: str) -> None:
    b = Builder(opset=20)
    operands = (b.input("x", shape), b.random(shape[-1]))
    y = b.node("Gelu", b.node("Add", *operands[:: 1 if first else -1]), approximate=approximate)
    assert_made(
        ort_gelu.fuse_bias_into_gelu, b.model(y), ({},), **{"BiasGelu" if approximate == "none" else "FastGelu": 1}
    )


@declines("fuse_bias_into_gelu")
def test_fuse_bias_into_gelu_declines() -> None:
    b = Builder(opset=20)
    y = b.node("Gelu", b.node("Add", b.input("x", [5, 6]), b.random(5, 1)))
    assert_declined(ort_gelu.fuse_bias_into_gelu, b.model(y), "is no vector along the last axis")
    b = Builder(opset=20)
    y = b.node("Gelu", b.node("Add", b.input("x", ["N", 1]), b.random(6)))
    assert_declined(ort_gelu.fuse_bias_into_gelu, b.model(y), "is no vector along the last axis")


@declines("fuse_bias_into_contrib_gelu")
def test_fuse_bias_into_contrib_gelu_declines() -> None:
    b = Builder(opset=17)
    model = b.model(erf_gelu(b, str(b.node("Add", b.input("x", [5, 6]), b.random(5, 1)))))
    result = apply(CONTRIB_GELU, model)
    assert result.ops == {"Add": 1, "Gelu": 1} and any("along the last axis" in r for r in result.reasons)


@declines("fuse_erf_into_contrib_gelu", "fuse_tanh_into_fast_gelu")
def test_fuse_erf_and_tanh_into_contrib_gelu_decline() -> None:
    for form in (erf_gelu, tanh_gelu):
        b = Builder(np.float16, opset=17)
        result = apply(CONTRIB_GELU, b.model(form(b, b.input("x", ["N", 6]))))
        assert not result.applied and any("to be float32" in r for r in result.reasons)
        b = Builder(opset=20)
        assert not apply(CONTRIB_GELU, b.model(form(b, b.input("x", ["N", 6])))).applied  # ONNX has its own there


@property_of("fuse_quick_gelu")
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.sampled_from([None, 1.702, -0.5]))
@settings(max_examples=15, deadline=None)
def test_fuse_quick_gelu_of_any_shape(shape: list[int], alpha: float | None) -> None:
    b = Builder()
    x = b.input("x", shape)
    inner = x if alpha is None else b.node("Mul", x, b.constant(alpha))
    assert_made(ort_gelu.fuse_quick_gelu, b.model(b.node("Mul", b.node("Sigmoid", inner), x)), ({},), QuickGelu=1)


@declines("fuse_quick_gelu")
def test_fuse_quick_gelu_declines() -> None:
    b = Builder()
    x = b.input("x", ["N", 6])
    y = b.node("Mul", x, b.node("Sigmoid", b.node("Mul", x, b.random(6))))
    assert_declined(ort_gelu.fuse_quick_gelu, b.model(y), "is not one number")


# --- the set -------------------------------------------------------------------------------------------------------------


def network(opset: int = 17) -> onnx.ModelProto:
    """A residual block, then attention scores, a feed-forward part and a skip with its normalization."""
    b = Builder(opset=opset)
    x = b.input("x", [1, 8, 6, 6])
    c = b.node("Relu", b.conv(x, 8, 8, [3, 3], bias=True, pads=[1] * 4))
    r = b.node("Relu", b.node("Add", b.conv(c, 8, 8, [3, 3], bias=True, pads=[1] * 4), x))
    t = b.node("Transpose", b.node("Reshape", r, b.constant([1, 8, 36])), perm=[0, 2, 1])
    q, k, v = (b.node("Add", b.node("MatMul", t, b.random(8, 8)), b.random(8)) for _ in range(3))
    scores = b.node("Div", b.node("MatMul", q, b.node("Transpose", k, perm=[0, 2, 1])), b.constant(8**0.5))
    a = b.node("MatMul", b.node("Softmax", scores, axis=-1), v)
    n = b.node("LayerNormalization", b.node("Add", t, a), b.random(8), b.random(8))
    f = erf_gelu(b, str(b.node("Add", b.node("MatMul", n, b.random(8, 16)), b.random(16))))
    f = str(b.node("Add", b.node("MatMul", f, b.random(16, 8)), b.random(8)))
    y = b.node("LayerNormalization", b.node("Add", n, f), b.random(8), b.random(8))
    return b.model(y, rank=3)


def test_at_least_what_the_runtime_makes(tmp_path: Path) -> None:
    model = network()
    result = sp.optimize(model, sets=["ort"])
    made, theirs = contrib(result.proto), by_the_runtime(model, tmp_path)
    assert theirs["FusedConv"] and theirs["SkipLayerNormalization"], theirs  # else this compares with nothing
    for found in (made, theirs):  # a bias may have gone into the product in front instead
        found["Gelu"] += found.pop("BiasGelu", 0)
    assert all(made[op] >= number for op, number in theirs.items()), (made, theirs)


def test_all_is_verified_and_nothing_loses_its_shape() -> None:
    result = sp.optimize(network(), sets=["ort"])
    assert result.converged and result.check.status == "equal" and not result.undone
    assert {d.verdict for d in result.applied} == {"verified"}
    assert result.is_static and not result.checker_error and not result.custom_operators
    assert {o.domain: o.version for o in result.proto.opset_import} == {"": 17, DOMAIN: 1}
    stated = {v.name for v in result.proto.graph.value_info}
    assert {n.output[0] for n in result.proto.graph.node[:-1]} <= stated


def test_what_the_general_rules_merge_is_merged_first() -> None:
    b = Builder()
    c = b.conv(b.input("x", ["N", 2, "H"]), 2, 3, [3])
    y = b.node("Clip", b.node("Relu", c), b.constant(0.0), b.constant(6.0))
    result = sp.optimize(b.model(y), sets=["ort"])
    assert [n.op_type for n in result.proto.graph.node] == ["FusedConv"]


def test_off_by_default_and_no_other_domain_is_imported() -> None:
    result = sp.optimize(network())
    assert not contrib(result.proto) and [o.domain for o in result.proto.opset_import] == [""]


def test_a_result_is_read_again_with_its_shapes() -> None:
    first = sp.optimize(network(), sets=["ort"])
    again = sp.optimize(first.proto, sets=["ort"])
    assert again.is_static and contrib(again.proto) == contrib(first.proto)
    assert again.after.nodes == first.after.nodes


def test_shapes_of_fused_operators_are_known_without_value_info() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[N,3,H,W] x, float[N,5,4] a, float[N,6,4] b) => (float[A,B,C,D] y, float[E,F,G] z, float[I,J] m) {
        w = Constant<value = float[2,3,1,1] {1,2,3,4,5,6}>()
        y = com.microsoft.FusedConv<activation = "Relu", strides = [2, 2]>(x, w)
        p = com.microsoft.FusedMatMul<transB = 1, alpha = 0.5>(a, b)
        z = com.microsoft.QuickGelu<alpha = 1.0>(p)
        s = Constant<value = int64[2] {-1, 4}>()
        r = Reshape(a, s)
        v = Constant<value = float[4,7] {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28}>()
        m = com.microsoft.FusedGemm<activation = "Relu">(r, v)
    }
    """
    result = sp.optimize(onnx.parser.parse_model(text))
    dims = {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in result.proto.graph.output
    }
    assert dims["y"] == ["N", 2, "floordiv(H - 1, 2) + 1", "floordiv(W - 1, 2) + 1"]
    assert dims["z"] == ["N", 5, 6] and dims["m"] == ["5*N", 7]

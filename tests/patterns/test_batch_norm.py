"""BatchNormalization into Conv, ConvTranspose, Gemm and MatMul."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import surgeon_passes as sp
from surgeon_passes.patterns import batch_norm

from . import harness
from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, constants, operators

RULES = [
    batch_norm.fold_batch_norm_into_conv,
    batch_norm.fold_batch_norm_into_conv_transpose,
    batch_norm.fold_batch_norm_into_gemm,
    batch_norm.fold_batch_norm_into_matmul,
    batch_norm.fold_batch_norm_into_transposed_matmul,
]
DIMS = ("H", "W", "D")


def assert_folds(model: onnx.ModelProto, tolerance: float | None = None, **left: int) -> onnx.ModelProto:
    result = apply(RULES, model)
    assert result.ops == left
    assert_equal(model, result.model, ({"N": 9, "H": 7, "W": 9, "D": 6}, {"N": 21, "H": 10, "W": 8}), tolerance)
    return result.model


assert_stays = partial(harness.assert_stays, RULES)


# --- Conv ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("group", [1, 2, 4])
def test_conv(rank: int, group: int, bias: bool) -> None:
    b = Builder()
    x = b.input("x", ["N", 4, *DIMS[:rank]])
    attrs = {"strides": [2] * rank, "dilations": [1, 2, 1][:rank], "pads": [1, 0, 2, 1, 1, 0][: 2 * rank]}
    c = b.conv(x, 4, 8, [3, 2, 1][:rank], bias=bias, group=group, **attrs)
    assert_folds(b.model(b.batch_norm(c, 8, epsilon=1e-3)), Conv=1)


@pytest.mark.parametrize("opset", [7, 8, 9, 11, 13, 14, 15, 17, 21])
def test_conv_at_every_form_of_batch_normalization(opset: int) -> None:
    b = Builder(opset=opset)
    c = b.conv(b.input("x", ["N", 2, "H", "W"]), 2, 3, [3, 3])
    assert_folds(b.model(b.batch_norm(c, 3)), Conv=1)


def test_conv_keeps_its_auto_pad() -> None:
    b = Builder()
    c = b.conv(b.input("x", ["N", 2, "H", "W"]), 2, 3, [3, 3], auto_pad="SAME_UPPER", strides=[2, 2])
    assert_folds(b.model(b.batch_norm(c, 3)), Conv=1)


def test_two_in_a_row() -> None:
    b = Builder()
    c = b.conv(b.input("x", ["N", 2, "H"]), 2, 3, [3], bias=True)
    assert_folds(b.model(b.batch_norm(b.batch_norm(c, 3), 3)), Conv=1)


def test_values_names_and_dtype() -> None:
    b = Builder()
    w, bias = b.rng.standard_normal((3, 2, 3)), b.rng.standard_normal(3)
    gamma, beta, mean, var = b.rng.uniform(0.5, 1.5, (4, 3))
    c = b.node("Conv", b.input("x", ["N", 2, "H"]), b.constant(w), b.constant(bias))
    y = b.node("BatchNormalization", c, *map(b.constant, (gamma, beta, mean, var)), epsilon=0.1)
    held = constants(assert_folds(b.model(y), Conv=1))
    s = gamma / np.sqrt(var + np.float32(0.1))
    assert set(held) == {"k0.bn_folded", "k1.bn_folded"}
    np.testing.assert_allclose(held["k0.bn_folded"], w * s[:, None, None], rtol=1e-6)
    np.testing.assert_allclose(held["k1.bn_folded"], s * (bias - mean) + beta, rtol=1e-5)


def test_half_weights_stay_half_beside_single_statistics() -> None:
    b = Builder(np.float16, opset=15)
    c = b.conv(b.input("x", ["N", 2, "H", "W"]), 2, 3, [3, 3])
    gamma, beta = b.random(3, low=0.5), b.random(3)
    mean = b.constant(b.rng.standard_normal(3), np.float32)
    var = b.constant(b.rng.uniform(0.5, 1.5, 3), np.float32)
    model = b.model(b.node("BatchNormalization", c, gamma, beta, mean, var))
    result = apply(RULES, model)
    assert result.ops == {"Conv": 1}
    assert {a.dtype for a in constants(result.model).values()} == {np.dtype(np.float16)}


def test_half() -> None:
    b = Builder(np.float16, opset=14)
    c = b.conv(b.input("x", ["N", 2, "H", "W"]), 2, 3, [3, 3])
    assert_folds(b.model(b.batch_norm(c, 3)), tolerance=5e-3, Conv=1)


def test_a_shared_weight_is_not_changed_in_place() -> None:
    b = Builder()
    x, w = b.input("x", ["N", 2, "H"]), b.random(3, 2, 3)
    first, second, plain = (b.node("Conv", x, w) for _ in range(3))
    model = b.model(b.batch_norm(first, 3), b.batch_norm(second, 3), plain)
    assert_folds(model, Conv=3)


@pytest.mark.parametrize("kernel", [[3], [3, 3]])
def test_a_weight_that_overflows_its_dtype_stays(kernel: list[int]) -> None:
    b = Builder(np.float16)
    c = b.node("Conv", b.input("x", ["N", 1, *DIMS[: len(kernel)]]), b.constant(np.full((1, 1, *kernel), 6e4)))
    y = b.node("BatchNormalization", c, *(b.constant([v]) for v in (4.0, 0.0, 0.0, 1.0)))
    assert_stays(b.model(y), "overflows float16")


def test_training_mode_stays() -> None:
    b = Builder()
    c = b.conv(b.input("x", ["N", 2, "H"]), 2, 3, [3])
    held = [b.random(3, low=0.5) for _ in range(4)]
    y, *_ = b.node("BatchNormalization", c, *held, outputs=3, training_mode=1)
    assert_stays(b.model(y), "training mode")


def test_statistics_that_are_used_stay() -> None:
    b = Builder(opset=9)
    c = b.conv(b.input("x", ["N", 2, "H"]), 2, 3, [3])
    held = [b.random(3, low=0.5) for _ in range(4)]
    y, mean, *_ = b.node("BatchNormalization", c, *held, outputs=5)
    model = b.model(y, b.node("Relu", mean))
    assert apply(RULES, model).ops == operators(model)


def test_training_without_used_statistics_stays() -> None:
    b = Builder(opset=9)
    c = b.conv(b.input("x", ["N", 2, "H"]), 2, 3, [3])
    held = [b.random(3, low=0.5) for _ in range(4)]
    y, *_ = b.node("BatchNormalization", c, *held, outputs=5)
    assert_stays(b.model(y), "training mode")


@pytest.mark.parametrize(("variance", "shown"), [(-1.0, "-1 in channel 1"), (0.0, "0 in channel 1")])
def test_a_channel_without_variance_stays(variance: float, shown: str) -> None:
    b = Builder()
    c = b.conv(b.input("x", ["N", 2, "H"]), 2, 3, [3])
    held = [b.random(3) for _ in range(3)] + [b.constant([1.0, variance, 1.0])]
    y = b.node("BatchNormalization", c, *held, epsilon=0.0)
    assert_stays(b.model(y), f"variance + epsilon is {shown}")


@declines("fold_batch_norm_into_conv")
def test_an_infinite_statistic_stays() -> None:
    b = Builder()
    c = b.conv(b.input("x", ["N", 2, "H"]), 2, 3, [3])
    held = [b.constant([1.0, np.inf, 1.0]), b.random(3), b.random(3), b.random(3, low=0.5)]
    assert_stays(b.model(b.node("BatchNormalization", c, *held)), "the scale is not finite")


@pytest.mark.parametrize("place", ["weight", "bias", "scale"])
def test_what_is_not_constant_stays(place: str) -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    weight = b.input("w", [3, 2, 3]) if place == "weight" else b.random(3, 2, 3)
    bias = b.input("b", [3]) if place == "bias" else b.random(3)
    scale = b.input("s", [3]) if place == "scale" else b.random(3)
    c = b.node("Conv", x, weight, bias)
    y = b.node("BatchNormalization", c, scale, b.random(3), b.random(3), b.random(3, low=0.5))
    assert_stays(b.model(y), "is not constant")


def test_a_quantised_weight_stays() -> None:
    b = Builder()
    quantised = b.constant(b.rng.integers(-9, 9, (3, 2, 3)), np.int8)
    w = b.node("DequantizeLinear", quantised, b.constant(0.1), b.constant(0, np.int8))
    y = b.batch_norm(b.node("Conv", b.input("x", ["N", 2, "H"]), w), 3)
    assert_stays(b.model(y), "is not constant")


def test_a_result_that_is_used_elsewhere_stays() -> None:
    b = Builder()
    c = b.conv(b.input("x", ["N", 2, "H"]), 2, 3, [3])
    assert_stays(b.model(b.batch_norm(c, 3), c), "is a graph output")


def test_old_batch_normalization_of_places_stays() -> None:
    b = Builder(opset=8)
    c = b.conv(b.input("x", ["N", 2, 4]), 2, 3, [3])
    held = [b.random(3, 2, low=0.5) for _ in range(4)]
    model = b.model(b.node("BatchNormalization", c, *held, spatial=0))
    assert apply(RULES, model).ops == operators(model)


# --- ConvTranspose -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("cin", "cout", "group"), [(4, 6, 1), (4, 6, 2), (4, 4, 2), (4, 4, 4), (2, 8, 2)])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_conv_transpose(rank: int, cin: int, cout: int, group: int, bias: bool) -> None:
    b = Builder()
    names = [b.input("x", ["N", cin, *DIMS[:rank]]), b.random(cin, cout // group, *[3, 2, 2][:rank])]
    names += [b.random(cout)] if bias else []
    attrs = {"strides": [2] * rank, "output_padding": [1] + [0] * (rank - 1), "pads": [1, 0, 0, 1, 0, 0][: 2 * rank]}
    c = b.node("ConvTranspose", *names, group=group, **attrs)
    assert_folds(b.model(b.batch_norm(c, cout)), ConvTranspose=1)


def test_conv_transpose_values() -> None:
    b = Builder()
    w = b.rng.standard_normal((4, 2, 3))
    gamma, beta, mean, var = b.rng.uniform(0.5, 1.5, (4, 4))
    c = b.node("ConvTranspose", b.input("x", ["N", 4, "H"]), b.constant(w), group=2)
    y = b.node("BatchNormalization", c, *map(b.constant, (gamma, beta, mean, var)))
    held = constants(assert_folds(b.model(y), ConvTranspose=1))
    s = gamma / np.sqrt(var + 1e-5)
    for row in range(4):
        for column in range(2):
            expected = w[row, column] * s[2 * (row // 2) + column]
            np.testing.assert_allclose(held["k0.bn_folded"][row, column], expected, rtol=1e-6)


@declines("fold_batch_norm_into_conv_transpose")
def test_conv_transpose_before_a_channel_without_variance_stays() -> None:
    b = Builder()
    c = b.node("ConvTranspose", b.input("x", ["N", 4, "H"]), b.random(4, 2, 3), group=2)
    held = [b.constant([1.0, -1.0, 1.0, 1.0]) for _ in range(4)]
    assert_stays(b.model(b.node("BatchNormalization", c, *held)), "variance + epsilon is -1 in channel 1")


# --- Gemm and MatMul -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("bias", [None, (), (1,), (3,), (1, 3), (1, 1)])
def test_gemm(trans_a: int, trans_b: int, bias: tuple[int, ...] | None) -> None:
    b = Builder()
    names = [b.input("x", [4, 5] if trans_a else [5, 4]), b.random(3, 4) if trans_b else b.random(4, 3)]
    names += [] if bias is None else [b.random(*bias)]
    c = b.node("Gemm", *names, transA=trans_a, transB=trans_b, alpha=0.5, beta=1.5)
    assert_folds(b.model(b.batch_norm(c, 3)), Gemm=1)


def test_gemm_ignores_a_bias_times_zero() -> None:
    b = Builder()
    c = b.node("Gemm", b.input("x", ["N", 4]), b.random(4, 3), b.random(5, 1), beta=0.0)
    model = b.model(b.batch_norm(c, 3))
    assert_equal(model, apply(RULES, model).model, [{"N": 5}])


@declines("fold_batch_norm_into_gemm")
@pytest.mark.parametrize("shape", [(4, 1), (4, 4)])
def test_gemm_bias_along_rows_stays(shape: tuple[int, ...]) -> None:
    b = Builder()
    c = b.node("Gemm", b.input("x", [4, 5]), b.random(5, 4), b.random(*shape))
    assert_stays(b.model(b.batch_norm(c, 4)), "is not one number a channel")


def test_double() -> None:
    b = Builder(np.float64)
    c = b.node("Gemm", b.input("x", ["N", 4]), b.random(4, 3))
    assert_folds(b.model(b.batch_norm(c, 3)), tolerance=1e-13, Gemm=1)


@pytest.mark.parametrize("bias", [None, (), (3,), (1, 3)])
@pytest.mark.parametrize("first", [True, False])
def test_matmul(bias: tuple[int, ...] | None, first: bool) -> None:
    b = Builder()
    c = b.node("MatMul", b.input("x", ["N", 4]), b.random(4, 3))
    if bias is not None:
        held = b.random(*bias)
        c = b.node("Add", held, c) if first else b.node("Add", c, held)
    assert_folds(b.model(b.batch_norm(c, 3)), Gemm=1)


def test_matmul_bias_that_enlarges_stays() -> None:
    b = Builder()
    c = b.node("Add", b.node("MatMul", b.input("x", [1, 4]), b.random(4, 3)), b.random(5, 3))
    assert_stays(b.model(b.batch_norm(c, 3)), "is not one number a channel")


@declines("fold_batch_norm_into_matmul")
def test_matmul_of_rank_three_stays() -> None:
    b = Builder()
    c = b.node("MatMul", b.input("x", ["N", 3, 4]), b.random(4, 3))
    assert_stays(b.model(b.batch_norm(c, 3)), "of rank 3")


def test_matmul_of_unknown_rank_stays() -> None:
    b = Builder()
    x = b.node("Reshape", b.input("x", ["N", 4]), b.input("t", ["K"], np.int64))
    c = b.node("MatMul", x, b.random(4, 3))
    assert_stays(b.model(b.batch_norm(c, 3)), "of unknown rank")


@pytest.mark.parametrize("bias", [None, (3,), (1, 1, 3)])
@pytest.mark.parametrize(("shape", "perm"), [(["N", "T", 4], [0, 2, 1]), (["N", "T", 5, 4], [0, 3, 1, 2])])
def test_transposed_matmul(shape: list[Any], perm: list[int], bias: tuple[int, ...] | None) -> None:
    b = Builder()
    c = b.node("MatMul", b.input("x", shape), b.random(4, 3))
    c = c if bias is None else b.node("Add", b.random(*bias), c)
    model = b.model(b.batch_norm(b.node("Transpose", c, perm=perm), 3))
    assert_folds(model, MatMul=1, Add=1, Transpose=1)


@declines("fold_batch_norm_into_transposed_matmul")
def test_transposed_matmul_with_other_axes_stays() -> None:
    b = Builder()
    c = b.node("MatMul", b.input("x", ["N", 3, 3, 4]), b.random(4, 3))
    model = b.model(b.batch_norm(b.node("Transpose", c, perm=[0, 2, 1, 3]), 3))
    assert_stays(model, "does not bring the MatMul's last axis to axis 1")


# --- on request ----------------------------------------------------------------------------------------------------------


@property_of("write_batch_norm_as_mul_add")
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    spatial=st.integers(0, 3),
    dtype=st.sampled_from([np.float32, np.float16, np.float64]),
    opset=st.sampled_from([7, 9, 14, 17]),
    seed=st.integers(0, 99),
)
def test_alone(spatial: int, dtype: Any, opset: int, seed: int) -> None:
    b = Builder(dtype, opset=opset, seed=seed)
    model = b.model(b.batch_norm(b.input("x", ["N", 3, *DIMS[:spatial]]), 3))
    result = apply([batch_norm.write_batch_norm_as_mul_add], model)
    assert result.ops == {"Mul": 1, "Add": 1}
    assert_equal(model, result.model, ({"N": 9, "H": 7, "W": 9, "D": 6},), 1e-2 if dtype is np.float16 else None)


def test_alone_is_off_by_default() -> None:
    b = Builder()
    model = b.model(b.batch_norm(b.input("x", ["N", 3, "H", "W"]), 3))
    assert {n.op_type for n in sp.optimize(model).proto.graph.node} == {"BatchNormalization"}
    pipeline = sp.Pipeline(sp.Rewrite(*sp.Rewrite().sets, "batch_norm"), sp.Cleanup())
    assert [n.op_type for n in pipeline.run(model).proto.graph.node] == ["Mul", "Add"]


def test_alone_leaves_what_a_convolution_takes_in() -> None:
    b = Builder()
    c = b.conv(b.input("x", ["N", 2, "H"]), 2, 3, [3])
    pipeline = sp.Pipeline(sp.Rewrite(*sp.Rewrite().sets, "batch_norm"), sp.Cleanup())
    result = pipeline.run(b.model(b.batch_norm(c, 3)))
    assert [n.op_type for n in result.proto.graph.node] == ["Conv"]


@declines("write_batch_norm_as_mul_add")
def test_alone_of_unknown_rank_stays() -> None:
    b = Builder()
    x = b.node("Reshape", b.input("x", ["N"]), b.input("t", ["K"], np.int64))
    model = b.model(b.batch_norm(x, 3), rank=3)
    result = apply([batch_norm.write_batch_norm_as_mul_add], model)
    assert result.ops == operators(model) and any("the rank of" in r for r in result.reasons)


# --- any -----------------------------------------------------------------------------------------------------------------


@property_of("fold_batch_norm_into_conv", "fold_batch_norm_into_conv_transpose")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    op=st.sampled_from(["Conv", "ConvTranspose"]),
    spatial=st.integers(1, 3),
    group=st.sampled_from([1, 2]),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    pad=st.integers(0, 1),
    bias=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float16]),
    seed=st.integers(0, 99),
)
def test_any_convolution(
    op: str, spatial: int, group: int, kernel: int, stride: int, pad: int, bias: bool, dtype: Any, seed: int
) -> None:
    b = Builder(dtype, seed=seed)
    shape = (6, 4 // group) if op == "Conv" else (4, 6 // group)
    names = [b.input("x", ["N", 4, *[6] * spatial]), b.random(*shape, *[kernel] * spatial)]
    names += [b.random(6)] if bias else []
    attrs = {"strides": [stride] * spatial, "pads": [min(pad, kernel - 1)] * (2 * spatial)}
    model = b.model(b.batch_norm(b.node(op, *names, group=group, **attrs), 6))
    result = apply(RULES, model)
    assert result.ops == {op: 1}
    assert_equal(model, result.model, [{"N": 3}], 2e-2 if dtype is np.float16 else 1e-5)


@property_of("fold_batch_norm_into_gemm", "fold_batch_norm_into_matmul", "fold_batch_norm_into_transposed_matmul")
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    op=st.sampled_from(["Gemm", "MatMul", "Transpose"]),
    bias=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float16, np.float64]),
    seed=st.integers(0, 99),
)
def test_any_product(op: str, bias: bool, dtype: Any, seed: int) -> None:
    b = Builder(dtype, seed=seed)
    x, w = b.input("x", ["N", 3, 4] if op == "Transpose" else ["N", 4]), b.random(4, 5)
    if op == "Gemm":
        c = b.node("Gemm", x, w, *([b.random(5)] if bias else []))
    else:
        c = b.node("MatMul", x, w)
        c = b.node("Add", c, b.random(5)) if bias else c
    c = b.node("Transpose", c, perm=[0, 2, 1]) if op == "Transpose" else c
    model = b.model(b.batch_norm(c, 5))
    result = apply(RULES, model)
    assert "BatchNormalization" not in result.ops
    tolerance = {np.float32: 1e-5, np.float16: 2e-2, np.float64: 1e-13}[dtype]
    assert_equal(model, result.model, [{"N": 33}], tolerance)


@pytest.mark.parametrize(("op", "shape"), [("Conv", (2, 1, 1)), ("ConvTranspose", (1, 2, 1)), ("Gemm", (1, 2))])
@pytest.mark.parametrize("where", ["weight", "bias"])
def test_infinities_stay(op: str, shape: tuple[int, ...], where: str) -> None:
    b = Builder()
    x = b.input("x", ["N", 1, 3] if op != "Gemm" else ["N", 1])
    weight = np.full(shape, np.inf if where == "weight" else 1.0)
    c = b.node(op, x, b.constant(weight), b.constant([np.inf if where == "bias" else 1.0, 0.0]))
    assert_stays(b.model(b.batch_norm(c, 2)), "is not finite")

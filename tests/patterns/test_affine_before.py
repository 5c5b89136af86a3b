"""BatchNormalization and constants in front of a linear operator."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from surgeon_passes import patterns
from surgeon_passes.patterns import affine, affine_before
from surgeon_passes.rules.registry import rules_of

from . import harness
from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, constants, feeds_for, operators

RULES = [
    affine_before.fold_affine_before_conv,
    affine_before.fold_affine_before_conv_transpose,
    affine_before.fold_affine_before_gemm,
    affine_before.fold_batch_norm_before_flat_gemm,
    affine_before.fold_batch_norm_before_matmul,
    affine_before.fold_scale_before_matmul,
    affine_before.sink_batch_norm_past_average_pool,
    affine.fold_constant_into_gemm,  # a bias behind the MatMul
]
DIMS = ("H", "W", "D")
SIZES = ({"N": 9, "H": 7, "W": 9, "D": 6, "T": 3}, {"N": 21, "H": 10, "W": 8, "T": 1})
BOUND = 1e-5
"""A shift that meets the weight is summed over C·k, in another order than the original's: longer than one channel."""


def assert_folds(model: onnx.ModelProto, tolerance: float = BOUND, **left: int) -> onnx.ModelProto:
    result = apply(RULES, model)
    assert result.ops == left, result.reasons
    assert_equal(model, result.model, SIZES, tolerance)
    return result.model


assert_stays = partial(harness.assert_stays, RULES)


def assert_same_by_definition(model: onnx.ModelProto, found: onnx.ModelProto, tolerance: float) -> None:
    """Both models by onnx's own reference: ONNX Runtime has no such kernel."""
    given_ = feeds_for(model, {"N": 3})
    expected, got = (ReferenceEvaluator(m).run(None, given_)[0] for m in (model, found))
    assert expected.dtype == got.dtype and expected.shape == got.shape
    assert np.abs(expected - got).max() <= tolerance * np.abs(expected).max()


# --- Conv ----------------------------------------------------------------------------------------------------------------


@property_of("fold_affine_before_conv")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rank=st.integers(1, 3),
    group=st.sampled_from([1, 2, 4]),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    pad=st.integers(0, 1),
    step=st.sampled_from(["BatchNormalization", "Mul", "Div", "Add", "Sub", "from"]),
    bias=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float16, np.float64]),
    seed=st.integers(0, 99),
)
def test_conv(
    rank: int, group: int, kernel: int, stride: int, pad: int, step: str, bias: bool, dtype: Any, seed: int
) -> None:
    b = Builder(dtype, seed=seed)
    x = b.input("x", ["N", 4, *[6] * rank])
    a = _step(b, x, 4, step, rank)
    y = b.conv(a, 4, 8, [kernel] * rank, bias=bias, group=group, strides=[stride] * rank, pads=[pad] * (2 * rank))
    model = b.model(y)
    result = apply(RULES, model)
    stays = pad > 0 and step not in ("Mul", "Div")
    assert (result.ops != {"Conv": 1}) is stays, result.reasons
    if dtype is np.float64:
        assert_same_by_definition(model, result.model, 1e-12)
    else:
        assert_equal(model, result.model, [{"N": 3}], 2e-2 if dtype is np.float16 else BOUND)


def _step(b: Builder, x: str, channels: int, step: str, spatial: int) -> str:
    if step == "BatchNormalization":
        return b.batch_norm(x, channels)
    k = b.random(channels, *[1] * spatial, low=0.5)
    return str(b.node("Sub", k, x) if step == "from" else b.node(step, x, k))


def test_conv_values() -> None:
    b = Builder()
    w, s = b.rng.standard_normal((4, 2, 3)), b.rng.standard_normal((4, 1))
    scaled = b.node("Mul", b.input("x", ["N", 4, "H"]), b.constant(s))
    held = constants(assert_folds(b.model(b.node("Conv", scaled, b.constant(w), group=2)), Conv=1))
    for row in range(4):
        for column in range(2):
            np.testing.assert_allclose(
                held["k1.affine_before"][row, column], w[row, column] * s[2 * (row // 2) + column], rtol=1e-6
            )
    assert len(held) == 1


def test_normalisation_of_an_image_goes_with_a_conv_that_does_not_pad() -> None:
    b = Builder()
    x = b.input("x", ["N", 3, "H", "W"])
    centred = b.node("Sub", x, b.random(1, 3, 1, 1))
    scaled = b.node("Div", b.node("Mul", centred, b.constant(1 / 255)), b.random(3, 1, 1, low=0.5))
    assert_folds(b.model(b.conv(scaled, 3, 4, [3, 3])), Conv=1)


@declines("fold_affine_before_conv")
@pytest.mark.parametrize("attrs", [{"pads": [0, 1]}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}])
def test_a_shift_before_pads_stays(attrs: dict[str, Any]) -> None:
    b = Builder()
    a = b.batch_norm(b.input("x", ["N", 2, "H"]), 2)
    assert_stays(b.model(b.conv(a, 2, 3, [3], **attrs)), "pads with zeros, and a shift stands before them")


@pytest.mark.parametrize("attrs", [{"auto_pad": "VALID"}, {"pads": [0, 0]}])
def test_a_shift_before_no_pads_goes(attrs: dict[str, Any]) -> None:
    b = Builder()
    a = b.batch_norm(b.input("x", ["N", 2, "H"]), 2)
    assert_folds(b.model(b.conv(a, 2, 3, [3], **attrs)), Conv=1)


def test_same_pads_of_a_kernel_of_one_are_none() -> None:
    b = Builder()
    a = b.batch_norm(b.input("x", ["N", 2, "H"]), 2)
    assert_folds(b.model(b.conv(a, 2, 3, [1], auto_pad="SAME_UPPER", strides=[2])), Conv=1)


def test_a_batch_normalization_without_shift_goes_before_pads() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    a = b.node("BatchNormalization", x, b.random(2), b.constant([0.0, 0.0]), b.constant([0.0, 0.0]), b.random(2, low=1))
    assert_folds(b.model(b.conv(a, 2, 3, [3], pads=[1, 1])), Conv=1)


@pytest.mark.parametrize(("shape", "channels"), [((1, 3, 1), 1), ((2, 3, 1), 3), ((5,), 3), ((3, 5), 3)])
def test_constants_that_enlarge_or_differ_by_place_stay(shape: tuple[int, ...], channels: int) -> None:
    b = Builder()
    a = b.node("Mul", b.input("x", [1, channels, 5]), b.random(*shape))
    model = b.model(b.conv(a, 3, 4, [1]))
    assert apply(RULES, model).ops == operators(model)


def test_an_unknown_channel_count_stays() -> None:
    b = Builder()
    a = b.node("Mul", b.input("x", ["N", "C", "H"]), b.random(3, 1))
    assert_stays(b.model(b.conv(a, 3, 4, [1])), "may enlarge")


def test_what_is_used_elsewhere_stays() -> None:
    b = Builder()
    a = b.batch_norm(b.input("x", ["N", 2, "H"]), 2)
    assert_stays(b.model(b.conv(a, 2, 3, [1]), b.node("Relu", a)), "is also used by")


def test_a_weight_of_two_convolutions_stays() -> None:
    b = Builder()
    x, w = b.input("x", ["N", 2, "H"]), b.random(3, 2, 1)
    model = b.model(b.node("Conv", b.node("Mul", x, b.constant(2.5)), w), b.node("Conv", x, w))
    assert_stays(model, "has other users")


def test_training_mode_stays() -> None:
    b = Builder()
    held = [b.random(2, low=0.5) for _ in range(4)]
    a, *_ = b.node("BatchNormalization", b.input("x", ["N", 2, "H"]), *held, outputs=3, training_mode=1)
    assert_stays(b.model(b.conv(a, 2, 3, [1])), "training mode")


def test_instance_normalization_is_never_touched() -> None:
    for opset in (7, 17, 22):
        b = Builder(opset=opset)
        x = b.conv(b.input("x", ["N", 2, "H", "W"]), 2, 4, [3, 3])
        y = b.node("InstanceNormalization", x, b.random(4), b.random(4))
        model = b.model(b.conv(y, 4, 3, [1, 1]))
        assert apply(rules_of(patterns), model).ops == {"Conv": 2, "InstanceNormalization": 1}


# --- ConvTranspose -------------------------------------------------------------------------------------------------------


@property_of("fold_affine_before_conv_transpose")
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rank=st.integers(1, 3),
    group=st.sampled_from([1, 2]),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    step=st.sampled_from(["BatchNormalization", "Mul", "Add", "from"]),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_conv_transpose(rank: int, group: int, kernel: int, stride: int, step: str, bias: bool, seed: int) -> None:
    b = Builder(seed=seed)
    a = _step(b, b.input("x", ["N", 4, *[4] * rank]), 4, step, rank)
    names = [a, b.random(4, 3, *[kernel] * rank)] + ([b.random(3 * group)] if bias else [])
    model = b.model(b.node("ConvTranspose", *names, group=group, strides=[stride] * rank))
    result = apply(RULES, model)
    stays = step != "Mul" and (kernel, stride) != (1, 1)
    assert (result.ops != {"ConvTranspose": 1}) is stays, result.reasons
    assert_equal(model, result.model, [{"N": 3}], BOUND)


@declines("fold_affine_before_conv_transpose")
@pytest.mark.parametrize("attrs", [{"strides": [2]}, {"output_shape": [9]}])
def test_a_shift_that_reaches_some_places_stays(attrs: dict[str, Any]) -> None:
    b = Builder()
    a = b.batch_norm(b.input("x", ["N", 2, 5]), 2)
    model = b.model(b.node("ConvTranspose", a, b.random(2, 3, 2 if "strides" in attrs else 1), **attrs))
    assert_stays(model, "by fewer taps")


# --- Gemm and MatMul -----------------------------------------------------------------------------------------------------


@property_of("fold_affine_before_gemm")
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    transposed=st.booleans(),
    alpha=st.sampled_from([1.0, 0.5]),
    beta=st.sampled_from([1.0, 0.0, 2.0]),
    step=st.sampled_from(["BatchNormalization", "Mul", "Div", "Add", "Sub", "from"]),
    bias=st.sampled_from([None, (), (1,), (3,), (1, 3)]),
    dtype=st.sampled_from([np.float32, np.float64, np.float16]),
    seed=st.integers(0, 99),
)
def test_gemm(transposed: bool, alpha: float, beta: float, step: str, bias: Any, dtype: Any, seed: int) -> None:
    b = Builder(dtype, seed=seed)
    a = _step(b, b.input("x", ["N", 4]), 4, step, 0)
    names = [a, b.random(3, 4) if transposed else b.random(4, 3)] + ([] if bias is None else [b.random(*bias)])
    model = b.model(b.node("Gemm", *names, transB=int(transposed), alpha=alpha, beta=beta))
    tolerance = {np.float32: BOUND, np.float64: 1e-12, np.float16: 3e-2}[dtype]
    assert_folds(model, tolerance, Gemm=1)


@declines("fold_affine_before_gemm")
def test_rows_of_a_gemm_stay() -> None:
    b = Builder()
    a = b.node("Mul", b.input("x", [3, 3]), b.random(3, 1))
    assert_stays(b.model(b.node("Gemm", a, b.random(3, 2))), "is not one number a channel")


def test_a_transposed_operand_stays() -> None:
    b = Builder()
    a = b.batch_norm(b.input("x", [4, 4]), 4)
    model = b.model(b.node("Gemm", a, b.random(4, 2), transA=1))
    assert apply(RULES, model).ops == operators(model)


@property_of("fold_batch_norm_before_flat_gemm")
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    size=st.lists(st.integers(1, 3), min_size=0, max_size=3),
    form=st.sampled_from(["Flatten", "Reshape"]),
    transposed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_flat_gemm(size: list[int], form: str, transposed: bool, seed: int) -> None:
    b = Builder(seed=seed)
    a = b.batch_norm(b.input("x", ["N", 4, *size]), 4)
    length = 4 * int(np.prod(size))
    f = b.node("Flatten", a) if form == "Flatten" else b.node("Reshape", a, b.constant([-1, length]))
    w = b.random(3, length) if transposed else b.random(length, 3)
    assert_folds(b.model(b.node("Gemm", f, w, transB=int(transposed)), rank=2), Gemm=1, **{form: 1})


@declines("fold_batch_norm_before_flat_gemm")
@pytest.mark.parametrize(
    ("shape", "flat", "reason"),
    [(["N", 4, "H"], 8, "the size of the maps"), (["N", 4, 2], 16, "are not certainly the maps")],
)
def test_other_rows_stay(shape: list[Any], flat: int, reason: str) -> None:
    b = Builder()
    f = b.node("Reshape", b.batch_norm(b.input("x", shape), 4), b.constant([-1, flat]))
    assert_stays(b.model(b.node("Gemm", f, b.random(flat, 3)), rank=2), reason)


@property_of("fold_batch_norm_before_matmul")
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    bias=st.sampled_from([None, (), (3,), (1, 3)]),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 99),
)
def test_matmul(bias: Any, dtype: Any, seed: int) -> None:
    b = Builder(dtype, seed=seed, opset=14)
    y = b.node("MatMul", b.batch_norm(b.input("x", ["N", 4]), 4), b.random(4, 3))
    assert_folds(b.model(y if bias is None else b.node("Add", b.random(*bias), y)), Gemm=1)


@declines("fold_batch_norm_before_matmul")
def test_matmul_of_more_dims_stays() -> None:
    b = Builder()
    y = b.node("MatMul", b.batch_norm(b.input("x", ["N", 4, 4]), 4), b.random(4, 3))
    assert_stays(b.model(y), "is not known to be of rank 2")


@property_of("fold_scale_before_matmul")
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lead=st.integers(0, 2),
    op=st.sampled_from(["Mul", "Div"]),
    shape=st.sampled_from([(), (1,), (4,)]),
    dtype=st.sampled_from([np.float32, np.float16, np.float64]),
    seed=st.integers(0, 99),
)
def test_scale_before_matmul(lead: int, op: str, shape: Any, dtype: Any, seed: int) -> None:
    b = Builder(dtype, seed=seed)
    x = b.input("x", [*["N", "T"][:lead], 4])
    y = b.node("MatMul", b.node(op, x, b.random(*shape, low=0.5)), b.random(4, 3))
    tolerance = {np.float32: BOUND, np.float64: 1e-12, np.float16: 3e-2}[dtype]
    assert_folds(b.model(y), tolerance, MatMul=1)


@declines("fold_scale_before_matmul")
@pytest.mark.parametrize(
    ("op", "k", "reason"),
    [("Mul", [[1.0], [2.0]], "is not one number"), ("Div", 0.0, "divides by zero"), ("Mul", np.inf, "not finite")],
)
def test_other_scales_stay(op: str, k: Any, reason: str) -> None:
    b = Builder()
    y = b.node("MatMul", b.node(op, b.input("x", [2, 4]), b.constant(k)), b.random(4, 3))
    assert_stays(b.model(y), reason)


# --- pools ---------------------------------------------------------------------------------------------------------------


@property_of("sink_batch_norm_past_average_pool")
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rank=st.integers(1, 3),
    form=st.sampled_from([None, {}, {"pads": 1}, {"count_include_pad": 1}, {"strides": 2}]),
    seed=st.integers(0, 99),
)
def test_average_pool(rank: int, form: dict[str, int] | None, seed: int) -> None:
    b = Builder(seed=seed)
    a = b.batch_norm(b.input("x", ["N", 3, *[5] * rank]), 3)
    if form is None:
        model = b.model(b.node("GlobalAveragePool", a))
    else:
        times = {"pads": 2 * rank, "strides": rank}
        attrs = {k: [v] * times[k] if k in times else v for k, v in form.items()}
        model = b.model(b.node("AveragePool", a, kernel_shape=[2] * rank, **attrs))
    found = assert_folds(model, BatchNormalization=1, **{"AveragePool" if form is not None else "GlobalAveragePool": 1})
    assert found.graph.node[-1].op_type == "BatchNormalization"


@declines("sink_batch_norm_past_average_pool")
@pytest.mark.parametrize(
    ("attrs", "reason"),
    [
        ({"count_include_pad": 1, "pads": [1, 0]}, "pads count as zeros"),
        ({"count_include_pad": 1, "auto_pad": "SAME_UPPER"}, "pads count as zeros"),
        ({"ceil_mode": 1}, "rounded up"),
    ],
)
def test_pools_whose_windows_count_more_stay(attrs: dict[str, Any], reason: str) -> None:
    b = Builder()
    a = b.batch_norm(b.input("x", ["N", 3, 6]), 3)
    assert_stays(b.model(b.node("AveragePool", a, kernel_shape=[3], **attrs)), reason)


# --- weights that are empty, infinite or huge ----------------------------------------------------------------------------


def _before(b: Builder, op: str, weight: Any, bias: Any, step: str) -> onnx.ModelProto:
    """A step on 2 channels in front of a linear operator."""
    shape = [2, 2, 3] if op.startswith("Conv") else [2, 2]
    x = b.input("x", shape)
    a = b.batch_norm(x, 2) if step == "BatchNormalization" else b.node(step, x, b.constant([[2.0]]))
    held = [] if bias is None else [b.constant(bias)]
    return b.model(b.node(op, a, b.constant(weight), *held))


@declines(*(rule.name for rule in RULES[:6] if "flat" not in rule.name))
def test_infinite_weights_stay() -> None:
    for op, shape in (("Conv", (3, 2, 1)), ("ConvTranspose", (2, 3, 1)), ("Gemm", (2, 3)), ("MatMul", (2, 3))):
        weight = np.ones(shape)
        weight.flat[0] = np.inf
        steps = ["BatchNormalization", "Mul"]
        for step in steps:
            assert_stays(_before(Builder(), op, weight, None, step), "is not finite")


@pytest.mark.parametrize("step", ["BatchNormalization", "Mul"])
@pytest.mark.parametrize(("op", "shape"), [("Conv", (3, 2, 1)), ("ConvTranspose", (2, 3, 1)), ("Gemm", (2, 3))])
def test_an_infinite_bias_stays(op: str, shape: tuple[int, ...], step: str) -> None:
    assert_stays(_before(Builder(), op, np.ones(shape), [np.inf, 0.0, 0.0], step), "is not finite")


@pytest.mark.parametrize(
    ("op", "shape"), [("Conv", (0, 2, 1)), ("ConvTranspose", (2, 0, 1)), ("Gemm", (2, 0)), ("MatMul", (2, 0))]
)
def test_empty_weights_stay(op: str, shape: tuple[int, ...]) -> None:
    assert_stays(_before(Builder(), op, np.zeros(shape), None, "BatchNormalization"), "holds no elements")


@declines("fold_batch_norm_before_flat_gemm")
@pytest.mark.parametrize(("places", "value", "reason"), [(0, 1.0, "holds no elements"), (2, np.inf, "is not finite")])
def test_flat_gemms_of_such_weights_stay(places: int, value: float, reason: str) -> None:
    b = Builder()
    f = b.node("Flatten", b.batch_norm(b.input("x", ["N", 2, places]), 2))
    assert_stays(b.model(b.node("Gemm", f, b.constant(np.full((2 * places, 3), value))), rank=2), reason)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("op", "shape"), [("Conv", (3, 2, 1)), ("ConvTranspose", (2, 3, 1)), ("Gemm", (2, 3)), ("MatMul", (2, 3))]
)
def test_products_that_overflow_a_double_stay(op: str, shape: tuple[int, ...]) -> None:
    b = Builder(np.float64)
    a = b.node("Mul", b.input("x", [2, 2, 3][: len(shape)]), b.constant(1e200))
    assert_stays(b.model(b.node(op, a, b.constant(np.full(shape, 1e200)))), "is not finite")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("op", "shape"), [("Conv", (3, 2, 1)), ("ConvTranspose", (2, 3, 1)), ("Gemm", (2, 3))])
def test_shifts_that_overflow_a_double_stay(op: str, shape: tuple[int, ...]) -> None:
    b = Builder(np.float64)
    a = b.node("Add", b.input("x", [2, 2, 3][: len(shape)]), b.constant(1e200))
    assert_stays(b.model(b.node(op, a, b.constant(np.full(shape, 1e200)))), "is not finite")


# --- to the end in one run -----------------------------------------------------------------------------------------------


def _again(rules: Any, model: onnx.ModelProto) -> onnx.ModelProto:
    """What the rules make of it; a second run changes no byte."""
    once = apply(rules, model).model
    assert apply(rules, once).model.SerializeToString(deterministic=True) == once.SerializeToString(deterministic=True)
    return once


@pytest.mark.parametrize("op", ["GlobalAveragePool", "AveragePool"])
def test_two_before_a_pool_sink_in_one_run(op: str) -> None:
    b = Builder()
    a = b.batch_norm(b.batch_norm(b.input("x", ["N", 3, 6]), 3), 3)
    attrs = {"kernel_shape": [2]} if op == "AveragePool" else {}
    once = _again([affine_before.sink_batch_norm_past_average_pool], b.model(b.node(op, a, **attrs)))
    assert [n.op_type for n in once.graph.node] == [op, "BatchNormalization", "BatchNormalization"]


def test_two_before_a_flat_gemm_fold_in_one_run() -> None:
    b = Builder()
    f = b.node("Flatten", b.batch_norm(b.batch_norm(b.input("x", ["N", 2, 3]), 2), 2))
    model = b.model(b.node("Gemm", f, b.random(6, 4)), rank=2)
    once = _again([affine_before.fold_batch_norm_before_flat_gemm], model)
    assert operators(once) == {"Flatten": 1, "Gemm": 1}
    assert_equal(model, once, SIZES, BOUND)


@declines("sink_batch_norm_past_average_pool")
@pytest.mark.parametrize("attrs", [{"pads": [1, 1]}, {"auto_pad": "SAME_UPPER"}])
def test_a_dilated_pool_that_pads_stays(attrs: dict[str, Any]) -> None:
    b = Builder(opset=19)
    a = b.batch_norm(b.input("x", ["N", 3, 6]), 3)
    assert_stays(b.model(b.node("AveragePool", a, kernel_shape=[2], dilations=[3], **attrs)), "may hold pads alone")


def test_a_dilated_pool_without_pads_sinks() -> None:
    b = Builder(opset=19)
    a = b.batch_norm(b.input("x", ["N", 3, "H"]), 3)
    model = b.model(b.node("AveragePool", a, kernel_shape=[2], dilations=[2]))
    assert_folds(model, BatchNormalization=1, AveragePool=1)

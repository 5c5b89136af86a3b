"""Constants after a linear operator."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns import affine

from . import harness
from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, assert_equal_to_rounding, constants, graph_model, operators

RULES = [
    affine.fold_constant_into_conv,
    affine.fold_constant_into_gemm,
    affine.fold_constant_into_matmul,
    affine.fold_constant_into_linear,
]
SIZES = ({"N": 40, "H": 7, "W": 9, "T": 3}, {"N": 33, "H": 5, "W": 5, "T": 1})


def assert_folds(model: onnx.ModelProto, **left: int) -> onnx.ModelProto:
    result = apply(RULES, model)
    assert result.ops == left
    assert_equal(model, result.model, SIZES)
    return result.model


assert_stays = partial(harness.assert_stays, RULES)


@pytest.mark.parametrize("op", ["Mul", "Div", "Add", "Sum", "Sub"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("shape", [(), (1,), (4, 1, 1), (1, 4, 1, 1), (1, 1, 1, 1)])
@pytest.mark.parametrize("conv", ["Conv", "ConvTranspose"])
def test_conv(conv: str, op: str, first: bool, shape: tuple[int, ...]) -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H", "W"])
    c = b.node(conv, x, b.random(4, 2, 3, 3), b.random(4), group=2)
    k = b.random(*shape, low=0.5)
    model = b.model(b.node(op, k, c) if first else b.node(op, c, k))
    if op == "Div" and first:
        assert apply(RULES, model).ops == operators(model)
    else:
        assert_folds(model, **{conv: 1})


def test_conv_without_bias_gets_none_from_a_scale() -> None:
    b = Builder()
    model = b.model(b.node("Mul", b.conv(b.input("x", ["N", 2, "H"]), 2, 3, [3]), b.random(3, 1, low=0.5)))
    assert len(assert_folds(model, Conv=1).graph.node[0].input) == 2


def test_a_sum_keeps_the_weight_itself() -> None:
    b = Builder()
    c = b.conv(b.input("x", ["N", 2, "H"]), 2, 3, [3])
    found = assert_folds(b.model(b.node("Add", c, b.random(3, 1)), b.node("Relu", "x")), Conv=1, Relu=1)
    assert found.graph.node[0].input[1] == "k0"


def test_values() -> None:
    b = Builder()
    w, bias, k = (b.rng.standard_normal(s) for s in [(3, 2, 3), (3,), (3, 1)])
    c = b.node("Conv", b.input("x", ["N", 2, "H"]), b.constant(w), b.constant(bias))
    held = constants(assert_folds(b.model(b.node("Sub", b.constant(k), c)), Conv=1))
    np.testing.assert_allclose(held["k0.scaled"], -w, rtol=1e-6)
    np.testing.assert_allclose(held["k1.scaled"], k[:, 0] - bias, rtol=1e-5)


@pytest.mark.parametrize("shape", [(4,), (1, 4, 5, 5), (1, 1, 1, 4), (1, 1, 4, 1)])
def test_constants_along_other_axes_stay(shape: tuple[int, ...]) -> None:
    b = Builder()
    c = b.conv(b.input("x", [1, 2, 5, 5 if shape == (1, 4, 5, 5) else 4]), 2, 4, [1, 1])
    c = c if shape[-2:] != (4, 1) else b.node("Slice", c, b.constant([0]), b.constant([4]), b.constant([2]))
    model = b.model(b.node("Mul", c, b.random(*shape)))
    assert apply(RULES, model).ops == operators(model)


@declines("fold_constant_into_conv")
def test_a_constant_that_raises_the_rank_stays() -> None:
    b = Builder()
    c = b.conv(b.input("x", [1, 2, 4, 4]), 2, 4, [1, 1])
    assert_stays(b.model(b.node("Add", c, b.random(1, 1, 4, 1, 1)), rank=5), "raises the rank")


@pytest.mark.parametrize("shape", [(2, 3, 1, 1), (2, 1, 1, 1)])
def test_a_constant_that_raises_the_batch_stays(shape: tuple[int, ...]) -> None:
    b = Builder()
    c = b.conv(b.input("x", [1, 2, 4, 4]), 2, 3, [1, 1])
    assert_stays(b.model(b.node("Mul", c, b.random(*shape))), "is not one number a channel")


def test_a_constant_that_raises_the_channels_stays() -> None:
    b = Builder()
    c = b.conv(b.input("x", [1, 2, 4]), 2, 1, [1])
    assert_stays(b.model(b.node("Mul", c, b.random(5, 1))), "is not one number a channel")


@declines("fold_constant_into_conv")
@pytest.mark.parametrize(
    ("op", "value", "reason"),
    [("Div", 0.0, "divides by zero"), ("Mul", np.nan, "is not finite"), ("Add", np.inf, "is not finite")],
)
def test_bad_numbers_stay(op: str, value: float, reason: str) -> None:
    b = Builder()
    c = b.conv(b.input("x", [1, 2, 4]), 2, 2, [1])
    assert_stays(b.model(b.node(op, c, b.constant([[1.0], [value]]))), reason)


@declines("fold_constant_into_conv")
def test_a_shared_weight_is_not_scaled() -> None:
    b = Builder()
    x, w = b.input("x", ["N", 2, "H"]), b.random(3, 2, 3)
    scaled = b.node("Mul", b.node("Conv", x, w), b.random(3, 1))
    assert_stays(b.model(scaled, b.node("Conv", x, w)), "has other users")


def test_old_broadcasting_stays() -> None:
    b = Builder(opset=6)
    c = b.conv(b.input("x", [1, 2, 4]), 2, 2, [1])
    model = b.model(b.node("Mul", c, b.random(2), broadcast=1, axis=1))
    assert apply(RULES, model).ops == operators(model)


# --- Gemm and MatMul -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["Mul", "Div", "Add", "Sub"])
@pytest.mark.parametrize("trans", [0, 1])
@pytest.mark.parametrize("bias", [None, (), (3,), (1, 3)])
@pytest.mark.parametrize("shape", [(), (3,), (1, 3), (1, 1)])
def test_gemm(op: str, trans: int, bias: Any, shape: tuple[int, ...]) -> None:
    b = Builder()
    names = [b.input("x", ["N", 4]), b.random(3, 4) if trans else b.random(4, 3)]
    names += [] if bias is None else [b.random(*bias)]
    c = b.node("Gemm", *names, transB=trans, alpha=0.5, beta=1.5)
    assert_folds(b.model(b.node(op, c, b.random(*shape, low=0.5))), Gemm=1)


@declines("fold_constant_into_gemm")
@pytest.mark.parametrize("shape", [(3, 1), (3, 3)])
def test_gemm_constants_along_rows_stay(shape: tuple[int, ...]) -> None:
    b = Builder()
    c = b.node("Gemm", b.input("x", [3, 4]), b.random(4, 3))
    assert_stays(b.model(b.node("Mul", c, b.random(*shape))), "is not one number a channel")


@pytest.mark.parametrize("op", ["Mul", "Div"])
@pytest.mark.parametrize("shape", [(), (3,), (1, 3)])
@pytest.mark.parametrize("bias", [False, True])
def test_matmul_of_any_rank(op: str, shape: tuple[int, ...], bias: bool) -> None:
    b = Builder()
    c = b.node("MatMul", b.input("x", ["N", "T", 4]), b.random(4, 3))
    c = b.node("Add", b.random(3), c) if bias else c
    left = {"MatMul": 1, "Add": 1} if bias else {"MatMul": 1}
    assert_folds(b.model(b.node(op, c, b.random(*shape, low=0.5))), **left)


@pytest.mark.parametrize("op", ["Add", "Sub"])
def test_bias_after_bias(op: str) -> None:
    b = Builder()
    c = b.node("Add", b.node("MatMul", b.input("x", ["N", "T", 4]), b.random(4, 3)), b.random(3))
    assert_folds(b.model(b.node(op, b.random(3), c)), MatMul=1, Add=1)


@declines("fold_constant_into_matmul")
@pytest.mark.parametrize(("shape", "reason"), [((5, 1), "is not one number"), ((2, 1, 3), "raises the rank")])
def test_matmul_constants_along_rows_stay(shape: tuple[int, ...], reason: str) -> None:
    b = Builder()
    c = b.node("MatMul", b.input("x", [2, 5, 4]), b.random(4, 3))
    assert_stays(b.model(b.node("Mul", c, b.random(*shape))), reason)


def test_integers_stay() -> None:
    b = Builder(np.int32)
    c = b.node("MatMul", b.input("x", [2, 4]), b.constant(np.ones((4, 3)), np.int32))
    assert_stays(b.model(b.node("Mul", c, b.constant([2, 3, 4], np.int32))), "holds integers")


@pytest.mark.parametrize("middle", ["c = MatMul(x, w)", "p = MatMul(x, w) c = Add(p, b)"])
def test_a_constant_that_gives_the_result_its_rank_stays(middle: str) -> None:
    text = f"""
        g (float[3] x) => (float[1,2] y) {{
            w = Constant<value = float[3,2] {{1, 2, 3, 4, 5, 6}}>()
            b = Constant<value = float[2] {{1, 2}}>()
            k = Constant<value = float[1,2] {{2, 3}}>()
            {middle}
            y = Mul(c, k)
        }}"""
    assert_stays(graph_model(text), "may raise the rank")


@pytest.mark.parametrize("opset", [7, 9, 11])
def test_a_gemm_without_bias_is_legal_at_its_opset(opset: int) -> None:
    text = """
        g (float[N,3] x) => (float[N,2] y) {
            w = Constant<value = float[3,2] {1, 2, 3, 4, 5, 6}>()
            z = Constant<value = float[2] {1, 1}>()
            k = Constant<value = float[1] {2}>()
            c = Gemm<beta = 0.0>(x, w, z)
            y = Mul(c, k)
        }"""
    proto = graph_model(text, opset)
    result = assert_folds(proto, Gemm=1)
    onnx.checker.check_model(result)


def test_a_weight_that_would_vanish_stays() -> None:
    text = """
        g (float[N,1,H,W] x) => (float[N,1,H,W] y) {
            w = Constant<value = float[1,1,1,1] {1e-30}>()
            k = Constant<value = float[1] {1e-20}>()
            c = Conv(x, w)
            y = Mul(c, k)
        }"""
    assert_stays(graph_model(text), "too small for float32")


# --- drawn ---------------------------------------------------------------------------------------------------------------


DRAWN = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
OPS = st.sampled_from(["Mul", "Div", "Add", "Sum", "Sub", "from"])
FLOATS = st.sampled_from([np.float32, np.float16, np.float64])


def combined(b: Builder, op: str, c: str, k: str) -> str:
    return str(b.node("Sub", k, c) if op == "from" else b.node(op, c, k))


@property_of("fold_constant_into_conv")
@DRAWN
@given(
    conv=st.sampled_from(["Conv", "ConvTranspose"]),
    op=OPS,
    rank=st.integers(1, 2),
    group=st.sampled_from([1, 2]),
    bias=st.booleans(),
    per=st.booleans(),
    lead=st.booleans(),
    stride=st.integers(1, 2),
    dtype=st.sampled_from([np.float32, np.float16]),
)
def test_any_constant_behind_a_conv(
    conv: str, op: str, rank: int, group: int, bias: bool, per: bool, lead: bool, stride: int, dtype: Any
) -> None:
    b = Builder(dtype)
    names = [
        b.input("x", ["N", 4, *[7] * rank]),
        b.random(4, 4 // group, *[3] * rank),
        *([b.random(4)] if bias else []),
    ]
    channels = 4
    c = b.node(conv, *names, group=group, strides=[stride] * rank)
    shape = [*([1] if lead else []), channels if per else 1, *[1] * rank]
    model = b.model(combined(b, op, c, b.random(*shape, low=0.5)))
    found = apply(RULES, model)
    assert found.ops == {conv: 1}, found.reasons
    assert_equal_to_rounding(model, found.model, [{"N": 2}])


@property_of("fold_constant_into_gemm")
@DRAWN
@given(
    op=OPS,
    trans=st.integers(0, 1),
    bias=st.sampled_from([None, (), (3,), (1, 3)]),
    shape=st.sampled_from([(), (1,), (3,), (1, 3)]),
    alpha=st.sampled_from([1.0, 0.5]),
    beta=st.sampled_from([0.0, 1.0, 1.5]),
    dtype=FLOATS,
)
def test_any_constant_behind_a_gemm(
    op: str, trans: int, bias: Any, shape: tuple[int, ...], alpha: float, beta: float, dtype: Any
) -> None:
    b = Builder(dtype)
    names = [b.input("x", ["N", 4]), b.random(3, 4) if trans else b.random(4, 3)]
    names += [] if bias is None else [b.random(*bias)]
    c = b.node("Gemm", *names, transB=trans, alpha=alpha, beta=beta)
    model = b.model(combined(b, op, c, b.random(*shape, low=0.5)))
    found = apply(RULES, model)
    assert found.ops == {"Gemm": 1}, found.reasons
    assert_equal_to_rounding(model, found.model, [{"N": 5}, {"N": 1}])


@property_of("fold_constant_into_matmul", "fold_constant_into_linear")
@DRAWN
@given(
    op=OPS,
    scale=st.sampled_from(["Mul", "Div"]),
    lead=st.lists(st.sampled_from(["N", 2, "T"]), max_size=3, unique=True),
    bias=st.sampled_from([(), (1,), (3,)]),
    shape=st.sampled_from([(), (1,), (3,)]),
    dtype=FLOATS,
)
def test_any_constant_behind_a_matmul(
    op: str, scale: str, lead: list[Any], bias: tuple[int, ...], shape: tuple[int, ...], dtype: Any
) -> None:
    for last, added in ((scale, False), (op, True)):
        b = Builder(dtype)
        c = b.node("MatMul", b.input("x", [*lead, 4]), b.random(4, 3))
        c = b.node("Add", c, b.random(*bias)) if added else c
        model = b.model(combined(b, last, c, b.random(*shape, low=0.5)))
        found = apply(RULES, model)
        assert found.ops == ({"MatMul": 1, "Add": 1} if added else {"MatMul": 1}), found.reasons
        assert_equal_to_rounding(model, found.model, [{"N": 5, "T": 3}, {"N": 1, "T": 1}])


@declines("fold_constant_into_linear")
@pytest.mark.parametrize(
    ("shape", "value", "reason"), [((5, 1), 2.0, "is not one number"), ((3,), np.nan, "is not finite")]
)
def test_other_constants_behind_a_bias_stay(shape: tuple[int, ...], value: float, reason: str) -> None:
    b = Builder()
    c = b.node("Add", b.node("MatMul", b.input("x", [2, 5, 4]), b.random(4, 3)), b.random(3))
    k = np.arange(1.0, 1 + np.prod(shape)).reshape(shape) * value
    assert_stays(b.model(b.node("Mul", c, b.constant(k))), reason)


@pytest.mark.parametrize(("op", "shape"), [("Conv", (2, 1, 1)), ("Gemm", (1, 2)), ("MatMul", (1, 2))])
def test_infinite_weights_stay(op: str, shape: tuple[int, ...]) -> None:
    b = Builder()
    x = b.input("x", ["N", 1, 3] if op == "Conv" else ["N", 1])
    assert_stays(
        b.model(b.node("Mul", b.node(op, x, b.constant(np.full(shape, np.inf))), b.constant(2.0))), "not finite"
    )


def test_an_infinite_bias_stays() -> None:
    b = Builder()
    c = b.node("Conv", b.input("x", ["N", 1, 3]), b.random(2, 1, 1), b.constant([np.inf, 0.0]))
    assert_stays(b.model(b.node("Mul", c, b.constant(2.0))), "not finite")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("op", "k"), [("Mul", 1e200), ("Div", 5e-324)])
def test_factors_that_overflow_a_double_stay(op: str, k: float) -> None:
    b = Builder(np.float64)
    c = b.node("Conv", b.input("x", ["N", 1, 3]), b.constant(np.full((2, 1, 1), 1e200)))
    assert_stays(b.model(b.node(op, c, b.constant(k))), "not finite")

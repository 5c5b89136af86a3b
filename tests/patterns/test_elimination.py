"""Nodes that give back what they get: bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import surgeon_passes as sp
from surgeon_passes.patterns import elimination

from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, graph_model, operators
from .moves import DRAWN, FLOATS, SHAPES, after, assert_becomes, assert_stays
from .moves import EXACT as RULES

# --- Identity ------------------------------------------------------------------------------------------------------------


def test_identity_in_the_middle() -> None:
    b = Builder()
    assert_becomes(after(b, b.node("Identity", b.node("Identity", b.input("x", ["N", 9])))), Neg=1)


def test_identity_before_an_output_hands_over_its_name() -> None:
    b = Builder()
    model = b.model(b.node("Identity", b.node("Neg", b.input("x", [9]))))
    assert assert_becomes(model, Neg=1).graph.node[0].output == [model.graph.output[0].name]


@declines("drop_identity")
def test_identity_between_input_and_output_stays() -> None:
    b = Builder()
    assert_stays(b.model(b.node("Identity", b.input("x", [9]))), "an Identity stays")


def test_identity_between_two_outputs_stays() -> None:
    b = Builder()
    first = b.node("Neg", b.input("x", [9]))
    assert_stays(b.model(first, b.node("Identity", first)), "an Identity stays")


# --- Dropout -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [7, 10, 12, 13, 22])
def test_dropout(opset: int) -> None:
    b = Builder(opset=opset)
    ratio = {"ratio": 0.3} if opset < 12 else {}
    assert_becomes(after(b, b.node("Dropout", b.input("x", ["N", 9]), **ratio)), Neg=1)


def test_dropout_with_a_mask_nobody_reads() -> None:
    b = Builder()
    y, _ = b.node("Dropout", b.input("x", ["N", 9]), b.constant(0.5), outputs=2)
    assert_becomes(after(b, y), Neg=1)


def test_dropout_with_its_mask() -> None:
    b = Builder()
    y, mask = b.node("Dropout", b.input("x", ["N", 9]), outputs=2)
    model = b.model(b.node("Neg", y), b.node("Cast", b.node("Not", mask), to=1))
    assert_becomes(model, Neg=1, Shape=1, ConstantOfShape=1, Not=1, Cast=1)


def test_dropout_with_its_old_mask_stays() -> None:
    b = Builder(opset=10)
    y, mask = b.node("Dropout", b.input("x", ["N", 9]), outputs=2)
    assert_stays(b.model(b.node("Neg", y), b.node("Cast", mask, to=1)))


@declines("drop_dropout")
@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_training_dropout_stays(ratio: float) -> None:
    b = Builder()
    y = b.node("Dropout", b.input("x", ["N", 9]), b.constant(ratio), b.constant(True, np.bool_))
    assert_stays(after(b, y), "is in training mode")


@declines("drop_dropout")
def test_dropout_of_unknown_mode_stays() -> None:
    b = Builder()
    y = b.node("Dropout", b.input("x", ["N", 9]), "", b.input("t", [], np.bool_))
    assert_stays(after(b, y), "'t' is not constant")


def test_oldest_dropout_trains_unless_it_says_otherwise() -> None:
    for is_test, stays in ((0, True), (1, False)):
        b = Builder(opset=6)
        model = after(b, b.node("Dropout", b.input("x", [9]), is_test=is_test))
        assert (apply(RULES, model).ops == operators(model)) is stays


# --- types and counts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "attrs"), [("Concat", {"axis": 0}), ("Sum", {}), ("Max", {}), ("Min", {}), ("Mean", {})]
)
def test_a_single_operand(op: str, attrs: dict[str, int]) -> None:
    b = Builder()
    assert_becomes(after(b, b.node(op, b.input("x", ["N", 9]), **attrs)), Neg=1)


def test_two_operands_stay() -> None:
    b = Builder()
    x = b.input("x", [9])
    assert_stays(after(b, b.node("Concat", x, x, axis=0)))


# --- arithmetic ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("op", "value"), [("Mul", 1.0), ("Div", 1.0), ("Pow", 1.0), ("Sub", 0.0), ("Add", -0.0)])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (9,), (1, 9)])
def test_neutral_operands(op: str, value: float, shape: tuple[int, ...]) -> None:
    b = Builder()
    assert_becomes(after(b, b.node(op, b.input("x", ["N", 9]), b.constant(np.full(shape, value)))), Neg=1)


@pytest.mark.parametrize("op", ["Mul", "Add"])
def test_neutral_operands_in_front(op: str) -> None:
    b = Builder()
    value = b.constant(1.0 if op == "Mul" else -0.0)
    assert_becomes(after(b, b.node(op, value, b.input("x", ["N", 9]))), Neg=1)


@pytest.mark.parametrize(("op", "value"), [("Mul", 1), ("Div", 1), ("Add", 0), ("Sub", 0), ("Pow", 1)])
def test_neutral_integers(op: str, value: int) -> None:
    b = Builder(np.int32)
    assert_becomes(after(b, b.node(op, b.input("x", [9]), b.constant(value, np.int32))), Neg=1)


def test_power_of_one_of_another_type() -> None:
    b = Builder(np.int32)
    assert_becomes(after(b, b.node("Pow", b.input("x", [9]), b.constant(1.0, np.float32))), Neg=1)


def test_half() -> None:
    b = Builder(np.float16)
    assert_becomes(after(b, b.node("Mul", b.input("x", [9]), b.constant(1.0))), Neg=1)


@declines("drop_neutral_operand")
@pytest.mark.parametrize(("op", "value"), [("Add", 0.0), ("Sub", -0.0)])
def test_what_changes_the_sign_of_zero_stays(op: str, value: float) -> None:
    b = Builder()
    assert_stays(after(b, b.node(op, b.input("x", [9]), b.constant(value))), "changes the sign of zero")


@pytest.mark.parametrize(("op", "value"), [("Mul", 1.0000001), ("Sub", 1.0), ("Div", 2.0), ("Mul", np.nan)])
def test_other_numbers_stay(op: str, value: float) -> None:
    b = Builder()
    assert_stays(after(b, b.node(op, b.input("x", [9]), b.constant(value))))


@pytest.mark.parametrize("op", ["Div", "Sub", "Pow"])
def test_the_other_side_stays(op: str) -> None:
    b = Builder()
    assert_stays(after(b, b.node(op, b.constant(1.0 if op != "Sub" else 0.0), b.input("x", [9]))))


@declines("drop_neutral_operand")
@pytest.mark.parametrize(
    ("shape", "reason"),
    [((2, 1), "may enlarge the result"), ((2, 9), "may enlarge the result"), ((1, 1, 1), "raises the rank")],
)
def test_ones_that_may_enlarge_stay(shape: tuple[int, ...], reason: str) -> None:
    b = Builder()
    y = b.node("Mul", b.input("x", ["N", 9]), b.constant(np.ones(shape)))
    assert_stays(after(b, y, max(len(shape), 2)), reason)


def test_an_empty_constant_stays() -> None:
    b = Builder()
    assert_stays(after(b, b.node("Mul", b.input("x", [1]), b.constant(np.zeros((0,))))))


# --- bodies --------------------------------------------------------------------------------------------------------------


def test_a_body_that_returns_an_outer_tensor_keeps_an_identity() -> None:
    model = graph_model(
        """g (float[N] x, bool c) => (float[N] y) {
            z = Neg(x)
            y = If(c) <
                then_branch = t () => (float[N] a) { one = Constant<value = float {1.0}>()  a = Mul(z, one) },
                else_branch = e () => (float[N] b) { b = Relu(z) }
            >
        }""",
        opset=17,
    )
    result = sp.Pipeline(sp.Rewrite(*RULES), sp.Cleanup()).run(model, verify="off", registry=sp.Registry())
    body = result.proto.graph.node[1].attribute[0].g
    assert [n.op_type for n in body.node] == ["Identity"]
    for c in (True, False):
        assert_equal(model, result.proto, [{}], 0, {"x": np.array([1, -2], np.float32), "c": np.array(c)})


# --- drawn ---------------------------------------------------------------------------------------------------------------


@property_of("drop_identity", "drop_dropout", "drop_single_operand")
@DRAWN
@given(
    shape=SHAPES,
    dtype=FLOATS,
    opset=st.sampled_from([10, 13, 17]),
    op=st.sampled_from(["Sum", "Max", "Min"]),
    data=st.data(),
)
def test_what_gives_back_its_operand(shape: Any, dtype: Any, opset: int, op: str, data: Any) -> None:
    b = Builder(dtype, opset=opset)
    y = b.node("Dropout", b.node("Identity", b.input("x", shape)))
    axis = data.draw(st.integers(-len(shape) if opset > 10 else 0, len(shape) - 1))
    model = after(b, b.node(op, b.node("Concat", y, axis=axis)))
    assert_becomes(model, Neg=1)


@property_of("drop_dropout_with_mask")
@DRAWN
@given(shape=SHAPES, dtype=FLOATS, ratio=st.sampled_from([None, 0.0, 0.5]), mode=st.booleans())
def test_any_dropout_with_its_mask(shape: Any, dtype: Any, ratio: float | None, mode: bool) -> None:
    b = Builder(dtype)
    more = ["" if ratio is None else b.constant(ratio), *([b.constant(False, np.bool_)] if mode else [])]
    y, mask = b.node("Dropout", b.input("x", shape), *more, outputs=2)
    to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = b.model(b.node("Neg", y), b.node("Cast", mask, to=to))
    assert_becomes(model, rules=[elimination.drop_dropout_with_mask], Neg=1, Shape=1, ConstantOfShape=1, Cast=1)


@declines("drop_dropout_with_mask")
def test_dropout_of_unknown_mode_keeps_its_mask() -> None:
    b = Builder()
    y, mask = b.node("Dropout", b.input("x", ["N", 9]), "", b.input("t", [], np.bool_), outputs=2)
    assert_stays(b.model(b.node("Neg", y), b.node("Cast", mask, to=1)), "'t' is not constant")


@property_of("drop_neutral_operand")
@DRAWN
@given(
    shape=SHAPES,
    dtype=st.sampled_from([np.float32, np.float16, np.float64, np.int32, np.int64]),
    op=st.sampled_from(list(elimination.NEUTRAL)),
    front=st.booleans(),
    ones=st.lists(st.booleans(), min_size=4, max_size=4),
    rank=st.integers(0, 4),
)
def test_any_neutral_operand(shape: Any, dtype: Any, op: str, front: bool, ones: list[bool], rank: int) -> None:
    b = Builder(dtype)
    own = [d if isinstance(d, int) and not one else 1 for d, one in zip(shape, ones, strict=False)]
    k = b.constant(np.full(own[max(len(own) - rank, 0) :], elimination.NEUTRAL[op]), dtype)
    x = b.input("x", shape)
    y = b.node(op, k, x) if front and op in ("Mul", "Add") else b.node(op, x, k)
    assert_becomes(after(b, y), rules=[elimination.drop_neutral_operand], Neg=1)

"""Nodes that give back what they get: bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes.patterns import elimination
from surgeon_passes.rules.registry import rules_of

from .harness import Builder, apply, assert_equal, graph_model, operators

RULES = list(rules_of(elimination))
ODD = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -1e-42, 3e38, -7.0], np.float32)
"""Where "nearly the same" would show."""


def assert_goes(model: onnx.ModelProto, **left: int) -> onnx.ModelProto:
    result = apply(RULES, model)
    assert result.ops == left
    assert_equal(model, result.model, tolerance=0)
    if len(model.graph.input) == 1 and model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
        _assert_odd_numbers(model, result.model)
    return result.model


def _assert_odd_numbers(model: onnx.ModelProto, after: onnx.ModelProto) -> None:
    dims = model.graph.input[0].type.tensor_type.shape.dim
    shape = [d.dim_value or 3 for d in dims]
    assert_equal(model, after, [{}], tolerance=0, feeds={"x": np.resize(ODD, shape)})


def assert_stays(model: onnx.ModelProto, reason: str = "") -> None:
    result = apply(RULES, model)
    assert result.ops == operators(model)
    assert any(reason in r for r in result.reasons) if reason else not result.reasons, result.reasons


def after(b: Builder, tensor: str, rank: int | None = None, dtype: Any = None) -> onnx.ModelProto:
    """The tensor read by a node that stays, so that no interface is in the way."""
    return b.model(b.node("Neg", tensor), rank=rank, dtype=dtype)


# --- Identity ------------------------------------------------------------------------------------------------------------


def test_identity_in_the_middle() -> None:
    b = Builder()
    assert_goes(after(b, b.node("Identity", b.node("Identity", b.input("x", ["N", 9])))), Neg=1)


def test_identity_before_an_output_hands_over_its_name() -> None:
    b = Builder()
    model = b.model(b.node("Identity", b.node("Neg", b.input("x", [9]))))
    assert assert_goes(model, Neg=1).graph.node[0].output == [model.graph.output[0].name]


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
    assert_goes(after(b, b.node("Dropout", b.input("x", ["N", 9]), **ratio)), Neg=1)


def test_dropout_with_a_mask_nobody_reads() -> None:
    b = Builder()
    y, _ = b.node("Dropout", b.input("x", ["N", 9]), b.constant(0.5), outputs=2)
    assert_goes(after(b, y), Neg=1)


def test_dropout_with_its_mask() -> None:
    b = Builder()
    y, mask = b.node("Dropout", b.input("x", ["N", 9]), outputs=2)
    model = b.model(b.node("Neg", y), b.node("Cast", b.node("Not", mask), to=1))
    assert_goes(model, Neg=1, Shape=1, ConstantOfShape=1, Not=1, Cast=1)


def test_dropout_with_its_old_mask_stays() -> None:
    b = Builder(opset=10)
    y, mask = b.node("Dropout", b.input("x", ["N", 9]), outputs=2)
    assert_stays(b.model(b.node("Neg", y), b.node("Cast", mask, to=1)))


@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_training_dropout_stays(ratio: float) -> None:
    b = Builder()
    y = b.node("Dropout", b.input("x", ["N", 9]), b.constant(ratio), b.constant(True, np.bool_))
    assert_stays(after(b, y), "is in training mode")


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


@pytest.mark.parametrize(("dtype", "to"), [(np.float32, 1), (np.int64, 7), (np.float16, 10)])
def test_cast_to_its_own_type(dtype: Any, to: int) -> None:
    b = Builder(dtype)
    assert_goes(after(b, b.node("Cast", b.input("x", [9]), to=to)), Neg=1)


def test_cast_there_and_back_stays() -> None:
    b = Builder()
    assert_stays(after(b, b.node("Cast", b.node("Cast", b.input("x", [9]), to=11), to=1)))


@pytest.mark.parametrize(
    ("op", "attrs"), [("Concat", {"axis": 0}), ("Sum", {}), ("Max", {}), ("Min", {}), ("Mean", {})]
)
def test_a_single_operand(op: str, attrs: dict[str, int]) -> None:
    b = Builder()
    assert_goes(after(b, b.node(op, b.input("x", ["N", 9]), **attrs)), Neg=1)


def test_two_operands_stay() -> None:
    b = Builder()
    x = b.input("x", [9])
    assert_stays(after(b, b.node("Concat", x, x, axis=0)))


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_split_into_one(opset: int) -> None:
    b = Builder(opset=opset)
    sizes = {"split": [9]} if opset < 13 else {}
    names = ["x"] if opset < 13 else ["x", b.constant([9])]
    b.input("x", [9])
    assert_goes(after(b, b.node("Split", *names, **sizes)), Neg=1)


def test_split_into_one_before_an_output_is_an_identity() -> None:
    b = Builder()
    assert_goes(b.model(b.node("Split", b.input("x", [9]))), Identity=1)


def test_split_whose_second_part_nobody_reads_stays() -> None:
    b = Builder()
    first, _ = b.node("Split", b.input("x", [9]), b.constant([4, 5]), outputs=2)
    assert_stays(after(b, first))


@pytest.mark.parametrize("axes", [(1, 1), (1, -1), (-2, 0)])
def test_split_then_concat(axes: tuple[int, int]) -> None:
    b = Builder(opset=18)
    parts = b.node("Split", b.input("x", ["N", 9]), outputs=3, axis=axes[0], num_outputs=3)
    model = after(b, b.node("Concat", *parts, axis=axes[1]))
    if axes == (1, 1):
        assert_goes(model, Neg=1)
    else:
        assert_equal(model, apply(RULES, model).model, tolerance=0)


@pytest.mark.parametrize("order", [(1, 0), (0, 0), (0,)])
def test_split_then_another_concat_stays(order: tuple[int, ...]) -> None:
    b = Builder(opset=18)
    parts = b.node("Split", b.input("x", [4, 8]), outputs=2, axis=1, num_outputs=2)
    model = after(b, b.node("Concat", *(parts[i] for i in order), parts[0], axis=1))
    assert apply(RULES, model).ops == operators(model)


# --- arithmetic ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("op", "value"), [("Mul", 1.0), ("Div", 1.0), ("Pow", 1.0), ("Sub", 0.0), ("Add", -0.0)])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (9,), (1, 9)])
def test_neutral_operands(op: str, value: float, shape: tuple[int, ...]) -> None:
    b = Builder()
    assert_goes(after(b, b.node(op, b.input("x", ["N", 9]), b.constant(np.full(shape, value)))), Neg=1)


@pytest.mark.parametrize("op", ["Mul", "Add"])
def test_neutral_operands_in_front(op: str) -> None:
    b = Builder()
    value = b.constant(1.0 if op == "Mul" else -0.0)
    assert_goes(after(b, b.node(op, value, b.input("x", ["N", 9]))), Neg=1)


@pytest.mark.parametrize(("op", "value"), [("Mul", 1), ("Div", 1), ("Add", 0), ("Sub", 0), ("Pow", 1)])
def test_neutral_integers(op: str, value: int) -> None:
    b = Builder(np.int32)
    assert_goes(after(b, b.node(op, b.input("x", [9]), b.constant(value, np.int32))), Neg=1)


def test_power_of_one_of_another_type() -> None:
    b = Builder(np.int32)
    assert_goes(after(b, b.node("Pow", b.input("x", [9]), b.constant(1.0, np.float32))), Neg=1)


def test_half() -> None:
    b = Builder(np.float16)
    assert_goes(after(b, b.node("Mul", b.input("x", [9]), b.constant(1.0))), Neg=1)


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


# --- movement ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad_by_nothing(mode: str) -> None:
    b = Builder()
    assert_goes(after(b, b.node("Pad", b.input("x", ["N", 9]), b.constant([0] * 4), mode=mode)), Neg=1)


def test_pad_by_nothing_along_axes_and_as_an_attribute() -> None:
    b = Builder(opset=18)
    assert_goes(after(b, b.node("Pad", b.input("x", [9]), b.constant([0, 0]), "", b.constant([0]))), Neg=1)
    b = Builder(opset=9)
    assert_goes(after(b, b.node("Pad", b.input("x", [9]), pads=[0, 0])), Neg=1)


@pytest.mark.parametrize("amounts", [[0, 1], [-1, 0]])
def test_other_pads_stay(amounts: list[int]) -> None:
    b = Builder()
    assert_stays(after(b, b.node("Pad", b.input("x", [9]), b.constant(amounts))))


FULL = [
    ([0], [9], [1], None),
    ([0], [2**63 - 1], [0], None),
    ([0, 0], [2**31 - 1, 100], None, None),
    ([-9], [9], [-1], [1]),
    ([-(2**63)], [2**63 - 1], [0], [1]),
]


@pytest.mark.parametrize("cut", FULL)
def test_full_slice(cut: Any) -> None:
    b = Builder()
    names = [b.constant(v) if v is not None else "" for v in cut]
    assert_goes(after(b, b.node("Slice", b.input("x", ["N", 9]), *names)), Neg=1)


def test_old_full_slice() -> None:
    b = Builder(opset=9)
    assert_goes(after(b, b.node("Slice", b.input("x", ["N", 9]), starts=[0], ends=[9], axes=[1])), Neg=1)


@pytest.mark.parametrize(
    "cut",
    [([0], [8], [1], None), ([1], [9], [1], None), ([0], [9], [0], None), ([0], [9], [1], [2]), ([0], [-1], [1], None)],
)
def test_other_slices_stay(cut: Any) -> None:
    b = Builder()
    names = [b.constant(v) if v is not None else "" for v in cut]
    assert_stays(after(b, b.node("Slice", b.input("x", ["N", 9]), *names)))


@pytest.mark.parametrize("target", [[1], [9], [1, 9], [1, 1]])
def test_expand_to_the_same_shape(target: list[int]) -> None:
    b = Builder()
    assert_goes(after(b, b.node("Expand", b.input("x", ["N", 9]), b.constant(target))), Neg=1)


def test_expand_to_the_shape_of_the_input() -> None:
    b = Builder()
    x = b.input("x", ["N", 9])
    assert_goes(after(b, b.node("Expand", x, b.node("Shape", x))), Neg=1)


@pytest.mark.parametrize("target", [[2, 1], [1, 1, 1], [3, 1, 9]])
def test_other_expands_stay(target: list[int]) -> None:
    b = Builder()
    y = b.node("Expand", b.input("x", ["N", 9]), b.constant(target))
    assert_stays(after(b, y, rank=len(target)))


# --- pairs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["Relu", "Abs", "Ceil", "Floor", "Round", "Sign"])
def test_idempotent_pairs(op: str) -> None:
    b = Builder()
    y = b.node(op, b.node(op, b.node(op, b.input("x", ["N", 9]))))
    assert_goes(after(b, y), **{op: 1, "Neg": 1})


def test_idempotent_pair_whose_first_is_read() -> None:
    b = Builder()
    first = b.node("Relu", b.input("x", ["N", 9]))
    model = b.model(b.node("Neg", b.node("Relu", first)), b.node("Exp", first))
    assert_goes(model, Relu=1, Neg=1, Exp=1)


def test_idempotent_pair_of_outputs() -> None:
    b = Builder()
    first = b.node("Relu", b.input("x", ["N", 9]))
    assert_goes(b.model(first, b.node("Relu", first)), Relu=1, Identity=1)


def test_different_operators_stay() -> None:
    b = Builder()
    assert_stays(after(b, b.node("Relu", b.node("Abs", b.input("x", [9])))))


BOUNDS = [None, -2.0, -0.5, 0.0, 0.5, 2.0]


@pytest.mark.parametrize("opset", [7, 11, 13])
def test_clips(opset: int) -> None:
    for low1, high1, low2, high2 in np.array(np.meshgrid(*[BOUNDS] * 4, indexing="ij"), object).reshape(4, -1).T[::3]:
        b = Builder(opset=opset)
        y = _clip(b, _clip(b, b.input("x", [9]), low1, high1), low2, high2)
        model = after(b, y)
        if _above(low1, high1) or _above(low2, high2):
            assert_stays(model, "the wrong way round")
        elif _above(low1, high2) or _above(low2, high1):
            assert_stays(model, "do not overlap")
        else:
            assert_goes(model, Clip=1, Neg=1)


def _above(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and low > high


def _clip(b: Builder, x: str, low: float | None, high: float | None) -> str:
    if b.opset < 11:
        return str(b.node("Clip", x, **{k: v for k, v in (("min", low), ("max", high)) if v is not None}))
    return str(b.node("Clip", x, *("" if v is None else b.constant(v) for v in (low, high))))


def test_integer_clips() -> None:
    b = Builder(np.int32, opset=13)
    x = b.input("x", [9])
    inner = b.node("Clip", x, b.constant(-3, np.int32), b.constant(4, np.int32))
    assert_goes(after(b, b.node("Clip", inner, b.constant(-1, np.int32))), Clip=1, Neg=1)


def test_clips_with_nan_stay() -> None:
    b = Builder()
    y = _clip(b, _clip(b, b.input("x", [9]), np.nan, None), 0.0, None)
    assert_stays(after(b, y), "is NaN")


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

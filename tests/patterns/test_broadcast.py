"""Expand and Tile before operators that broadcast anyway."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surgeon_passes.patterns import broadcast

from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, operators
from .moves import DRAWN, FLOATS, assert_becomes, assert_stays
from .moves import EXACT as RULES

SIZES = ({"N": 2, "T": 3}, {"N": 1, "T": 1}, {"N": 0, "T": 2})


# --- what broadcasting does ----------------------------------------------------------------------------------------------


def expanded(b: Builder, x: str, like: str) -> str:
    return str(b.node("Expand", x, b.node("Shape", like)))


@pytest.mark.parametrize("op", ["Add", "Sub", "Div", "Mod", "Min", "Max", "Sum", "Mean", "PRelu"])
@pytest.mark.parametrize("shape", [["N", "T", 4], [1, "T", 4], ["N", 1, 1], ["T", 1], [4], [1], []])
def test_an_expand_to_the_other_operand(op: str, shape: Any) -> None:
    b = Builder()
    a, x = b.input("a", ["N", "T", 4]), b.input("x", shape)
    attrs = {"fmod": 1} if op == "Mod" else {}
    y = b.node(op, a, expanded(b, x, a), **attrs)
    assert_becomes(b.model(y, rank=3), sizes=SIZES, **{op: 1})


@pytest.mark.parametrize("op", ["Add", "Sub", "Div", "Less"])
def test_an_expand_in_front(op: str) -> None:
    b = Builder()
    a, x = b.input("a", ["N", "T", 4]), b.input("x", [1, 4])
    y = b.node(op, expanded(b, x, a), a)
    found = assert_becomes(b.model(y, rank=3, dtype=np.bool_ if op == "Less" else None), sizes=SIZES, **{op: 1})
    assert set(found.graph.node[0].input) == {"a", "x"}


@pytest.mark.parametrize("op", ["And", "Or", "Xor", "Equal"])
def test_bools(op: str) -> None:
    b = Builder(np.bool_)
    a, x = b.input("a", ["N", "T"]), b.input("x", ["N", 1])
    assert_becomes(b.model(b.node(op, a, expanded(b, x, a))), sizes=SIZES, **{op: 1})


@declines("absorb_expand")
def test_an_expand_that_may_be_of_another_size_stays() -> None:
    """Where the shape is neither 1 nor the other operand's, the original fails: without the Expand nothing would."""
    b = Builder()
    a, s = b.input("a", [3, 4]), b.input("s", [2], np.int64)
    model = b.model(b.node("Mul", a, b.node("Expand", b.input("x", [1, 4]), s)))
    assert_stays(model, "no other operand certainly has dim")


def test_a_power_is_not_the_same_to_the_bit() -> None:
    """ONNX Runtime multiplies where the exponent is one number 2 or 3, and calls pow where it is a tensor."""
    b = Builder()
    a, x = b.input("a", ["N", 4]), b.input("x", [4])
    model = b.model(b.node("Pow", a, expanded(b, x, a)))
    assert apply(RULES, model).ops == operators(model)


@pytest.mark.parametrize(
    ("other", "x", "like", "reason"),
    [
        (["N", 1], [1, 4], ["N", 4], None),
        (["N", 1], ["N", 1], ["N", "T"], "certainly has dim T"),
        (["M", "T"], [1, "T"], ["N", "T"], "certainly has dim N"),
        (["T"], ["T"], ["N", "T"], "raises the rank"),
        ([1, "T"], [1, "T"], ["N", "T"], "certainly has dim N"),
        ([None, "T"], [1, "T"], ["N", "T"], "certainly has dim N"),
    ],
)
def test_an_expand_that_gives_the_result_its_shape_stays(other: Any, x: Any, like: Any, reason: str | None) -> None:
    b = Builder()
    e = expanded(b, b.input("x", x), b.input("like", like))
    model = b.model(b.node("Add", b.input("a", other), e), rank=2)
    if reason is None:  # the 4 stands in x itself
        assert_becomes(model, sizes=SIZES, Add=1)
    else:
        assert_stays(model, reason)


def test_the_data_of_a_prelu_stays() -> None:
    b = Builder()
    slope = b.input("a", ["N", 4])
    model = b.model(b.node("PRelu", expanded(b, b.input("x", [1, 4]), slope), slope))
    assert apply(RULES, model).ops == operators(model)


def test_a_tensor_that_is_expanded_and_used_twice() -> None:
    b = Builder()
    a, x = b.input("a", ["N", 4]), b.input("x", [1, 4])
    e = expanded(b, x, a)
    assert_becomes(b.model(b.node("Add", e, a), b.node("Mul", a, e)), sizes=SIZES, Add=1, Mul=1)
    b = Builder()
    e = expanded(b, b.input("x", [1, 4]), b.input("a", ["N", 4]))
    model = b.model(b.node("Add", e, e))
    found = assert_becomes(model, sizes=SIZES, Shape=1, Expand=1, Add=1)
    assert found.graph.output[0].name == model.graph.output[0].name


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_expand_in_a_where(place: int) -> None:
    b = Builder()
    kinds = [np.bool_, np.float32, np.float32]
    names = [b.input(n, ["N", "T"] if k != place else [1, "T"], kinds[k]) for k, n in enumerate("cpq")]
    names[place] = expanded(b, names[place], names[place - 1])
    found = assert_becomes(b.model(b.node("Where", *names), rank=2), sizes=SIZES, Where=1)
    assert list(found.graph.node[0].input) == ["c", "p", "q"]


def test_two_expands_before_one_operator() -> None:
    b = Builder()
    c, p = b.input("c", ["N", "T"], np.bool_), b.input("p", [1, "T"])
    y = b.node("Where", c, expanded(b, p, c), expanded(b, b.input("q", ["N", 1]), c))
    assert_becomes(b.model(y, rank=2, dtype=np.float32), sizes=SIZES, Where=1)
    b = Builder()
    a = b.input("a", ["N", "T"])
    e = expanded(b, expanded(b, b.input("x", [1, 1]), b.input("z", [1, "T"])), a)
    assert_becomes(b.model(b.node("Add", a, b.node("Neg", e))), sizes=SIZES, Add=1, Neg=1)


@declines("absorb_expand_in_where")
def test_an_expanded_choice_between_numbers_stays() -> None:
    b = Builder()
    c, like = b.input("c", [1, "T"], np.bool_), b.input("x", ["N", "T"])
    e = expanded(b, c, like)
    model = b.model(b.node("Where", e, b.constant(1.0), b.constant(2.0)), b.node("Neg", like), rank=2)
    model.graph.output[0].type.tensor_type.elem_type = 1
    assert_stays(model, "certainly has dim N")
    b = Builder()
    p, like = b.input("p", [1, "T"]), b.input("x", ["N", "T"])
    e = expanded(b, p, like)
    alone = [rule for rule in RULES if rule.name.startswith("absorb")]  # Where of twice the same goes by another rule
    assert_stays(b.model(b.node("Where", b.input("c", ["N", "T"], np.bool_), e, e)), "is used twice", alone)


@pytest.mark.parametrize("shape", [[1, "T"], ["T"]])
def test_a_tile_of_axes_of_size_one(shape: Any) -> None:
    b = Builder()
    a, x = b.input("a", ["N", "T"]), b.input("x", shape)
    repeats = b.constant([1] * len(shape))
    if len(shape) == 2:
        batch = b.node("Gather", b.node("Shape", a), b.constant([0]))
        repeats = b.node("Concat", batch, b.constant([1]), axis=0)
    assert_becomes(b.model(b.node("Add", a, b.node("Tile", x, repeats))), sizes=SIZES, Add=1)


@declines("absorb_expand")
def test_a_tile_that_repeats_elements_stays() -> None:
    b = Builder()
    y = b.node("Add", b.input("a", ["N", 6]), b.node("Tile", b.input("x", ["N", 3]), b.constant([1, 2])))
    assert_stays(b.model(y), "not known to be of size 1")
    b = Builder()
    y = b.node("Add", b.input("a", ["N", 6]), b.node("Tile", b.input("x", ["N", "K"]), b.input("r", [2], np.int64)))
    assert_stays(b.model(y), "not known to be of size 1")


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_indices_that_are_expanded(op: str) -> None:
    b = Builder()
    a, i = b.input("a", ["N", "T", 4]), b.input("i", [1, "T"], np.int64)
    batch = b.node("Gather", b.node("Shape", a), b.constant([0]))
    e = b.node("Expand", i, b.node("Concat", batch, b.constant([1]), axis=0))
    y = b.node(op, a, b.node("Gather", b.random(11, 4), e))
    found = assert_becomes(b.model(y), sizes=SIZES, Gather=1, **{op: 1})
    assert "i" in {n for node in found.graph.node for n in node.input}


@declines("absorb_expand_of_indices")
def test_expanded_indices_that_give_the_result_its_shape_stay() -> None:
    b = Builder()
    i, like = b.input("i", [1, "T"], np.int64), b.input("x", ["N", "T"])
    g = b.node("Gather", b.random(11, 4), expanded(b, i, like))
    assert_stays(b.model(b.node("Add", b.input("a", ["T", 4]), g), rank=3), "certainly has dim N")
    b = Builder()
    i, like = b.input("i", [1, "T"], np.int64), b.input("x", ["N", "T"])
    g = b.node("Gather", b.random(11, 4), expanded(b, i, like), axis=1)
    model = b.model(b.node("Add", b.input("a", [11, "N", "T"]), g), rank=3)
    assert apply(RULES, model).ops == operators(model)


# --- smaller work before -------------------------------------------------------------------------------------------------


def order(model: onnx.ModelProto, *ops: str) -> list[str]:
    return [n.op_type for n in model.graph.node if n.op_type in ops]


@pytest.mark.parametrize("op", ["Abs", "Ceil", "Floor", "Relu", "Round", "Sign", "Sqrt", "Cast"])
def test_an_expand_behind_an_operator_on_elements(op: str) -> None:
    b = Builder()
    x, like = b.input("x", [1, 4]), b.input("a", ["N", 4])
    y = b.node(op, expanded(b, x, like), **({"to": 7} if op == "Cast" else {}))
    model = b.model(y, dtype=np.int64 if op == "Cast" else None)
    found = assert_becomes(model, sizes=SIZES, Shape=1, Expand=1, **{op: 1})
    assert order(found, op, "Expand") == [op, "Expand"]


def test_a_chain_reaches_an_operator_that_broadcasts() -> None:
    b = Builder(np.int64)
    x, a = b.input("x", [1, "T"]), b.input("a", ["N", "T"], np.float32)
    batch = b.node("Gather", b.node("Shape", a), b.constant([0]))
    e = b.node("Tile", x, b.node("Concat", batch, b.constant([1]), axis=0))
    even = b.node("Equal", b.node("Mod", e, b.constant(2)), b.constant([0]))
    model = b.model(b.node("Where", even, a, b.constant(0.0, np.float32)), rank=2, dtype=np.float32)
    assert_becomes(model, sizes=SIZES, Mod=1, Equal=1, Where=1)


@pytest.mark.parametrize("number", [2.0, [2.0], [[2.0]], [[[2.0]]], [1.0, 2.0, 3.0, 4.0]])
def test_numbers_behind_an_expand(number: Any) -> None:
    b = Builder()
    x, like = b.input("x", [1, 4]), b.input("a", ["N", 4])
    model = b.model(b.node("Sub", expanded(b, x, like), b.constant(number)), rank=max(2, np.ndim(number)))
    if np.size(number) > 1:
        assert order(apply(RULES, model).model, "Sub", "Expand") == ["Expand", "Sub"]
    elif np.ndim(number) > 2:
        assert_stays(model, "may have more dims")
    else:
        found = assert_becomes(model, sizes=SIZES, Shape=1, Expand=1, Sub=1)
        assert order(found, "Sub", "Expand") == ["Sub", "Expand"]


@declines("sink_expand")
def test_an_expand_that_is_read_elsewhere_does_not_move() -> None:
    b = Builder()
    e = expanded(b, b.input("x", [1, 4]), b.input("a", ["N", 4]))
    assert_stays(b.model(b.node("Relu", e), e), "is a graph output")


# --- drawn ---------------------------------------------------------------------------------------------------------------


ONES = st.lists(st.booleans(), min_size=3, max_size=3)
"""Which dims of [N, T, 4] are 1 before the Expand."""


def narrow(ones: list[bool], rank: int) -> list[Any]:
    return [1 if one else d for d, one in zip(["N", "T", 4], ones, strict=True)][3 - rank :]


@property_of("absorb_expand")
@DRAWN
@given(
    ones=ONES,
    rank=st.integers(0, 3),
    op=st.sampled_from(["Add", "Mul", "Sub", "Div", "Sum", "Max", "Less"]),
    front=st.booleans(),
    shared=st.booleans(),
    dtype=FLOATS,
)
def test_any_expand_to_the_other_operand(
    ones: list[bool], rank: int, op: str, front: bool, shared: bool, dtype: Any
) -> None:
    b = Builder(dtype)
    a, x = b.input("a", ["N", "T", 4]), b.input("x", narrow(ones, rank))
    e = expanded(b, x, a)
    y = b.node("Cast", b.node(op, *((e, a) if front else (a, e))), to=1)
    others = [b.node("Cast", e, to=1)] if shared else []
    left = {"Shape": 1, "Expand": 1, "Cast": 2} if shared else {"Cast": 1}
    model = b.model(y, *others, rank=3, dtype=np.float32)
    assert_becomes(model, rules=[broadcast.absorb_expand], sizes=SIZES, **{op: 1}, **left)


@property_of("absorb_expand_in_where")
@DRAWN
@given(ones=ONES, rank=st.integers(0, 3), place=st.integers(0, 2), dtype=FLOATS)
def test_any_expand_in_a_where(ones: list[bool], rank: int, place: int, dtype: Any) -> None:
    b = Builder(dtype)
    kinds = [np.bool_, dtype, dtype]
    shape = narrow(ones, rank)
    names = [b.input(n, ["N", "T", 4] if k != place else shape, kinds[k]) for k, n in enumerate("cpq")]
    names[place] = expanded(b, names[place], names[place - 1])
    model = b.model(b.node("Where", *names), rank=3)
    assert_becomes(model, rules=[broadcast.absorb_expand_in_where], sizes=SIZES, Where=1)


@property_of("absorb_expand_of_indices")
@DRAWN
@given(
    ones=ONES,
    rank=st.integers(0, 2),
    op=st.sampled_from(["Add", "Mul"]),
    rows=st.sampled_from([(4,), ()]),
    dtype=FLOATS,
)
def test_any_indices_that_are_expanded(ones: list[bool], rank: int, op: str, rows: tuple[int, ...], dtype: Any) -> None:
    b = Builder(dtype)
    a, like = b.input("a", ["N", "T", *rows]), b.input("like", ["N", "T"])
    i = b.input("i", narrow([*ones[:2], False], 3)[:2][2 - rank :], np.int64)
    y = b.node(op, a, b.node("Gather", b.random(11, *rows), expanded(b, i, like)))
    model = b.model(y, b.node("Neg", like))
    if rows:
        model.graph.output[1].type.tensor_type.shape.dim.pop()
    found = apply([broadcast.absorb_expand_of_indices], model)
    assert found.ops == {"Gather": 1, op: 1, "Neg": 1}, found.reasons
    assert_equal(model, found.model, SIZES, 0)


@property_of("sink_expand", "sink_expand_past_number")
@DRAWN
@given(
    ones=ONES,
    rank=st.integers(1, 3),
    op=st.sampled_from(["Abs", "Ceil", "Neg", "Relu", "Sign", "Sqrt", "Cast"]),
    other=st.sampled_from(["Add", "Mul", "Sub", "Div", "Less", "Greater", "Max"]),
    number=st.sampled_from([0.5, [2.0], -1.0]),
    dtype=FLOATS,
)
def test_any_expand_before_work_on_elements(
    ones: list[bool], rank: int, op: str, other: str, number: Any, dtype: Any
) -> None:
    for last in (op, other):
        b = Builder(dtype)
        e = expanded(b, b.input("x", narrow(ones, rank)), b.input("a", ["N", "T", 4]))
        operands = [b.constant(number)] if last == other else []
        y = b.node(last, e, *operands, **({"to": 7} if last == "Cast" else {}))
        kind = np.int64 if last == "Cast" else np.bool_ if last in ("Less", "Greater") else dtype
        model = b.model(y, rank=3, dtype=kind)
        rules = [broadcast.sink_expand, broadcast.sink_expand_past_number]
        found = assert_becomes(model, rules=rules, sizes=SIZES, Shape=1, Expand=1, **{last: 1})
        assert order(found, last, "Expand") == [last, "Expand"]


@declines("sink_expand_past_number")
@pytest.mark.parametrize(
    ("op", "number", "reason"), [("Max", 0.0, "which zero wins"), ("Add", [[[[2.0]]]], "may have more dims")]
)
def test_numbers_that_an_expand_does_not_pass(op: str, number: Any, reason: str) -> None:
    b = Builder()
    e = expanded(b, b.input("x", [1, 4]), b.input("a", ["N", 4]))
    model = b.model(b.node(op, e, b.constant(number)), rank=max(2, np.ndim(number)))
    assert_stays(model, reason, rules=[broadcast.sink_expand_past_number])

"""Every construct of the grammar against real graphs; sums and constants have files of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from surgeon_passes.rules.pattern import OpId
from surgeon_passes.rules.syntax import parse_pattern
from tests.models import model, seconds
from tests.rules.ground import Ground, ground, unary

# --- operators and values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("op", "fits"), [("Relu", True), ("Sigmoid", True), ("Tanh", False)])
def test_alternatives_of_operator(op: str, fits: bool) -> None:
    assert bool(unary(f"y = {op}(x)").matches("y = Relu|Sigmoid(x)")) is fits


def test_domains_are_part_of_the_operator() -> None:
    proto = model("g (float[2] x) => (float[2] y) { y = com.foo.Relu(x) }")
    proto.opset_import.append(helper.make_opsetid("com.foo", 1))
    found = Ground(proto)
    assert not found.matches("y = Relu(x)")
    assert found.matches("y = com.foo.Relu(x)") == [{"x": "x", "y": "y"}]


def test_ai_onnx_is_the_default_domain() -> None:
    proto = model("g (float[2] x) => (float[2] y) { y = ai.onnx.Relu(x) }")
    assert Ground(proto).matches("y = Relu(x)") == [{"x": "x", "y": "y"}]


def test_value_alternatives_bind_none_where_not_taken() -> None:
    pattern = "d = Mul(x, k: const) | Neg(z)\ny = Relu(d)"
    assert unary("d = Neg(x)", "y = Relu(d)").matches(pattern) == [{"d": "d", "k": None, "x": None, "y": "y", "z": "x"}]
    assert unary("d = Mul(x, k)", "y = Relu(d)", k=np.float32(2)).matches(pattern) == [
        {"d": "d", "k": "k", "x": "x", "y": "y", "z": None}
    ]


def test_alternatives_are_tried_in_order_and_again_after_a_failure() -> None:
    found = unary("a = Neg(x)", "b = Relu(a)", "y = Add(b, a)").matches("d = Relu(a) | a\ny = Add(d, a)")
    assert [m["a"] for m in found] == ["a"]


def test_alternatives_of_the_root() -> None:
    pattern = "y = Relu(x) | Neg(Abs(x))"
    assert unary("y = Relu(x)").matches(pattern) == [{"x": "x", "y": "y"}]
    assert unary("a = Abs(x)", "y = Neg(a)").matches(pattern) == [{"x": "x", "y": "y"}]
    assert parse_pattern(pattern, "rule").facts.roots == {OpId("", "Relu"), OpId("", "Neg")}


def test_a_name_is_the_same_tensor_wherever_it_stands() -> None:
    assert unary("y = Sub(x, x)").matches("y = Sub(a, a)") == [{"a": "x", "y": "y"}]
    assert not unary("y = Sub(x, z)").matches("y = Sub(a, a)")


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        (np.float32([1, 2, 3]), np.float32([1, 2, 3]), True),
        (np.float32([1, 2, 3]), np.float32([1, 2, 4]), False),
        (np.float32([0.0]), np.float32([-0.0]), False),
        (np.float32([np.nan]), np.float32([np.nan]), True),
        (np.float32([1.0]), np.float32(1.0), False),
    ],
)
def test_constants_of_equal_bytes_are_the_same(first: Any, second: Any, fits: bool) -> None:
    found = unary("a = Mul(x, k1)", "y = Mul(a, k2)", k1=first, k2=second)
    assert bool(found.matches("y = Mul(Mul(x, k: const), k)")) is fits


def test_an_optional_operand_that_is_left_out_and_an_empty_one_bind_none() -> None:
    pattern = "y = Clip(x, low?, high?)"
    assert unary("y = Clip(x)").matches(pattern)[0] == {"x": "x", "low": None, "high": None, "y": "y"}
    found = unary('y = Clip(x, "", h)', h=np.float32(1)).matches(pattern)[0]
    assert found == {"x": "x", "low": None, "high": "h", "y": "y"}
    assert not unary("y = Clip(x)").matches("y = Clip(x, low, high?)")
    assert not unary("y = Clip(x, h)", h=np.float32(1)).matches('y = Clip(x, "", high?)')
    assert unary('y = Clip(x, "", h)', h=np.float32(1)).matches('y = Clip(x, "", high)')


def test_more_operands_than_the_pattern_has_do_not_fit() -> None:
    assert not unary("y = Clip(x, h)", h=np.float32(1)).matches("y = Clip(x)")


def test_variadic_operands() -> None:
    found = ground("g (float[2] a, float[2] b, float[2] c) => (float[6] y) { y = Concat<axis = 0>(a, b, c) }")
    assert found.matches("y = Concat(all...)")[0]["all"] == ("a", "b", "c")
    assert found.matches("y = Concat(first, rest...)")[0] == {"first": "a", "rest": ("b", "c"), "y": "y"}
    assert found.matches("y = Concat(p, q, r, rest...)")[0]["rest"] == ()
    assert not found.matches("y = Concat(p, q, r, s, rest...)")
    assert not found.matches("y = Concat(all...: const)")


SPLIT = "g (float[6] x) => (float[6] y) { a, b, c = Split<axis = 0>(x, k) y = Concat<axis = 0>(%s) }"


@pytest.mark.parametrize(
    ("order", "fits"), [("a, b, c", True), ("a, c, b", False), ("a, b", False), ("a, a, b, c", False)]
)
def test_variadic_results_read_back_in_order(order: str, fits: bool) -> None:
    text = SPLIT % order
    found = ground(text, k=np.int64([2, 2, 2]))
    assert bool(found.matches("p... = Split(x, s)\ny = Concat(p...)")) is fits


def test_results_that_are_not_named_must_be_unused() -> None:
    pattern = "a = Dropout(x)\ny = Relu(a)"
    used = "g (float[2] x) => (float[2] y, bool[2] m) { a, m = Dropout(x) y = Relu(a) }"
    unused = "g (float[2] x) => (float[2] y) { a, m = Dropout(x) y = Relu(a) }"
    assert not ground(used).matches(pattern)
    assert ground(unused).matches(pattern)
    assert ground(used).miss(pattern).reason == "result 'm' of Dropout is used"
    assert ground(used).matches("a, mask? = Dropout(x)\ny = Relu(a)")[0]["mask"] == "m"
    plain = ground("g (float[2] x) => (float[2] y) { a = Dropout(x) y = Relu(a) }")
    assert plain.matches("a, mask? = Dropout(x)\ny = Relu(a)")[0]["mask"] is None
    assert not plain.matches("a, mask = Dropout(x)\ny = Relu(a)")


def test_a_name_defined_by_the_second_result_is_not_the_first() -> None:
    pattern = "v, i = TopK(x, k)\ny = Identity(i)"
    text = "g (float[6] x) => (int64[2] y) {{ v, i = TopK(x, k) y = {} }}"
    assert ground(text.format("Identity(i)"), k=np.int64([2])).matches(pattern)
    found = ground("g (float[6] x) => (float[2] y) { v, i = TopK(x, k) y = Identity(v) }", k=np.int64([2]))
    assert not found.matches(pattern)
    assert found.miss(pattern).reason == "'v' is not result 2 of TopK"


# --- commutative operands ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", ["Add(e, b)", "Add(b, e)"])
@pytest.mark.parametrize("outer", ["Mul(s, a)", "Mul(a, s)"])
def test_commutative_operands_share_one_stack_of_choices(inner: str, outer: str) -> None:
    """Taking b for the first a that fits, and never coming back, would miss this."""
    found = unary("a = Neg(x)", "b = Abs(z)", "e = Exp(a)", f"s = {inner}", f"y = {outer}")
    assert found.matches("y = Mul(Add(Exp(a), b), a)") == [{"a": "a", "b": "b", "y": "y"}]


def test_greedy_matching_would_take_the_wrong_exp() -> None:
    found = unary("p = Exp(z)", "q = Exp(x)", "s = Add(p, q)", "y = Mul(s, x)")
    assert found.matches("y = Mul(Add(Exp(a), b), a)") == [{"a": "x", "b": "p", "y": "y"}]


def test_operands_of_sub_keep_their_order() -> None:
    assert not unary("e = Exp(x)", "y = Sub(z, e)").matches("y = Sub(Exp(a), b)")


def test_every_binding_of_a_commutative_operator_is_offered() -> None:
    found = unary("y = Add(x, z)").matches("y = Add(a, b)")
    assert [(m["a"], m["b"]) for m in found] == [("x", "z"), ("z", "x")]
    assert len(unary("y = Add(x, x)").matches("y = Add(a, b)")) == 1


def test_variadic_max_in_any_order() -> None:
    found = ground("g (float[2] p, float[2] q, float[2] r) => (float[2] y) { e = Exp(r) y = Max(p, e, q) }")
    assert {(m["a"], m["b"]) for m in found.matches("y = Max(Exp(r), a, b)")} == {("p", "q"), ("q", "p")}


def test_nested_commutative_operands_do_not_explode() -> None:
    depth = 12
    lines = ["e = Exp(z)", "t0 = Mul(e, x)"]
    lines += [f"a{i} = Add(x, z) t{i + 1} = Mul(t{i}, a{i})" for i in range(depth)]
    matched = unary(*lines, f"y = Relu(t{depth})")
    refuted = unary("e = Tanh(z)", *lines[1:], f"y = Relu(t{depth})")
    pattern = "Mul(Exp(q), r)"
    for i in range(depth):
        pattern = f"Mul(Add(a{i}, b{i}), {pattern})"
    assert matched.match(f"y = Relu({pattern})") is not None
    assert refuted.match(f"y = Relu({pattern})") is None
    assert seconds(lambda: refuted.match(f"y = Relu({pattern})")) < 0.2


# --- attributes ----------------------------------------------------------------------------------------------------------


def test_a_captured_attribute_that_stands_twice_must_agree() -> None:
    pattern = "a = Softmax(x)<axis=@axis>\ny = LogSoftmax(a)<axis=@axis>"
    assert unary("a = Softmax<axis = 1>(x)", "y = LogSoftmax<axis = 1>(a)").matches(pattern)[0]["@axis"] == 1
    assert not unary("a = Softmax<axis = 1>(x)", "y = LogSoftmax<axis = 0>(a)").matches(pattern)
    assert unary("a = Softmax(x)", "y = LogSoftmax<axis = -1>(a)").matches(pattern)[0]["@axis"] == -1


@pytest.mark.parametrize("axis", [1, -1])
def test_an_axis_that_is_written_from_the_other_end_is_the_same_axis(axis: int) -> None:
    found = unary("a = Softmax<axis = 1>(x)", "b = LogSoftmax<axis = -1>(a)", "y = Relu(b)")
    assert found.matches(f"y = Relu(LogSoftmax(x)<axis={axis}>)")
    assert not found.matches("y = Relu(LogSoftmax(x)<axis=0>)")


CONV = "g (float[1,2,8,8] x) => (float[1,3,8,8] y) {{ y = Conv{}(x, w) }}"


@pytest.mark.parametrize("written", ["", "<strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1>"])
@pytest.mark.parametrize(
    ("attrs", "fits"),
    [
        ("strides=[1, 1]", True),
        ("pads=[0, 0, 0, 0]", True),
        ("dilations=[1, 1]", True),
        ("group=1", True),
        ("kernel_shape=[1, 1]", True),
        ('auto_pad="NOTSET"', True),
        ("strides=[2, 2]", False),
        ("kernel_shape=[3, 3]", False),
        ("group=2", False),
    ],
)
def test_an_attribute_left_out_is_its_default(written: str, attrs: str, fits: bool) -> None:
    found = ground(CONV.format(written), w=np.ones((3, 2, 1, 1), np.float32))
    assert bool(found.matches(f"y = Conv(x, w)<{attrs}>")) is fits


def test_defaults_that_depend_on_the_rank() -> None:
    found = ground("g (float[2,3,4] x) => (float[4,3,2] y) { y = Transpose(x) }")
    assert found.matches("y = Transpose(x)<perm=[2, 1, 0]>")
    assert not found.matches("y = Transpose(x)<perm=[0, 1, 2]>")
    pool = ground("g (float[1,2,8] x) => (float[1,2,7] y) { y = MaxPool<kernel_shape = [2]>(x) }")
    assert pool.matches("y = MaxPool(x)<strides=[1], pads=[0, 0]>")


def test_old_forms_look_like_new_ones() -> None:
    text = "g (float[2,1,3] x) => (float[2,3] y) { y = Squeeze<axes = [1]>(x) }"
    match = ground(text, opset=11).match("y = Squeeze(x, axes: const)")
    assert match is not None and match.axes.value.tolist() == [1]
    clip = ground("g (float[2] x) => (float[2] y) { y = Clip<min = 0.0, max = 6.0>(x) }", opset=9)
    assert clip.matches("y = Clip(x, 0, 6)")
    assert not clip.matches("y = Clip(x, 0, 5)")
    soft = "g (float[2,3,4] x) => (float[2,3,4] y) {{ y = Softmax<axis = {}>(x) }}"
    assert not ground(soft.format(1), opset=11).matches("y = Softmax(x)")
    assert ground(soft.format(2), opset=11).matches("y = Softmax(x)<axis=-1>")


def test_string_and_list_attributes() -> None:
    found = ground('g (float[2] x) => (float[2] y) { y = Gelu<approximate = "tanh">(x) }', opset=20)
    assert found.matches('y = Gelu(x)<approximate="tanh">')
    assert not found.matches('y = Gelu(x)<approximate="none">')


# --- misses --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "line", "reason"),
    [
        (("a = Abs(x)", "b = Tanh(a)", "y = Relu(b)"), 2, "Tanh stands where Neg is wanted"),
        (("b = Neg(x)", "y = Relu(b)"), 2, "'x' is made by no node"),
        (("a = Exp(x)", "b = Neg(a)", "y = Relu(b)"), 1, "Exp stands where Abs is wanted"),
    ],
)
def test_a_miss_names_the_line_where_the_best_attempt_stopped(lines: Any, line: int, reason: str) -> None:
    miss = unary(*lines).miss("a = Abs(x)\nb = Neg(a)\ny = Relu(b)")
    assert (miss.span.line, miss.reason) == (line, reason)


@pytest.mark.parametrize(
    ("lines", "pattern", "reason"),
    [
        (("a = Mul(x, z)", "y = Relu(a)"), "y = Relu(Mul(p, k: const))", "'x' is not constant"),
        (("a = Sub(x, z)", "y = Relu(a)"), "y = Relu(Sub(p, 2))", "'z' is not the constant 2"),
        (("a = Sub(x, z)", "y = Relu(a)"), "y = Relu(Sub(p, p))", "'p' stands for two different tensors"),
        (
            ("a = Softmax<axis = 0>(x)", "y = Relu(a)"),
            "y = Relu(Softmax(p)<axis=1>)",
            "attribute axis is 0, not 1",
        ),
        (
            ("a = Neg(x)", "b = Clip(a, k)", "y = Relu(b)"),
            "y = Relu(Clip(Neg(x)))",
            "Clip has 2 operands where 1 are wanted",
        ),
    ],
)
def test_reasons(lines: Any, pattern: str, reason: str) -> None:
    assert unary(*lines, k=np.float32(1)).miss(pattern).reason == reason

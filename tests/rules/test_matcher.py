"""Every construct of the grammar against real graphs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from surgeon_passes.rules.literals import equals
from surgeon_passes.rules.pattern import OpId
from surgeon_passes.rules.syntax import parse_pattern
from tests.models import model, seconds
from tests.rules.ground import Ground


def ground(text: str, opset: int = 17, **constants: Any) -> Ground:
    return Ground(model(text, opset, **constants))


def unary(*lines: str, opset: int = 17, **constants: Any) -> Ground:
    """x [2,3] to y [2,3]."""
    return ground(f"g (float[2,3] x, float[2,3] z) => (float[2,3] y) {{ {' '.join(lines)} }}", opset, **constants)


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


# --- sums and products ---------------------------------------------------------------------------------------------------


def _trees(leaves: tuple[str, ...], op: str) -> Iterator[str]:
    """Every association of the leaves, in the given order."""
    if len(leaves) == 1:
        yield leaves[0]
    for cut in range(1, len(leaves)):
        for left in _trees(leaves[:cut], op):
            for right in _trees(leaves[cut:], op):
                yield f"{op}({left}, {right})"


def gelu_texts() -> list[str]:
    texts = []
    for inner in ("Div(x, root)", "Mul(x, inv)", "Mul(inv, x)"):
        for one in (f"Add(Erf({inner}), one)", f"Add(one, Erf({inner}))"):
            for order in itertools.permutations(("x", "half", one)):
                texts += _trees(order, "Mul")
    return texts


def _flat_nodes(text: str) -> list[onnx.NodeProto]:
    """Nodes of nested calls."""
    nodes: list[onnx.NodeProto] = []

    def read(position: int) -> tuple[str, int]:
        end = position
        while end < len(text) and text[end] not in "(),":
            end += 1
        name = text[position:end].strip()
        if end == len(text) or text[end] != "(":
            return name, end
        operands: list[str] = []
        while text[end] != ")":
            operand, end = read(end + 1)
            operands.append(operand)
        nodes.append(helper.make_node(name, operands, [f"t{len(nodes)}"]))
        return f"t{len(nodes) - 1}", end + 1

    read(0)
    nodes[-1].output[0] = "y"
    return nodes


GELU = """
    d = Div(x, 1.4142135) | Mul(x, 0.70710678)
    y = prod(x, 0.5, sum(Erf(d), 1))
"""


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_gelu_in_every_association_and_order(dtype: Any) -> None:
    elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    constants = {"root": np.sqrt(2), "inv": 1 / np.sqrt(2), "half": 0.5, "one": 1.0}
    texts = gelu_texts()
    assert len(texts) == 72
    for text in texts:
        graph = helper.make_graph(
            _flat_nodes(text),
            "g",
            [helper.make_tensor_value_info("x", elem, [4])],
            [helper.make_tensor_value_info("y", elem, [4])],
            [numpy_helper.from_array(np.asarray(v, dtype), k) for k, v in constants.items()],
        )
        found = Ground(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
        match = found.match(GELU)
        assert match is not None, text
        assert match.x.name == "x" and match.leftovers == () and len(match.matched) == 5


def test_gelu_of_another_tensor_is_none() -> None:
    lines = ("d = Div(z, r)", "e = Erf(d)", "s = Add(e, o)", "h = Mul(x, k)", "y = Mul(h, s)")
    constants = {"r": np.float32(np.sqrt(2)), "o": np.float32(1), "k": np.float32(0.5)}
    assert not unary(*lines, **constants).matches(GELU)


def test_an_inner_sum_is_absorbed_only_where_it_has_one_use() -> None:
    pattern = "y = sum(Exp(a), rest...)"
    text = "g (float[2] p, float[2] q) => (float[2] y{}) {{ e = Exp(p) s = Add(e, q) y = Add(s, {}) {} }}"
    assert ground(text.format("", "p", "")).matches(pattern)[0]["rest"] == ("q", "p")
    assert not ground(text.format("", "s", "")).matches(pattern)
    assert not ground(text.format(", float[2] s", "p", "")).matches(pattern)
    assert not ground(text.format(", float[2] v", "p", "v = Neg(s)")).matches(pattern)


def test_a_captured_inner_sum_is_not_absorbed() -> None:
    found = ground("""g (bool c, float[2] p, float[2] q) => (float[2] y, float[2] v) {
        e = Exp(p) s = Add(e, q) y = Add(s, q)
        v = If(c)<then_branch = t () => (float[2] a) { a = Neg(s) }, else_branch = f () => (float[2] b) { b = Abs(q) }>
    }""")
    assert not found.matches("y = sum(Exp(a), rest...)")


def test_a_larger_sum_is_matched_at_its_own_root() -> None:
    found = unary("s = Add(x, z)", "y = Add(s, x)")
    assert not found.matches("y = sum(a, b)", "s")
    assert found.match("y = sum(a, b)").leftovers != ()  # type: ignore[union-attr]


def test_operands_that_fixed_arguments_leave_are_leftovers_at_the_root_only() -> None:
    found = ground("g (float[2] p, float[2] q, float[2] r) => (float[2] y) { e = Exp(p) s = Add(q, e) y = Sum(s, r) }")
    match = found.match("y = sum(Exp(a), b)")
    assert match is not None and match.join == "Add"
    assert (match.b.name, [t.name for t in match.leftovers]) == ("q", ["r"])
    inner = ground(
        "g (float[2] p, float[2] q, float[2] r) => (float[2] y) { e = Exp(p) s = Add(q, e) t = Sum(s, r) y = Relu(t) }"
    )
    assert not inner.matches("y = Relu(sum(Exp(a), b))")
    assert inner.miss("y = Relu(sum(Exp(a), b))").reason == "3 or more operands where 2 are wanted"
    assert inner.matches("y = Relu(sum(Exp(a), b, c))")
    assert inner.matches("y = Relu(sum(Exp(a), rest...))")[0]["rest"] == ("q", "r")


def test_legacy_broadcasting_is_no_sum() -> None:
    text = "g (float[2,3] x, float[2] z) => (float[2,3] y) {{ a = Add<broadcast = 1, axis = 0>(x, z) y = Add(a, {}) }}"
    found = ground(text.format("x"), opset=6)
    assert found.match("y = sum(p, q)").leftovers == ()  # type: ignore[union-attr]
    assert not found.matches("y = sum(p, q)", "a")
    assert not found.matches("y = Add(p, q)", "a")


BRANCHES = """
    branch(x) = Mul(x, k: const) | Neg(x) | x
    y = sum(branch(x)...)
"""


def test_leaves_are_grouped_by_the_tensor_that_they_share() -> None:
    lines = ("a = Mul(x, k)", "b = Neg(x)", "c = Neg(z)", "s = Add(a, c)", "t = Add(s, b)", "y = Add(t, x)")
    match = unary(*lines, k=np.float32(2)).match(BRANCHES)
    assert match is not None
    assert match.x.name == "x"
    assert [(leaf.op, leaf.option, leaf.out.name) for leaf in match.branches] == [
        ("Mul", 0, "a"),
        ("Neg", 1, "b"),
        ("", 2, "x"),
    ]
    assert [t.name for t in match.leftovers] == ["c"]
    assert match.branches[0].k.name == "k" and match.branches[2].is_bare


def test_every_group_is_offered_largest_first() -> None:
    lines = ("a = Neg(x)", "b = Neg(z)", "c = Mul(z, k)", "s = Add(a, x)", "t = Add(s, b)", "y = Add(t, c)")
    found = unary(*lines, k=np.float32(2)).matches(BRANCHES)
    assert [m["x"] for m in found] == ["z", "x"]


def test_a_leaf_with_another_use_can_only_be_bare() -> None:
    found = ground(
        "g (float[2] x) => (float[2] y, float[2] v) { a = Neg(x) b = Neg(x) s = Add(a, b) y = Add(s, x) v = Abs(a) }"
    )
    match = found.match(BRANCHES)
    assert match is not None
    assert [leaf.out.name for leaf in match.branches] == ["b", "x"]
    assert [t.name for t in match.leftovers] == ["a"]


def test_a_repeated_operand_is_two_leaves() -> None:
    match = unary("a = Neg(x)", "s = Add(x, x)", "y = Add(s, a)").match(BRANCHES)
    assert match is not None
    assert [leaf.out.name for leaf in match.branches] == ["x", "x", "a"]


def test_one_branch_is_no_group() -> None:
    found = unary("a = Neg(x)", "y = Add(a, z)")
    assert not found.matches(BRANCHES)
    assert found.miss(BRANCHES).reason == "no two operands of the sum are branches of one tensor"


def long_sum(addends: int) -> Ground:
    """x0 + Neg(x1) + x2 + …, as one long chain."""
    nodes, last = [], "x0"
    for number in range(1, addends):
        nodes.append(helper.make_node("Neg" if number % 2 else "Abs", [f"x{number % 3}"], [f"n{number}"]))
        nodes.append(helper.make_node("Add", [last, f"n{number}"], [f"s{number}" if number < addends - 1 else "y"]))
        last = f"s{number}"
    inputs = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [2]) for i in range(3)]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph(nodes, "g", inputs, [output])
    return Ground(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


@pytest.mark.parametrize(
    "pattern",
    [BRANCHES, "y = sum(Exp(a), b)", "y = sum(a, b)", "y = sum(a, a)", "y = sum(0.5, a, b)", "y = sum(a, rest...)"],
)
def test_long_sums_are_matched_in_linear_time(pattern: str, sums: dict[int, Ground]) -> None:
    def match(found: Ground) -> list[Any]:
        return list(itertools.islice(found.matcher(pattern).matches(found.node("y")), 16))

    small, large = (seconds(lambda found=sums[n]: match(found)) for n in (1, 8))  # type: ignore[misc]
    assert large < 24 * small + 0.05


@pytest.fixture(scope="module")
def sums() -> dict[int, Ground]:
    return {size: long_sum(500 * size) for size in (1, 8)}


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


# --- constants -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "literal", "fits"),
    [
        (np.float32(1.4142135), "1.41421356", True),
        (np.float32(1.41422), "1.41421356", False),
        (np.float16(1.41421356), "1.41421356", True),
        (np.float16(1.42), "1.41421356", False),
        (np.float64(1.4142135623730951), "1.4142135", True),
        (np.float32([[2]]), "2", True),
        (np.float32([2, 2]), "2", False),
        (np.float32(-0.0), "0", False),
        (np.float32(np.inf), "inf", True),
        (np.float32(-np.inf), "inf", False),
        (np.float32(3e38), "inf", False),
        (np.float32(0), "1e-9", False),
    ],
)
def test_literals_agree_within_the_resolution_of_the_dtype(value: Any, literal: str, fits: bool) -> None:
    elem = {2: "float16", 4: "float", 8: "double"}[value.dtype.itemsize]
    found = ground(f"g ({elem}[2,2] x) => ({elem}[2,2] y) {{ y = Mul(x, k) }}", k=value)
    assert bool(found.matches(f"y = Mul(x, {literal})")) is fits


def test_complex_constants_are_compared_as_they_are() -> None:
    assert equals(1.0, np.complex64(1)) and not equals(1.0, np.complex64(1 + 1j))


def test_integer_literals_are_exact() -> None:
    found = ground("g (int64[2] x) => (int64[2] y) { y = Add(x, k) }", k=np.int64(9007199254740993))
    assert found.matches("y = Add(x, 9007199254740993)")
    assert not found.matches("y = Add(x, 9007199254740992)")
    assert not ground("g (int64[2] x) => (int64[2] y) { y = Add(x, k) }", k=np.int64(2)).matches("y = Add(x, 2.5)")


def test_list_literals() -> None:
    found = ground("g (float[2,3] x) => (float[3,2] y) { y = Reshape(x, k) }", k=np.int64([3, -1]))
    assert found.matches("y = Reshape(x, [3, -1])")
    assert not found.matches("y = Reshape(x, [3, 2])")
    assert not found.matches("y = Reshape(x, [3])")


FORMS = [
    ("value = float[2] {1.0, 2.0}", [1.0, 2.0]),
    ("value_float = 1.5", 1.5),
    ("value_floats = [1.5, 2.5]", [1.5, 2.5]),
]


@pytest.mark.parametrize(("attribute", "expected"), FORMS)
def test_constant_nodes_are_constants(attribute: str, expected: Any) -> None:
    found = ground(f"g (float[2] x) => (float[2] y) {{ k = Constant<{attribute}>() y = Mul(x, k) }}")
    match = found.match("y = Mul(x, k: const)")
    assert match is not None
    assert match.k.value.dtype == np.float32 and match.k.value.tolist() == expected


@pytest.mark.parametrize(("attribute", "expected"), [("value_int = 7", 7), ("value_ints = [7, 8]", [7, 8])])
def test_integer_constant_nodes_are_int64(attribute: str, expected: Any) -> None:
    found = ground(f"g (int64[2] x) => (int64[2] y) {{ k = Constant<{attribute}>() y = Mul(x, k) }}")
    match = found.match("y = Mul(x, k: const)")
    assert match is not None
    assert match.k.value.dtype == np.int64 and match.k.value.tolist() == expected


def sparse(name: str) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.float32([5, 6]), name)
    indices = numpy_helper.from_array(np.int64([[0, 1], [1, 0]]), "")
    return helper.make_sparse_tensor(values, indices, [2, 2])


def test_sparse_constants_are_constants() -> None:
    text = "g (float[2,2] x) => (float[2,2] y) { y = Mul(x, k) }"
    proto = model(text)
    proto.graph.sparse_initializer.append(sparse("k"))
    match = Ground(proto).match("y = Mul(x, k: const)")
    assert match is not None and match.k.value.tolist() == [[0, 5], [6, 0]]
    proto = model(text)
    node = helper.make_node("Constant", [], ["k"])
    node.attribute.append(helper.make_attribute("sparse_value", sparse("")))
    proto.graph.node.insert(0, node)
    match = Ground(proto).match("y = Mul(x, k: const)")
    assert match is not None and match.k.value.tolist() == [[0, 5], [6, 0]]


IF = """g (bool c, float[2] x) => (float[2] y) {
    %s
    y = If(c)<then_branch = t () => (float[2] p) { %s p = Mul(x, k) },
              else_branch = f () => (float[2] q) { q = Neg(x) }>
}"""


@pytest.mark.parametrize("outer", [True, False])
def test_a_body_sees_constants_of_the_graph_around_it(outer: bool) -> None:
    line = "k = Constant<value = float {2.0}>()"
    found = ground(IF % ((line, "") if outer else ("", line)))
    path = next(s.path for s in found.index.scopes if s.path.endswith("then_branch"))
    assert found.matches("y = Mul(x, k: const)", "p", path) == [{"x": "x", "k": "k", "y": "p"}]
    assert found.matches("y = Mul(x, 2)", "p", path)


def test_a_match_never_spans_two_graphs() -> None:
    found = ground(IF % ("a = Abs(x) k = Neg(a)", ""))
    path = next(s.path for s in found.index.scopes if s.path.endswith("then_branch"))
    assert not found.matches("y = Mul(x, Neg(z))", "p", path)
    assert found.miss("y = Mul(x, Neg(z))", "p", path).nodes == (found.node("p", path),)
    assert found.matches("y = Mul(x, z)", "p", path)


def test_an_initializer_that_callers_may_override_is_no_constant() -> None:
    def build(ir: int) -> Ground:
        return Ground(
            model("g (float[2] x, float[2] k) => (float[2] y) { y = Mul(x, k) }", ir=ir, k=np.float32([1, 2]))
        )

    assert not build(8).matches("y = Mul(x, k: const)")
    assert build(3).matches("y = Mul(x, k: const)")


def test_partial_values() -> None:
    text = """g (float[N,6] x) => (float[A,B,C] y) {
        s = Shape<start = 0, end = 1>(x) t = Concat<axis = 0>(s, k) y = Reshape(x, t)
    }"""
    found = ground(text, k=np.int64([2, 3]))
    assert found.matches("y = Reshape(x, t: partial)")
    assert not found.matches("y = Reshape(x, t: const)")
    unknown = ground("g (float[N,6] x, int64[3] t) => (float[A,B,C] y) { y = Reshape(x, t) }")
    assert not unknown.matches("y = Reshape(x, t: partial)")


def test_unshared_means_one_edge_and_no_output() -> None:
    pattern = "y = Relu(a: unshared)"
    assert unary("a = Neg(x)", "y = Relu(a)").matches(pattern)
    assert not unary("a = Neg(x)", "b = Abs(a)", "c = Add(b, a)", "y = Relu(a)").matches(pattern)
    assert not ground("g (float[2] x) => (float[2] y, float[2] a) { a = Neg(x) y = Relu(a) }").matches(pattern)


def test_constant_nodes_of_a_function_with_equal_bytes_are_the_same() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.F(x) }
        <domain: "local", opset_import: ["" : 17]>
        F (a) => (b) {
            k = Constant<value = float {2.0}>() l = Constant<value = float {2.0}>()
            c = Mul(a, k) b = Mul(c, l)
        }""")
    assert Ground(proto).matches("y = Mul(Mul(x, k: const), k)", "b", "function local.F")


def test_an_attribute_that_a_caller_gives_is_no_value() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.F<alpha = 0.01>(x) }
        <domain: "local", opset_import: ["" : 17]>
        F <alpha> (a) => (b) { b = LeakyRelu<alpha: float = @alpha>(a) }""")
    found = Ground(proto)
    assert not found.matches("y = LeakyRelu(x)<alpha=0.01>", "b", "function local.F")
    assert found.matches("y = LeakyRelu(x)<alpha=@a>", "b", "function local.F")


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

"""Sums and products, whatever the order and the nesting."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.models import seconds
from tests.rules.ground import Ground, ground, unary


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

"""Constants, literals, and values that are known in part."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from surgeon_passes.rules.literals import equals
from tests.models import model
from tests.rules.ground import Ground, ground, unary


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

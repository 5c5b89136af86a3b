"""What becomes a constant, and what never does."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from surgeon_passes import Cleanup, Fold, Pipeline
from surgeon_passes.result import Result
from surgeon_passes.rules.registry import Registry
from tests.models import floats, model, operators, run, same


def fold(proto: onnx.ModelProto, **options: Any) -> Result:
    result = Pipeline(Fold(**options), Cleanup()).run(proto, registry=Registry())
    onnx.checker.check_model(result.proto, full_check=True)
    assert result.check.status == "equal"
    return result


def nodes(result: Result) -> list[str]:
    """Operators of the main graph, Constant nodes included."""
    return [n.op_type for n in result.proto.graph.node]


@pytest.mark.parametrize(
    "attribute",
    ["value = float[2] {1.0, 2.0}", "value_float = 1.5", "value_floats = [1.5, 2.5]"],
)
def test_constant_nodes_become_initializers(attribute: str) -> None:
    proto = model(f"g (float[2] x) => (float[2] y) {{ k = Constant<{attribute}>() y = Mul(x, k) }}")
    result = fold(proto)
    assert nodes(result) == ["Mul"]
    assert [t.name for t in result.proto.graph.initializer] == ["k"]
    same(run(proto, x=floats(2)), run(result.proto, x=floats(2)))


@pytest.mark.parametrize(
    ("attribute", "kind"),
    [("value_int = 7", "int64"), ("value_ints = [7, 8]", "int64"), ('value_string = "a"', "string")],
)
def test_other_constant_nodes(attribute: str, kind: str) -> None:
    text = f"g ({kind}[2] x) => (bool[2] y) {{ k = Constant<{attribute}>() y = Equal(x, k) }}"
    assert nodes(fold(model(text, opset=19))) == ["Equal"]


def test_a_sparse_constant_node() -> None:
    proto = model("g (float[2,2] x) => (float[2,2] y) { y = Mul(x, k) }")
    values = numpy_helper.from_array(np.float32([5, 6]), "")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.int64([1, 2])), [2, 2])
    node = helper.make_node("Constant", [], ["k"])
    node.attribute.append(helper.make_attribute("sparse_value", sparse))
    proto.graph.node.insert(0, node)
    result = fold(proto)
    assert nodes(result) == ["Mul"]
    assert numpy_helper.to_array(result.proto.graph.initializer[0]).tolist() == [[0, 5], [6, 0]]


def test_constant_expressions() -> None:
    proto = model("g (float[2] x) => (float[2] y) { a = Exp(k) b = Add(a, k) y = Mul(x, b) }", k=np.float32([1, 2]))
    result = fold(proto)
    assert nodes(result) == ["Mul"]
    assert [t.name for t in result.proto.graph.initializer] == ["b"]


def test_shape_arithmetic_of_a_static_input() -> None:
    proto = model("""g (float[2,3,4] x) => (float[A,B] y) {
        s = Shape(x) i = Constant<value = int64 {0}>() n = Gather(s, i) z = Constant<value = int64[1] {0}>()
        u = Unsqueeze(n, z) m = Constant<value = int64[1] {-1}>() t = Concat<axis = 0>(u, m) y = Reshape(x, t)
    }""")
    result = fold(proto)
    assert nodes(result) == ["Reshape"]
    assert numpy_helper.to_array(result.proto.graph.initializer[0]).tolist() == [2, -1]


def test_shapes_of_dynamic_inputs_stay() -> None:
    assert nodes(fold(model("g (float[N,3] x) => (int64[2] y) { y = Shape(x) }"))) == ["Shape"]


def test_a_part_of_a_shape_that_is_known() -> None:
    result = fold(model("g (float[N,3] x) => (int64[1] y) { y = Shape<start = 1>(x) }"))
    assert nodes(result) == ["Constant"]
    assert run(result.proto, x=floats(5, 3))["y"].tolist() == [3]


def test_a_graph_output_that_folds_stays_an_output() -> None:
    proto = model("g (float[2] x) => (float[2] y, float[2] z) { y = Exp(k) z = Mul(x, y) }", k=np.float32([1, 2]))
    result = fold(proto)
    assert [o.name for o in result.proto.graph.output] == ["y", "z"]
    assert nodes(result) == ["Constant", "Mul"]
    same(run(proto, x=floats(2)), run(result.proto, x=floats(2)))


LOOP = """g (int64 n, float[2] x) => (float[2] y) {
    true = Constant<value = bool {1}>()
    y = Loop(n, true, x)<body = b (int64 i, bool c, float[2] h) => (bool go, float[2] h2) {
        %s h2 = Add(h, x)
    }>
}"""


@pytest.mark.parametrize("line", ["k = Constant<value = bool {1}>() go = Identity(k)", "go = Identity(c)"])
def test_the_condition_of_a_loop(line: str) -> None:
    proto = model(LOOP % line)
    result = fold(proto)
    feeds = {"n": np.int64(3), "x": floats(2)}
    same(run(proto, **feeds), run(result.proto, **feeds))
    assert operators(result.proto) == ["Loop"]


def test_bodies_keep_constants_of_one_name_apart() -> None:
    proto = model("""g (bool c, float[2] x) => (float[2] y) {
        y = If(c)<then_branch = t () => (float[2] r) { k = Constant<value = float[2] {1.0, 2.0}>() r = Add(x, k) },
                  else_branch = e () => (float[2] r) { k = Constant<value = float[2] {3.0, 4.0}>() r = Mul(x, k) }>
    }""")
    result = fold(proto)
    for flag in (True, False):
        feeds = {"c": np.bool_(flag), "x": floats(2)}
        same(run(proto, **feeds), run(result.proto, **feeds))
    bodies = [a.g for a in result.proto.graph.node[0].attribute]
    assert [[n.op_type for n in b.node] for b in bodies] == [["Add"], ["Mul"]]
    assert [[t.name for t in b.initializer] for b in bodies] == [["k"], ["k"]]


def test_branches_that_use_the_same_names_come_into_one_graph() -> None:
    bodies = """<then_branch = t () => (float[2] r) {{ [n] a = Neg({0}) [n_1] r = Relu(a) }},
                else_branch = e () => (float[2] r) {{ [n] a = Abs({0}) [n_1] r = Exp(a) }}>"""
    lines = [f"y{i} = If({'known' if i else 'c'}){bodies.format(f'x{i}')} x{i + 1} = Sin(y{i})" for i in range(3)]
    proto = model(f"g (bool c, float[2] x0) => (float[2] x3) {{ {' '.join(lines)} }}", known=np.bool_(True))
    result = fold(proto)
    for flag in (True, False):
        feeds = {"c": np.bool_(flag), "x0": floats(2)}
        same(run(proto, **feeds), run(result.proto, **feeds))
    graph = result.proto.graph
    assert [n.op_type for n in graph.node] == ["If", "Sin", *["Neg", "Relu", "Sin"] * 2]
    assert [n.name for n in graph.node if n.name] == ["n", "n_1", "n_2", "n_1_1"]
    assert len({name for n in graph.node for name in n.output}) == 8


def test_expressions_in_bodies() -> None:
    proto = model(
        """g (bool c, float[2] x) => (float[2] y) {
        y = If(c)<then_branch = t () => (float[2] r) { a = Exp(k) r = Add(x, a) },
                  else_branch = e () => (float[2] r) { a = Neg(k) r = Mul(x, a) }>
    }""",
        k=np.float32([1, 2]),
    )
    result = fold(proto)
    for flag in (True, False):
        feeds = {"c": np.bool_(flag), "x": floats(2)}
        same(run(proto, **feeds), run(result.proto, **feeds))
    assert [[n.op_type for n in a.g.node] for a in result.proto.graph.node[0].attribute] == [["Add"], ["Mul"]]


FUNCTION = """
    <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (float[2] x) => (float[2] y) { y = local.F(x) }
    <domain: "local", opset_import: ["" : 17]>
    F (a) => (b) { k = Constant<value = float[2] {1.0, 2.0}>() b = Mul(a, k) }"""


def test_constants_of_functions_stay_nodes() -> None:
    result = fold(onnx.parser.parse_model(FUNCTION))
    assert [n.op_type for n in result.proto.functions[0].node] == ["Constant", "Mul"]


@pytest.mark.parametrize(
    ("op", "line"),
    [
        ("RandomNormal", "r = RandomNormal<shape = [2]>()"),
        ("RandomUniformLike", "r = RandomUniformLike(k)"),
        ("Bernoulli", "r = Bernoulli(k)"),
        ("Dropout", "t = Constant<value = bool {1}>() h = Constant<value = float {0.5}>() r = Dropout(k, h, t)"),
    ],
)
def test_draws_are_never_folded(op: str, line: str) -> None:
    proto = model(f"g (float[2] x) => (float[2] y) {{ {line} y = Add(x, r) }}", k=np.float32([0.2, 0.7]))
    result = Pipeline(Fold(), Cleanup()).run(proto, verify="off", registry=Registry())
    assert operators(result.proto) == [op, "Add"]


def test_quantized_weights_stay_small() -> None:
    constants = {"w": np.int8([1, 2]), "s": np.float32(0.5), "z": np.int8(0)}
    proto = model("g (float[2] x) => (float[2] y) { d = DequantizeLinear(w, s, z) y = Mul(x, d) }", **constants)
    assert nodes(fold(proto)) == ["DequantizeLinear", "Mul"]


def test_a_node_with_several_results() -> None:
    text = "g (float[2] x) => (float[2] y) { a, b = Split<axis = 0>(k, s) c = Mul(x, a) y = Add(c, b) }"
    proto = model(text, k=floats(4), s=np.int64([2, 2]))
    result = fold(proto)
    assert nodes(result) == ["Mul", "Add"]
    same(run(proto, x=floats(2)), run(result.proto, x=floats(2)))


def test_a_constant_that_would_blow_the_file_up_is_left_and_named() -> None:
    text = "g (float[1024,2048] x) => (float[1024,2048] y) { k = ConstantOfShape(s) y = Add(x, k) }"
    proto = model(text, s=np.int64([1024, 2048]))
    result = fold(proto)
    assert nodes(result) == ["ConstantOfShape", "Add"]
    reasons = [d.reason for d in result.decisions if d.status == "declined"]
    assert reasons == ["folding would make a constant of 8388608 bytes, over the budget (max_bytes 1048576); left"]
    assert nodes(fold(proto, max_bytes="16MiB")) == ["Add"]


def test_an_overridable_initializer_is_no_constant() -> None:
    proto = model("g (float[2] x, float[2] k) => (float[2] y) { a = Exp(k) y = Mul(x, a) }", k=floats(2))
    result = fold(proto)
    assert nodes(result) == ["Exp", "Mul"]
    assert [i.name for i in result.proto.graph.input] == ["x", "k"]


def test_what_the_runtime_hands_out_in_another_type_is_left() -> None:
    """float8 comes out of ONNX Runtime as uint8: as a constant it would be of the wrong type."""
    node = helper.make_node("Cast", ["w"], ["y"], to=onnx.TensorProto.FLOAT8E4M3FN)
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT8E4M3FN, [2])
    weights = [numpy_helper.from_array(np.array([1.5, 600], np.float32), "w")]
    graph = helper.make_graph([node], "g", [], [output], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    result = Pipeline(Fold()).run(proto, registry=Registry())
    onnx.checker.check_model(result.proto, full_check=True)
    assert nodes(result) == ["Cast"]


def test_a_known_if_is_checked_with_what_its_branches_capture() -> None:
    """The captured values are known by the type of x alone: they are computed in the region, not made up."""
    proto = model(
        """g (float[N] x) => (float[N] y) {
            zero = CastLike(i, x) one = CastLike(j, x)
            z = If(c)<then_branch = t () => (float r) { r = Sub(zero, one) },
                      else_branch = f () => (float s) { s = Neg(one) }>
            y = Mul(x, z)
        }""",
        i=np.int64(0), j=np.int64(1), c=np.array(True),
    )  # fmt: skip
    result = fold(proto)
    assert [d.status for d in result.decisions if d.status == "undone"] == []
    assert nodes(result) == ["Mul"]
    assert numpy_helper.to_array(result.proto.graph.initializer[0]) == -1


def test_a_known_if_in_half_precision_may_differ_in_its_last_bit() -> None:
    """ONNX Runtime computes HardSigmoid in float32; which casts it leaves out depends on what stands in one graph."""
    proto = model(
        """g (float[7] x) => (float16[7] y) {
            z = If(c)<then_branch = t () => (float16 r) {
                           h = Cast<to: int = 10>(x) s = HardSigmoid<alpha: float = 0.16666667>(h)
                           m = Mul(s, h) r = Identity(m) },
                      else_branch = f () => (float16 s) { s = Cast<to: int = 10>(x) }>
            y = Identity(z)
        }""",
        c=np.array(True), opset=20,
    )  # fmt: skip
    result = fold(proto)
    assert [(d.root, d.reason) for d in result.decisions if d.status == "undone"] == []
    assert nodes(result) == ["Cast", "HardSigmoid", "Mul", "Identity", "Identity"]


def test_a_known_if_is_checked_with_its_branches_as_they_are_by_then() -> None:
    """The Constant in the branch is an initializer of that name by the time the If goes."""
    proto = model(
        """g (float[N] x) => (float[N] y) {
            one = CastLike(j, x)
            z = If(c)<then_branch = t () => (float r) { k = Constant<value_float = 3.0>() r = Sub(one, k) },
                      else_branch = f () => (float s) { s = Neg(one) }>
            y = Mul(x, z)
        }""",
        j=np.int64(1), c=np.array(True),
    )  # fmt: skip
    result = fold(proto)
    assert [(d.root, d.reason) for d in result.decisions if d.status == "undone"] == []
    assert numpy_helper.to_array(result.proto.graph.initializer[0]) == -2


@pytest.mark.parametrize(("opset", "left"), [(13, ["If"]), (14, ["SequenceConstruct", "Identity"])])
def test_a_known_if_of_a_sequence_is_inlined_where_an_identity_takes_one(opset: int, left: list[str]) -> None:
    text = """g (float[2] x) => (seq(float[2]) y) {
        y = If(c)<then_branch = t () => (seq(float[2]) r) { r = SequenceConstruct(x) },
                  else_branch = f () => (seq(float[2]) s) { s = SequenceEmpty() }>
    }"""
    result = Pipeline().run(model(text, opset=opset, ir=7, c=np.array(True)))
    assert operators(result.proto) == left
    assert result.undone == [] and result.check.status == "equal"
    onnx.checker.check_model(result.proto, full_check=True)

"""What nobody uses goes; what somebody may use stays."""

from __future__ import annotations

import onnx

from surgeon_passes import Cleanup, Pipeline
from surgeon_passes.rules.registry import Registry
from tests.models import floats, model, operators


def clean(proto: onnx.ModelProto) -> onnx.ModelProto:
    result = Pipeline(Cleanup()).run(proto, registry=Registry())
    onnx.checker.check_model(result.proto)
    return result.proto


def test_dead_nodes_and_their_constants_go() -> None:
    proto = model("g (float[2] x) => (float[2] y) { a = Mul(x, k) b = Neg(a) y = Relu(x) }", k=floats(2))
    found = clean(proto)
    assert operators(found) == ["Relu"] and not found.graph.initializer


def test_unused_inputs_are_part_of_the_interface() -> None:
    assert [i.name for i in clean(model("g (float[2] x, float[3] z) => (float[2] y) { y = Relu(x) }")).graph.input] == [
        "x",
        "z",
    ]


def test_a_dead_if_takes_along_what_only_its_bodies_read() -> None:
    proto = model("""g (bool c, float[2] x) => (float[2] y) {
        a = Neg(x)
        d = If(c)<then_branch = t () => (float[2] p) { p = Abs(a) }, else_branch = f () => (float[2] q) { q = Exp(x) }>
        y = Relu(x)
    }""")
    assert operators(clean(proto)) == ["Relu"]


def test_dead_nodes_of_bodies_go() -> None:
    proto = model("""g (bool c, float[2] x) => (float[2] y) {
        a = Neg(x)
        y = If(c)<then_branch = t () => (float[2] p) { d = Tanh(a) p = Abs(x) },
                  else_branch = f () => (float[2] q) { q = Exp(x) }>
    }""")
    found = clean(proto)
    assert operators(found) == ["If"]
    assert [[n.op_type for n in a.g.node] for a in found.graph.node[0].attribute] == [["Abs"], ["Exp"]]


def test_a_node_with_one_used_result_stays() -> None:
    proto = model(
        "g (float[6] x) => (int64[2] y) { v, i = TopK(x, k) y = Identity(i) }", k=floats(1).astype("int64") + 2
    )
    assert operators(clean(proto)) == ["TopK", "Identity"]


def test_functions_that_nothing_calls_go() -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.F(x) }
        <domain: "local", opset_import: ["" : 17, "local" : 1]>
        F (a) => (b) { b = local.G(a) }
        <domain: "local", opset_import: ["" : 17]>
        G (a) => (b) { b = Neg(a) }
        <domain: "local", opset_import: ["" : 17, "local" : 1]>
        H (a) => (b) { b = local.I(a) }
        <domain: "local", opset_import: ["" : 17]>
        I (a) => (b) { b = Abs(a) }"""
    assert [f.name for f in clean(onnx.parser.parse_model(text)).functions] == ["F", "G"]

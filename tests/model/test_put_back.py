"""A graph that a user handed over is changed in place: what survives stays the same objects."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

import surgeon_passes.gs as methods
from surgeon_passes import ModelError, UsageError, Verify, demo
from tests.models import floats, model, run

TEXT = """
g (float[N,2,H,W] x, bool c) => (float[N,2,H,W] y, float[N,2,H,W] z) {
    [conv] a = Conv<pads = [1, 1, 1, 1]>(x, w)
    [norm] b = BatchNormalization(a, s, s, s, v)
    [drop] i = Identity(b)
    [relu] y = Relu(i)
    [choice] z = If(c) <
        then_branch = t () => (float[N,2,H,W] p) { [inner] q = Identity(i) [neg] p = Neg(q) },
        else_branch = e () => (float[N,2,H,W] r) { [scaled] r = Mul(i, k) }
    >
}"""


def source() -> onnx.ModelProto:
    positive = np.float32([0.5, 2])
    return model(TEXT, w=floats(2, 2, 3, 3), s=positive, v=positive, k=np.float32([[[3]], [[4]]]))


def objects(graph: gs.Graph) -> dict[str, object]:
    """Nodes and tensors by name, of the bodies too."""
    found: dict[str, object] = {}
    for node in graph.nodes:
        found[node.name] = node
        found.update((f"{t.name} (tensor)", t) for t in (*node.inputs, *node.outputs))
        for value in node.attrs.values():
            if isinstance(value, gs.Graph):
                found[value.name] = value
                found.update(objects(value))
    return found


def assert_consistent(graph: gs.Graph) -> None:
    """Every edge is known on both sides, as often, and no other is."""
    seen: dict[int, gs.Tensor] = {}
    reads: dict[int, int] = {}
    todo = [graph]
    while todo:
        for node in todo.pop().nodes:
            for tensor in node.inputs:
                assert any(n is node for n in tensor.outputs), (node.name, tensor.name)
                reads[id(tensor)] = reads.get(id(tensor), 0) + 1
                seen[id(tensor)] = tensor
            for tensor in node.outputs:
                assert len(tensor.inputs) == 1 and tensor.inputs[0] is node, (node.name, tensor.name)
                seen[id(tensor)] = tensor
            todo += [v for v in node.attrs.values() if isinstance(v, gs.Graph)]
    for key, tensor in seen.items():
        assert len(tensor.outputs) == reads.get(key, 0), tensor.name


def test_what_survives_is_the_same_object() -> None:
    proto = source()
    graph = gs.import_onnx(proto)
    before, nodes = objects(graph), graph.nodes
    result = methods.rewrite(graph, "fusion", "cleanup")
    assert result.check.status == "equal"
    after = objects(graph)
    assert graph.nodes is nodes
    nodes_left = ("relu", "choice", "t", "e", "neg", "scaled")
    for name in (*nodes_left, *(f"{tensor} (tensor)" for tensor in "xyzkp")):
        assert after[name] is before[name], name
    assert not {"norm", "drop", "inner", "w (tensor)"} & after.keys()
    assert_consistent(graph)
    for value in (True, False):
        feeds = {"x": floats(2, 2, 4, 4), "c": np.array(value)}
        np.testing.assert_allclose(run(proto, **feeds)["z"], run(gs.export_onnx(graph), **feeds)["z"], rtol=1e-5)
    gone = before["norm"]
    assert isinstance(gone, gs.Node) and not gone.inputs and not gone.outputs


def test_the_graph_can_be_worked_on_by_graphsurgeon_afterwards() -> None:
    graph = gs.import_onnx(source())
    methods.optimize(graph)
    relu = next(n for n in graph.nodes if n.op == "Relu")
    graph.outputs = [graph.outputs[0]]
    graph.cleanup().toposort()
    assert [n.op for n in graph.nodes] == ["Conv", "Relu"]
    assert relu.i().op == "Conv" and relu.i() is graph.nodes[0]


def test_one_graph_that_is_both_branches_becomes_two() -> None:
    proto = source()
    graph = gs.import_onnx(proto)
    choice = next(n for n in graph.nodes if n.op == "If")
    choice.attrs["else_branch"] = choice.attrs["then_branch"]
    assert methods.rewrite(graph, "cleanup").check.status == "equal"
    assert choice.attrs["else_branch"] is not choice.attrs["then_branch"]
    assert_consistent(graph)


def test_every_method_is_registered() -> None:
    graph = gs.import_onnx(demo.build())
    assert graph.specialize({"images": {"N": 2}}).check.status == "equal"
    assert list(graph.inputs[0].shape) == [2, 3, 64, 64]
    assert graph.fold().check.status == "equal"
    assert graph.rewrite("fusion", "reparam").applied
    assert graph.verify_against(demo.build()).status == "equal"


def test_custom_operators_are_compared_by_what_stands_for_them() -> None:
    from surgeon_passes import Operator, operators, testing

    body = '<domain: "put.back", opset_import: ["" : 17]> Sw (x) => (y) { s = Sigmoid (x) y = Mul (x, s) }'
    operators.register(Operator("put.back.Sw", inputs="x", reference=body))
    proto = testing.model("g (float[N] x) => (float[N] y) { i = Identity(x) y = put.back.Sw(i) }")
    graph = gs.import_onnx(proto)
    assert methods.rewrite(graph, "cleanup").check.status == "equal"
    assert methods.verify_against(graph, proto).status == "equal"


def test_a_graph_that_was_spoilt_is_told_from_its_model() -> None:
    graph = gs.import_onnx(source())
    assert methods.verify_against(graph, source()).status == "equal"
    weight = graph.nodes[0].inputs[1]
    weight.values = weight.values * np.float32(1.01)
    check = methods.verify_against(graph, source())
    assert check.status == "different" and check.output in ("y", "z") and check.error is not None and check.error > 1e-3
    feeds = {"x": floats(1, 2, 4, 4), "c": np.array(True)}
    assert methods.verify_against(graph, source(), data=lambda: iter([feeds])).status == "different"


def test_errors_leave_the_graph_as_it_was() -> None:
    graph = gs.import_onnx(source())
    before = objects(graph)
    with pytest.raises(UsageError, match="the model has no input 'images'"):
        methods.specialize(graph, {"images": [1]})
    with pytest.raises(ModelError, match=r"none\.onnx"):
        methods.verify_against(graph, "none.onnx")
    assert objects(graph) == before and [n.op for n in graph.nodes][:2] == ["Conv", "BatchNormalization"]
    assert_consistent(graph)


def test_constants_that_sibling_bodies_share_keep_all_their_readers() -> None:
    text = """g (float[2] x, bool c) => (float[2] y) {
        [i] j = Identity(x)
        [choice] y = If(c) <
            then_branch = t () => (float[2] p) { [one] p = Add(j, k) },
            else_branch = e () => (float[2] r) { [two] r = Mul(j, k) }
        >
    }"""
    graph = gs.import_onnx(model(text, k=np.float32([1, 2])))
    before = objects(graph)
    methods.rewrite(graph, "cleanup", verify=Verify(mode="strict"))
    after = objects(graph)
    assert after["k (tensor)"] is before["k (tensor)"] and after["one"] is before["one"] and "i" not in after
    assert_consistent(graph)

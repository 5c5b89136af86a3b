"""The engine: constants in every form, interfaces, scopes, cones, recording, folding, depth and cost."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto, helper, numpy_helper

from surgeon_passes.index import GraphIndex
from surgeon_passes.model import import_model
from surgeon_passes.values import Evaluator, Partial, TypeMap
from tests.values.build import assert_same, evaluator, model, text

I64 = np.int64


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("value = float[2] {1.5, 2.5}", np.array([1.5, 2.5], np.float32)),
        ("value_float = 0.1", np.float32(0.1)),
        ("value_floats = [0.1, 2.0]", np.array([0.1, 2.0], np.float32)),
        ("value_int = 3", I64(3)),
        ("value_ints = [3, 4]", np.array([3, 4], I64)),
    ],
)
def test_constant_nodes(attribute, expected):
    ev = evaluator(model(f"() => (y) {{ y = Constant<{attribute}>() }}"))
    assert_same(ev.value("y"), np.asarray(expected))


def test_string_constants():
    ev = evaluator(
        model('() => (y, z) { y = Constant<value_string = "a">() z = Constant<value_strings = ["b", "c"]>() }')
    )
    assert ev.value("y").tolist() == "a"
    assert ev.value("z").tolist() == ["b", "c"]


def sparse(name, indices, dims):
    values = helper.make_tensor(name, TensorProto.INT64, [2], [2**60 + 1, -2])
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(indices, I64)), dims)


def test_sparse_constants_keep_dtype_and_digits():
    proto = model("() => (y, z) { z = Identity(s) }")
    proto.graph.node.append(helper.make_node("Constant", [], ["y"], sparse_value=sparse("", [1, 3], [4])))
    proto.graph.sparse_initializer.append(sparse("s", [[0, 1], [1, 0]], [2, 2]))
    ev = evaluator(proto)
    assert_same(ev.value("y"), np.array([0, 2**60 + 1, 0, -2], I64))
    assert_same(ev.value("z"), np.array([[0, 2**60 + 1], [-2, 0]], I64))


def test_sparse_initializers_of_plain_graphsurgeon_graphs():
    proto = model("() => (z) { z = Identity(s) }")
    proto.graph.sparse_initializer.append(sparse("s", [1, 3], [4]))
    assert_same(Evaluator(gs.import_onnx(proto)).value("z"), np.array([0, 2**60 + 1, 0, -2], I64))


def test_large_initializers_are_read_and_picked_from_but_not_computed_with():
    table = np.arange(1 << 17, dtype=I64)
    proto = model("() => (y, z) { y = Gather(w, i) z = Neg(w) }", w=table, i=np.array([5, -1]))
    ev = evaluator(proto)
    assert_same(ev.value("w"), table)
    assert_same(ev.value("y"), table[[5, -1]])
    assert ev.value("z") is None


def test_graph_inputs_have_no_value_but_a_type():
    ev = evaluator(model("(int64[2] x) => (y, z) { y = Shape(x) z = Add(x, x) }"))
    assert ev.value("x") is None
    assert ev.value("z") is None
    assert ev.value("y").tolist() == [2]


def test_overridable_initializer_is_an_input():
    proto = model("(int64[2] d) => (y, s) { y = Add(d, d) s = Shape(d) }", d=np.array([1, 2]))
    ev = evaluator(proto)
    assert ev.value("y") is None
    assert ev.value("s").tolist() == [2]


def test_initializers_listed_as_inputs_are_constants_before_ir_4():
    proto = model("(int64[2] d) => (y) { y = Add(d, d) }", ir=3, opset=7, d=np.array([1, 2]))
    assert evaluator(proto).value("y").tolist() == [2, 4]


def test_names_are_looked_up_in_the_main_graph_first():
    ev = evaluator(model("(bool c) => (y) { v = Neg(k) y = If(c) <"
                         "then_branch = a () => (v2) { v2 = Add(v, k) },"
                         "else_branch = b () => (v3) { v3 = Identity(k) }> }", k=np.array([3])))  # fmt: skip
    assert ev.value("v").tolist() == [-3]
    assert ev.value("v2").tolist() == [0]  # outer constants are constants in a body
    assert ev.value("y") is None
    with pytest.raises(KeyError):
        ev.value("nothing")


def test_same_name_in_sibling_bodies_is_two_tensors():
    proto = model("(bool c) => (y) { y = If(c) <"
                  "then_branch = a () => (o) { t = Constant<value_int = 1>() o = Identity(t) },"
                  "else_branch = b () => (o) { t = Constant<value_int = 2>() o = Identity(t) }> }")  # fmt: skip
    ev = evaluator(proto)
    found = [ev.value(n.outputs[0]).tolist() for n in ev.index.nodes() if n.op == "Identity"]
    assert sorted(found) == [1, 2]


def test_of_body_inputs_only_what_every_turn_keeps_is_known():
    proto = model("(int64 n, bool t, float[1] x) => (float[k] y) { y = Loop(n, t, x) <"
                  "body = b (int64 i, bool c, float[1] a) => (bool c2, float[m] a2) "
                  "{ c2 = Identity(c) s = Shape(a) f = Cast<to=1>(s) a2 = Concat<axis=0>(a, f) }> }")  # fmt: skip
    ev = evaluator(proto)
    assert ev.value("s") is None  # it grows with every turn, whatever the body's input declares
    assert ev.types.type_of(ev.tensor("a")).shape == (None,)


def test_function_attributes_of_the_caller_are_unknown():
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18, "my": 1]>
        g (float[2] x) => (y) { y = my.f<k: int = 5>(x) }
        <domain: "my", opset_import: ["": 18]>
        f <k> (a) => (b) { c = Constant<value_int: int = @k>() d = Constant<value_int = 2>() e = Add(c, d) h = Add(d, d)
          b = CastLike(e, a) }
    """)
    ev = evaluator(proto)
    values = {t.name: ev.value(t) for n in ev.index.nodes() for t in n.outputs}
    assert values["c"] is None
    assert values["e"] is None
    assert values["h"].tolist() == 4
    assert ev.value("y") is None


def test_random_operators_and_dequantize_are_unknown():
    ev = evaluator(model("() => (a, b, c, d) { a = RandomNormal<shape=[2]>() b = RandomUniformLike(a) c = Bernoulli(k) "
                         "d = DequantizeLinear(q, k) }", k=np.float32(0.5), q=np.array([1], np.int8)))  # fmt: skip
    assert [ev.value(n) for n in "abcd"] == [None] * 4


# --- cones and reading -------------------------------------------------------------------------------------------------

IDIOM = (
    "(float[N,3,4,4] x) => (float[] y) { r = Relu(x) s = Shape(r) d = Gather(s, i0) u = Unsqueeze(d, ax) "
    "t = Concat<axis=0>(u, m1) y = Reshape(r, t) }"
)
IDIOM_CONSTANTS = {"i0": I64(0), "ax": np.array([0]), "m1": np.array([-1])}


def test_cone_ends_at_shape():
    ev = evaluator(model(IDIOM, **IDIOM_CONSTANTS))
    assert text(ev, "t") == ["N", "-1"]
    assert [n.op for n in ev.cone(ev.tensor("t"))] == ["Shape", "Gather", "Unsqueeze", "Concat"]
    assert ev.cone(ev.tensor("x")) == []
    assert ev.cone(ev.tensor("r")) == []
    assert ev.cone(ev.tensor("i0")) == []


def test_recording_notes_what_came_from_nodes():
    ev = evaluator(model(IDIOM, **IDIOM_CONSTANTS))
    with ev.recording() as log:
        ev.value("t")
        ev.value("t")
        ev.value("m1")
        ev.value("y")
    assert [t.name for t in log.tensors] == ["t"]
    ev.value("s")
    assert [t.name for t in log.tensors] == ["t"]
    assert [n.op for n in ev.cone(*log.tensors)] == ["Shape", "Gather", "Unsqueeze", "Concat"]


# --- folding -----------------------------------------------------------------------------------------------------------


def test_foldable():
    proto = model(
        "(float[2] x, bool c) => (a, b, e, f, g, h, i, j, k, l) {"
        "a = Exp(w) b = Add(a, a) e = Add(b, x) f = RandomNormal<shape=[2]>() g = Neg(f) "
        "h = DequantizeLinear(q, s) i = Mul(h, h) sh = Shape(x) j = Cast<to=1>(sh) "
        "k = Dropout(w, s, tr) "
        "l = If(c) <then_branch = t () => (o) { o = Neg(w) }, else_branch = e () => (p) { p = Exp(w) }>}",
        w=np.ones(2, np.float32), q=np.array([1], np.int8), s=np.float32(0.5), tr=np.array(True),
    )  # fmt: skip
    ev = evaluator(proto)
    found = {n.outputs[0].name: ev.is_foldable(n) for n in ev.index.nodes()}
    assert {k for k, v in found.items() if v} == {
        "a",
        "b",
        "j",
        "o",
        "p",
    }  # Shape itself reads an input; its value is known


def test_sequences_and_custom_operators_are_not_foldable():
    proto = model("() => (y) { s = SequenceConstruct(w, w) y = SequenceAt(s, i) }", w=np.ones(2, np.float32), i=I64(0))
    proto.opset_import.append(helper.make_opsetid("my", 1))
    proto.graph.node.append(helper.make_node("Thing", ["w"], ["z"], domain="my"))
    ev = evaluator(proto)
    assert not any(ev.is_foldable(n) for n in ev.index.nodes())


def test_foldable_chain_does_not_recurse():
    ev = evaluator(chain(3000, "Exp", np.float32(1)))
    assert ev.is_foldable(ev.index.nodes()[-1])


def test_output_bytes():
    ev = evaluator(
        model(
            "(float[2,3] x, float[N] z) => (y, v) { y = Cast<to=10>(x) v = Neg(z) t, i = TopK(x, k) }", k=np.array([2])
        )
    )
    sizes = {n.op: ev.output_bytes(n) for n in ev.index.nodes()}
    assert sizes == {"Cast": 12, "Neg": None, "TopK": 2 * 2 * 4 + 2 * 2 * 8}


# --- robustness and cost -----------------------------------------------------------------------------------------------


def test_a_failing_handler_is_unknown_and_visible_when_strict():
    proto = model("() => (y) { y = Transpose<perm=[0,5]>(w) }", w=np.ones((2, 2), I64))
    assert evaluator(proto, strict=False).value("y") is None
    with pytest.raises(ValueError, match="axis"):
        evaluator(proto).value("y")


def test_a_cycle_is_unknown():
    a, b = gs.Variable("a", np.int64, [1]), gs.Variable("b", np.int64, [1])
    one = gs.Constant("one", np.array([1]))
    nodes = [gs.Node("Add", inputs=[a, one], outputs=[b]), gs.Node("Add", inputs=[b, one], outputs=[a])]
    ev = Evaluator(gs.Graph(nodes, outputs=[a], opset=18))
    assert ev.value(a) is None
    assert not ev.is_foldable(nodes[0])


def test_new_nodes_get_values_and_types_on_demand():
    ev = evaluator(model("(float[N,3] x) => (y) { y = Relu(x) }"))
    index, x = ev.index, ev.tensor("x")
    shape, doubled, half = gs.Variable("s"), gs.Variable("d"), gs.Variable("h")
    relu = index.nodes()[0]
    scope, position = index.scope(relu), index.position(relu)
    index.add_node(gs.Node("Shape", inputs=[x], outputs=[shape]), scope, (*position, 0))
    index.add_node(gs.Node("Concat", attrs={"axis": 0}, inputs=[x, x], outputs=[doubled]), scope, (*position, 1))
    index.add_node(gs.Node("Cast", attrs={"to": 10}, inputs=[doubled], outputs=[half]), scope, (*position, 2))
    assert [str(e) for e in ev.value(shape).elements] == ["N", "3"]
    assert ev.types.type_of(shape).dtype == TensorProto.INT64
    found = ev.types.type_of(half)
    assert (found.dtype, [str(d) for d in found.shape]) == (TensorProto.FLOAT16, ["2*N", "3"])


def chain(length, op, start, middle=()):
    nodes = [
        helper.make_node(op, ["t0", *middle] if k == 0 else [f"t{k}", *middle], [f"t{k + 1}"]) for k in range(length)
    ]
    start = np.asarray(start)
    value = numpy_helper.from_array(start, "t0")
    kind = helper.np_dtype_to_tensor_dtype(start.dtype)
    graph = helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info(f"t{length}", kind, start.shape)], [value])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def long_graph(length):
    """A chain whose values and types alternate: each Reshape needs the shape of the one before."""
    x, tensor, nodes = gs.Variable("x", np.float32, ["N", 4]), None, []
    tensor = x
    for k in range(length // 2):
        shape, out = gs.Variable(f"s{k}", np.int64), gs.Variable(f"r{k}", np.float32)
        nodes.append(gs.Node("Shape", inputs=[tensor], outputs=[shape]))
        nodes.append(gs.Node("Reshape", inputs=[tensor, shape], outputs=[out]))
        tensor = out
    last = gs.Variable("last", np.int64)
    nodes.append(gs.Node("Shape", inputs=[tensor], outputs=[last]))
    return gs.Graph(nodes, [x], [last], opset=18), last


class NoInference(TypeMap):
    """Types from the shape functions alone."""

    def __init__(self, graph, index):
        from unittest import mock

        with mock.patch("surgeon_passes.values.types.model_types", return_value={}):
            super().__init__(graph, index, strict=True)


def seconds(length):
    graph, last = long_graph(length)
    types = NoInference(graph, GraphIndex(graph))
    ev = Evaluator(graph, types=types)
    begun = time.perf_counter()
    value = ev.value(last)
    assert isinstance(value, Partial)
    assert [str(e) for e in value.elements] == ["N", "4"]
    return time.perf_counter() - begun


def test_a_chain_of_100000_nodes_is_linear_and_does_not_recurse():
    small, large = seconds(10_000), seconds(100_000)
    assert large < 30 * small


def test_unknown_is_remembered():
    imported = import_model(model("(int64[2] x) => (y) { a = Add(x, x) y = Add(a, a) }"))
    ev = Evaluator(imported.graph)
    ev.value("y")
    calls = []
    ev._solver._run = lambda *task: calls.append(task)
    assert ev.value("y") is None
    assert ev.value("a") is None
    assert calls == []


def test_refresh_forgets_what_was_unknown():
    ev = evaluator(model("(int64[2] x) => (y) { a = Identity(x) y = Neg(a) }"))
    assert ev.value("y") is None
    identity = ev.index.producer(ev.tensor("a"))
    ev.index.set_input(identity, 0, gs.Constant("k", np.array([1, 2])))
    assert ev.value("y") is None
    ev.refresh()
    assert ev.value("y").tolist() == [-1, -2]


def test_importing_the_package_loads_no_runtime():
    code = (
        "import sys, surgeon_passes.values; print([m for m in sys.modules if m in ('onnxruntime', 'onnx.reference')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"

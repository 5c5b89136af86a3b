"""Links across scopes, order, names."""

from __future__ import annotations

import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto, helper

from surgeon_passes.errors import ModelError
from surgeon_passes.index import GraphIndex, node_label
from surgeon_passes.model import export_model, import_model
from tests.models import model, seconds

SIBLINGS = """g (bool c, float[2] x) => (float[2] y, float[2] s) {
    s = Abs(x)
    y = If(c)<then_branch = t () => (float[2] r) { a = Neg(s) r = Add(a, x) },
              else_branch = f () => (float[2] r) { a = Exp(x) r = Mul(a, a) }>
}"""

LOOP = """g (int64 n, bool k, float[2] x) => (float[2] y) {
    t = Abs(x)
    y = Loop(n, k, x)<body = b (int64 i, bool go, float[2] h) => (bool go2, float[2] h2) {
        go2 = Identity(go)
        h2 = If(go)<then_branch = p () => (float[2] q) { q = Add(h, t) }, else_branch = o () => (float[2] q) { q = Neg(h) }>
    }>
}"""


def index_of(text: str) -> GraphIndex:
    return GraphIndex(import_model(model(text)).graph)


def named(index: GraphIndex, name: str) -> list[gs.Tensor]:
    return [t for t in index.tensors() if t.name == name]


def ops(nodes: list[gs.Node]) -> list[str]:
    return [n.op for n in nodes]


def test_scopes_have_paths_and_parents() -> None:
    index = index_of(LOOP)
    assert [s.path for s in index.scopes] == ["", "y/body", "y/body/h2/then_branch", "y/body/h2/else_branch"]
    assert [s.parent.path if s.parent else None for s in index.scopes] == [None, "", "y/body", "y/body"]
    assert {s.opset() for s in index.scopes} == {17}


def test_consumers_reach_into_bodies() -> None:
    index = index_of(LOOP)
    (captured,) = named(index, "t")
    assert ops(index.consumers(captured)) == ["Add"]
    assert index.edge_count(captured) == 1
    producer = index.producer(captured)
    assert producer is not None and producer.op == "Abs"
    assert index.scope(index.consumers(captured)[0]).path == "y/body/h2/then_branch"
    (carried,) = named(index, "h")
    assert index.is_graph_input(carried) and index.home(carried).path == "y/body"  # type: ignore[union-attr]
    assert ops(index.consumers(carried)) == ["Add", "Neg"]


def test_sibling_branches_with_the_same_names_are_apart() -> None:
    index = index_of(SIBLINGS)
    first, second = named(index, "a")
    assert (ops(index.consumers(first)), ops(index.consumers(second))) == (["Add"], ["Mul"])
    assert (index.edge_count(first), index.edge_count(second)) == (1, 2)
    r1, r2 = named(index, "r")
    assert index.is_output(r1) and index.is_output(r2)
    index.remove_node(index.producer(r1))  # type: ignore[arg-type]
    assert index.producer(r1) is None and index.producer(r2) is not None
    assert index.edge_count(first) == 0 and index.edge_count(second) == 2


def test_outputs_count_as_uses() -> None:
    index = index_of("g (float[2] x) => (float[2] y, float[2] y) { y = Relu(x) }")
    (y,) = named(index, "y")
    assert index.edge_count(y) == 2 and index.is_output(y)
    assert not index.is_dead(index.producer(y))  # type: ignore[arg-type]


def test_functions_are_scopes_with_opsets_of_their_own() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.F(x) }
        <domain: "local", opset_import: ["" : 13]>
        F (a) => (b) { t = Neg(a) b = Relu(t) }""")
    index = GraphIndex(import_model(proto).graph)
    assert [(s.path, s.is_function, s.opset()) for s in index.scopes] == [
        ("", False, 17),
        ("function local.F", True, 13),
    ]
    (b,) = named(index, "b")
    assert index.is_output(b)
    index.drop_functions(set())
    assert ops(index.nodes()) == ["F"]


def test_removing_a_node_with_bodies_takes_its_captures_along() -> None:
    index = index_of(SIBLINGS)
    (s,) = named(index, "s")
    branch = next(n for n in index.nodes() if n.op == "If")
    assert index.edge_count(s) == 2  # captured, and an output
    index.remove_node(branch)
    assert ops(index.nodes()) == ["Abs"]
    assert index.edge_count(s) == 1 and not index.is_output(named(index, "r")[0])
    index.restore_node(branch)
    assert ops(index.nodes()) == ["Abs", "If", "Neg", "Add", "Exp", "Mul"]
    assert index.edge_count(s) == 2 and index.is_output(named(index, "r")[0])


def test_a_node_that_was_gone_before_its_owner_stays_gone() -> None:
    index = index_of(SIBLINGS)
    inner = next(n for n in index.nodes() if n.op == "Exp")
    branch = next(n for n in index.nodes() if n.op == "If")
    index.remove_node(inner)
    index.remove_node(branch)
    index.restore_node(branch)
    assert not index.is_live(inner)
    index.restore_node(inner)
    assert ops(index.nodes()) == ["Abs", "If", "Neg", "Add", "Exp", "Mul"]


def test_a_body_that_was_gone_before_its_owner_is_counted_once() -> None:
    index = index_of(LOOP)
    inner, outer = (next(n for n in index.nodes() if n.op == op) for op in ("If", "Loop"))
    (q, _) = named(index, "q")
    for node in (inner, outer):
        index.remove_node(node)
    for node in (outer, inner):
        index.restore_node(node)
    assert index.edge_count(q) == 1
    assert ops(index.nodes()) == ["Abs", "Loop", "Identity", "If", "Add", "Neg"]


def test_sync_sorts_nodes_after_what_they_capture() -> None:
    loaded = import_model(model(SIBLINGS))
    index = GraphIndex(loaded.graph)
    (s,) = named(index, "s")
    old = index.producer(s)
    assert old is not None
    index.remove_node(old)
    late = gs.Node("Relu")
    list.append(late.inputs, named(index, "x")[0])
    list.append(late.outputs, s)
    index.add_node(late, index.scopes[0], (99,))
    index.sync()
    assert ops(loaded.graph.nodes) == ["Relu", "If"]
    onnx.checker.check_model(export_model(loaded))


def test_sync_keeps_the_given_order_where_it_is_legal() -> None:
    loaded = import_model(model("g (float[2] x) => (float[2] y) { b = Neg(x) a = Abs(x) y = Add(a, b) }"))
    index = GraphIndex(loaded.graph)
    index.sync()
    assert ops(loaded.graph.nodes) == ["Neg", "Abs", "Add"]


def test_sync_writes_links_that_graphsurgeon_reads() -> None:
    loaded = import_model(model(SIBLINGS))
    index = GraphIndex(loaded.graph)
    (s,) = named(index, "s")
    exp = next(n for n in index.nodes() if n.op == "Exp")
    index.set_input(exp, 0, s)
    index.sync()
    assert [n.op for n in s.outputs] == ["Neg", "Exp"]
    assert [n.op for n in s.inputs] == ["Abs"]


def test_a_cycle_is_an_error_that_names_a_node() -> None:
    index = index_of("g (float[2] x) => (float[2] y) { a = Neg(x) b = Abs(a) y = Relu(b) }")
    first = next(n for n in index.nodes() if n.op == "Neg")
    index.set_input(first, 0, named(index, "b")[0])
    with pytest.raises(ModelError, match="cycle through Neg -> 'a'"):
        index.sync()
    index.set_input(first, 0, named(index, "a")[0])
    with pytest.raises(ModelError, match="cycle through Neg -> 'a'"):
        index.sync()


def test_a_cycle_through_a_capture_is_found() -> None:
    index = index_of(SIBLINGS)
    source = next(n for n in index.nodes() if n.op == "Abs")
    index.set_input(source, 0, named(index, "y")[0])
    with pytest.raises(ModelError, match="cycle"):
        index.sync()


def test_names_are_unique_over_all_scopes() -> None:
    index = index_of(SIBLINGS)
    assert index.unique_tensor_name("a") == "a_1"
    assert index.unique_tensor_name("a") == "a_2"
    assert index.unique_tensor_name("new") == "new"
    assert index.unique_tensor_name("new") == "new_1"
    assert index.unique_tensor_name("") == "t_1"


def test_a_name_that_was_handed_out_with_a_number_is_not_handed_out_again() -> None:
    index = index_of("g (float[2] x) => (float[2] y) { x_1 = Neg(x) y = Relu(x_1) }")
    assert [index.unique_tensor_name("x") for _ in range(2)] == ["x_2", "x_3"]
    assert index.unique_tensor_name("x_2") == "x_2_1"


def test_labels() -> None:
    index = index_of("g (float[2] x) => (float[2] y) { [first] a = Neg(x) y = Relu(a) }")
    assert [node_label(n) for n in index.nodes()] == ["Neg 'first'", "Relu -> 'y'"]


# --- growth --------------------------------------------------------------------------------------------------------------


def test_colliding_names_are_made_in_linear_time() -> None:
    def collide(number: int) -> None:
        index = index_of("g (float[2] x) => (float[2] y) { y = Relu(x) }")
        assert len({index.unique_tensor_name("x") for _ in range(number)}) == number

    assert seconds(lambda: collide(10_000)) < 40 * seconds(lambda: collide(1_000)) + 0.02


def wide(consumers: int) -> GraphIndex:
    nodes = [helper.make_node("Neg", ["x"], ["t"]), helper.make_node("Abs", ["x"], ["u"])]
    nodes += [helper.make_node("Relu", ["t"], [f"r{i}"]) for i in range(consumers)]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "r0")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    return GraphIndex(import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])).graph)


def test_uses_are_counted_as_they_come_and_go() -> None:
    index = wide(100)
    t, u = named(index, "t")[0], named(index, "u")[0]
    first, second, *_ = index.consumers(t)
    index.set_input(first, 0, u)
    index.remove_node(second)
    assert (index.edge_count(t), index.reader_count(t), index.edge_count(u)) == (98, 98, 1)
    index.restore_node(second)
    assert index.edge_count(t) == 99 == len(list(index.readers(t)))


def test_a_wide_tensor_is_rewired_in_linear_time() -> None:
    def rewire(index: GraphIndex) -> None:
        t, u = named(index, "t")[0], named(index, "u")[0]
        for node in index.consumers(t):
            index.set_input(node, 0, u)
        assert index.edge_count(t) == 0
        for node in index.consumers(u):
            index.remove_node(node)
        index.sync()

    small, large = ([wide(n) for _ in range(2)] for n in (500, 5_000))
    taken = [seconds(lambda graphs=graphs: rewire(graphs.pop())) for graphs in (small, large)]  # type: ignore[misc]
    assert taken[1] < 40 * taken[0] + 0.02


def test_touched_nodes_are_those_that_came_in_came_back_or_whose_edges_moved() -> None:
    proto = model("g (float[2] x, float[2] z) => (float[2] y) { a = Relu(x) b = Neg(a) y = Add(b, z) }")
    index = GraphIndex(import_model(proto).graph)
    relu, neg, add = index.nodes()
    assert index.take_touched() == [relu, neg, add]
    assert index.take_touched() == []
    index.set_input(neg, 0, relu.inputs[0])
    index.remove_node(relu)
    assert index.take_touched() == [neg]
    index.restore_node(relu)
    assert index.take_touched() == [relu]
    assert not index.has_bodies()

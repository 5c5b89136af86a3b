"""Models that nobody exports: too deep, too large, with names that break lines; each ends in a clear line, or well."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper

import surgeon_passes as sp
from tests.models import model

TOO_DEEP = "bodies are nested more than 31 deep, which no file can hold; make functions of the inner ones"


# --- depth ---------------------------------------------------------------------------------------------------------------


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field, as protobuf writes it."""
    size, length = len(content), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def nested(depth: int) -> bytes:
    """A model of Ifs within one another, written byte by byte: protobuf itself refuses to make the deeper ones."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y0"])], "g0", [], [value("y0", 1, [2])]
    ).SerializeToString()
    for level in range(1, depth + 1):
        other = helper.make_graph([helper.make_node("Neg", ["x"], ["e"])], "e", [], [value("e", 1, [2])])
        node = NodeProto(op_type="If", input=["c"], output=[f"y{level}"]).SerializeToString()
        node += field(5, helper.make_attribute("else_branch", other).SerializeToString())
        attribute = AttributeProto(name="then_branch", type=AttributeProto.GRAPH).SerializeToString()
        node += field(5, attribute + field(6, body))
        graph = GraphProto(name=f"g{level}", output=[value(f"y{level}", 1, [2])])
        if level == depth:
            graph.input.extend([value("x", 1, [2]), value("c", TensorProto.BOOL, [])])
        body = graph.SerializeToString() + field(1, node)
    shell = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)])
    return shell.SerializeToString() + field(7, body)


def test_as_deep_as_a_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(nested(31))
    result = sp.optimize(tmp_path / "m.onnx")
    assert (result.exit_code, result.check.status, result.after.nodes) == (0, "equal", 63)
    result.save(tmp_path / "out.onnx")
    assert sp.optimize(tmp_path / "out.onnx").exit_code == 0


@pytest.mark.parametrize("depth", [32, 33, 100, 1000])
def test_deeper_than_that(tmp_path: Path, depth: int) -> None:
    (tmp_path / "m.onnx").write_bytes(nested(depth))
    with pytest.raises(sp.ModelError) as error:
        sp.optimize(tmp_path / "m.onnx")
    said = "not an ONNX model, cut short, or nested too deep (protobuf cannot decode it)"
    assert str(error.value) == f"{tmp_path / 'm.onnx'}: {said}"


def test_a_proto_in_memory_may_be_deeper_than_a_file() -> None:
    proto = onnx.ModelProto()
    proto.ParseFromString(nested(31))
    node = NodeProto(op_type="If", input=["c"], output=["z"])
    for name in ("then_branch", "else_branch"):
        body = node.attribute.add(name=name, type=AttributeProto.GRAPH).g
        body.CopyFrom(proto.graph)
        del body.input[:]
    del proto.graph.node[:], proto.graph.output[:]
    proto.graph.node.append(node)
    proto.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [2]))
    with pytest.raises(sp.ModelError) as error:
        sp.optimize(proto)
    assert str(error.value) == f"the model: {TOO_DEEP}"


def graph_of_depth(depth: int) -> gs.Graph:
    x, c = gs.Variable("x", np.float32, [2]), gs.Variable("c", np.bool_, [])

    def body(node: str, inner: gs.Graph | None = None) -> gs.Graph:
        y = gs.Variable(node, np.float32, [2])
        if inner is None:
            return gs.Graph([gs.Node("Relu", node, inputs=[x], outputs=[y])], outputs=[y], opset=17)
        branches = gs.Node("If", node, inputs=[c], outputs=[y])
        found = gs.Graph([branches], outputs=[y], opset=17)
        branches.attrs.update(then_branch=inner, else_branch=body(f"{node}e"))  # later: gs walks them all each time
        return found

    found = body("y")
    for level in range(depth):
        found = body(f"y{level}", found)
    found.inputs, found.name = [x, c], "deep"
    return found


def test_graphs_in_memory() -> None:
    assert sp.optimize(graph_of_depth(31)).exit_code == 0
    deep = graph_of_depth(1000)
    for action in (sp.optimize, sp.Evaluator, sp.groups):
        with pytest.raises(sp.ModelError) as error:
            action(deep)
        assert str(error.value) == f"deep: {TOO_DEEP}"


# --- size ----------------------------------------------------------------------------------------------------------------

HUGE = 1 << 40


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        ("a = ConstantOfShape (n)", {"n": [HUGE]}),
        ("a = ConstantOfShape (n)", {"n": [1 << 62, 8]}),
        ("a = ConstantOfShape (n)", {"n": [-5]}),
        ("a = Expand (o, n)", {"n": [HUGE], "o": np.float32([1])}),
        ("a = Tile (o, n)", {"n": [HUGE], "o": np.float32([1])}),
        ("a = Pad (o, n)", {"n": [0, HUGE], "o": np.float32([1])}),
        ("a = OneHot (i, n, o)", {"i": [0], "n": HUGE, "o": np.float32([0, 1])}),
        ("r = Range (s, n, d) a = Cast <to = 1> (r)", {"s": 0, "n": 1 << 62, "d": 1}),
        ("r = Range (s, n, d) a = Cast <to = 1> (r)", {"s": 0, "n": 1 << 62, "d": 0}),
        ("z = Resize (o, , s) r = Flatten (z) a = ReduceMax <keepdims = 0> (r)",
         {"o": np.ones((1, 1, 1, 1), np.float32), "s": np.float32([1, 1, 1e5, 1e7])}),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_constants_beyond_the_budget_are_left(tmp_path: Path, text: str, constants: dict[str, object]) -> None:
    """Nobody can run these; nobody here makes the tensor, either."""
    made = model(f"g (float[1] x) => (float[N] y) {{ {text} y = Add (a, x) }}", **constants)
    ops = [n.op_type for n in made.graph.node]
    result = sp.optimize(made)
    assert result.check.status == "not run" and result.exit_code == 5
    assert set(ops) - {"Flatten"} <= {n.op_type for n in result.proto.graph.node}
    result.save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").stat().st_size < 1000


@pytest.mark.parametrize("dims", [[HUGE], [1 << 62, 1 << 62], [(1 << 63) - 1]])
def test_inputs_of_any_size(dims: list[int]) -> None:
    made = model("g (float[N] x) => (float[N] y) { a = Identity (x) y = Relu (a) }")
    for value in (made.graph.input[0], made.graph.output[0]):
        value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, dims))
    result = sp.optimize(made)
    assert result.exit_code == 5
    assert "input 'x' has more than 268435456 elements, which are not made up; give --data" in result.check.reason


def test_a_negative_dim_is_an_open_one() -> None:
    made = model("g (float[N,3] x) => (float[N,3] y) { a = Identity (x) y = Relu (a) }")
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -1
    result = sp.optimize(made)
    assert result.exit_code == 0 and result.check.status == "equal"


# --- names ---------------------------------------------------------------------------------------------------------------

NAMES = [
    "a\nb",
    "q\"'x",
    "\0nul",
    "\x1b[31mred",
    "${HOME}",
    "..\\/",
    "💥",
    " ",
    "a\tb",
    "%s%n",
    "<b>&amp;",
    "r1~x",
    "a" * 5000,
]


def test_names_that_hold_anything() -> None:
    """They pass through as they are, and nothing that is said of them breaks a line or colours a terminal."""
    nodes, last = [], "x\n0"
    for place, name in enumerate(NAMES):
        nodes.append(helper.make_node("Relu" if place % 2 else "Neg", [last], [f"{name}.out"], name=name))
        last = f"{name}.out"
    nodes.append(helper.make_node("Identity", [last], ["y\x07"], name="\r"))
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N\n"]) for n in ("x\n0", "y\x07"))
    made = helper.make_model(
        helper.make_graph(nodes, "g\n", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    result = sp.optimize(made)
    assert result.exit_code == 0 and result.check.status == "equal"
    graph = result.proto.graph
    assert [n.name for n in graph.node] == NAMES
    assert (graph.name, graph.input[0].name, graph.output[0].name) == ("g\n", "x\n0", "y\x07")
    report = result.report()
    assert all(row.isprintable() for row in report.split("\n"))
    assert "dynamic inputs      x\\n0\n" in report and "at 'y\\x07'\n" in report
    with pytest.raises(sp.UsageError) as error:
        sp.optimize(made, shapes={"\x1b[2J": [1]})
    assert str(error.value) == r"the model has no input '\x1b[2J' (its inputs: x 0)"

"""Import and export lose nothing, and say in one line what is no graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import surgeon_passes as sp
from surgeon_passes.errors import ModelError
from surgeon_passes.index import GraphIndex
from surgeon_passes.model import export_model, import_model
from tests.models import floats, model, operators


def round_trip(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Exported once; exporting that again gives the same bytes; what was given is as it was."""
    before = proto.SerializeToString(deterministic=True)
    loaded = import_model(proto)
    GraphIndex(loaded.graph).sync()
    found = export_model(loaded)
    assert proto.SerializeToString(deterministic=True) == before
    again = export_model(import_model(found))
    assert again.SerializeToString(deterministic=True) == found.SerializeToString(deterministic=True)
    return found


def same_but(proto: onnx.ModelProto, *fields: str) -> None:
    """The round trip gives the very message, order included, apart from ``fields`` of the graph."""
    found, wanted = round_trip(proto), onnx.ModelProto()
    wanted.CopyFrom(proto)
    for field in fields:
        wanted.graph.ClearField(field)
    assert str(found).splitlines() == str(wanted).splitlines()


TEXTS = [
    "g (float[N,3] x) => (float[N,3] y) { [first] a = Relu(x) [second] y = Add(a, k) }",
    "g (float[2] x) => (float[2] y, float[2] y) { y = Clip(x, , k) }",
    """g (bool c, float[2] x) => (float[2] y) {
        y = If(c)<then_branch = t () => (float[2] r) { a = Neg(x) r = Add(a, k) },
                  else_branch = f () => (float[2] r) { r = Exp(x) }>
    }""",
    'g (float[2] x) => (float[2] y) { y = Gelu<approximate = "tanh">(x) }',
    'g (float[2] x) => (float[2] y) { y = com.foo.Any<a = 1, b = 2.5, c = [1, 2], d = [1.5], e = "s", f = ["t", "u"]>(x) }',
    "g (float[2] x) => (float[2] k) { y = Relu(x) }",
    "g (float[2] x) => (float[2] x) { y = Relu(x) }",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_very_message_comes_back(text: str) -> None:
    proto = model(text, opset=20, k=np.float32([1, 2]))
    if "com.foo" in text:
        proto.opset_import.add(domain="com.foo", version=3)
    if "k)" not in text and "k }" not in text:
        proto.graph.ClearField("initializer")
    same_but(proto)


def test_what_graphsurgeon_would_lose() -> None:
    proto = model("g (float[N] x) => (float[N] y) { a = Relu(x) y = Add(a, k) }", k=np.float32([1]))
    proto.producer_name, proto.producer_version, proto.domain = "exporter", "1.2", "org.example"
    proto.model_version, proto.doc_string = 7, "what it is"
    proto.metadata_props.add(key="author", value="somebody")
    proto.graph.doc_string = "a graph"
    proto.graph.metadata_props.add(key="g", value="1")
    proto.graph.input[0].doc_string = "an input"
    proto.graph.input[0].type.denotation = "IMAGE"
    proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    proto.graph.output[0].doc_string = "an output"
    proto.graph.node[0].doc_string = "a node"
    proto.graph.node[0].metadata_props.add(key="n", value="1")
    proto.graph.initializer[0].doc_string = "a weight"
    same_but(proto)


def annotated() -> onnx.ModelProto:
    """Metadata, documentation and an overload name on every level that has a place for them."""
    proto = model(
        """g (bool c, float[2] x) => (float[2] y) {
            [n] a = Relu(x) b = Add(a, k)
            [i] y = If(c)<then_branch = t () => (float[2] r) { [deep] r = Exp(b) },
                          else_branch = f () => (float[2] s) { s = Abs(b) }>
        }""",
        opset=18, ir=10, k=floats(2),
    )  # fmt: skip
    function = proto.functions.add(name="F", domain="pkg", input=["x"], output=["y"], overload="one", doc_string="f")
    function.opset_import.add(domain="", version=18)
    function.node.add(op_type="Neg", input=["x"], output=["y"], doc_string="in f")
    called = proto.graph.node.add(op_type="F", domain="pkg", overload="one", input=["y"], output=["z"])
    proto.opset_import.add(domain="pkg", version=1)
    proto.graph.output.add().CopyFrom(proto.graph.output[0])
    proto.graph.output[1].name = "z"
    body = proto.graph.node[2].attribute[0].g
    held: list[Any] = [
        proto, proto.graph, *proto.graph.node, *proto.graph.input, *proto.graph.output, *proto.graph.initializer,
        function, *function.node, body, *body.node, *body.output, called,
    ]  # fmt: skip
    for number, message in enumerate(held):
        message.doc_string = f"doc {number}"
        message.metadata_props.add(key="place", value=str(number))
    return proto


def test_metadata_and_documentation_on_every_level() -> None:
    same_but(annotated())


@pytest.mark.parametrize("verify", ["strict", "off"])
def test_what_the_pipeline_leaves_keeps_its_metadata(verify: str) -> None:
    proto = annotated()
    found = sp.optimize(proto, verify=verify).proto
    found.graph.ClearField("value_info")
    for body in (a.g for a in found.graph.node[2].attribute):
        body.ClearField("value_info")
    assert str(found).splitlines() == str(proto).splitlines()


def test_quantization_annotations_keep_their_tensors() -> None:
    proto = model("g (float[N] x) => (float[N] y) { y = Relu(x) }", scale=np.float32(0.5), zero=np.int8(0))
    annotation = proto.graph.quantization_annotation.add(tensor_name="y")
    for key, value in (("SCALE_TENSOR", "scale"), ("ZERO_POINT_TENSOR", "zero")):
        annotation.quant_parameter_tensor_names.add(key=key, value=value)
    same_but(proto)
    assert [t.name for t in sp.optimize(proto).proto.graph.initializer] == ["scale", "zero"]


def test_overridable_initializers() -> None:
    proto = model("g (float[2] x, float[2] k) => (float[2] y) { y = Add(x, k) }", k=floats(2))
    same_but(proto)


def test_below_ir_4_initializers_are_constants_and_no_inputs_from_then_on() -> None:
    proto = model("g (float[2] x, float[2] k) => (float[2] y) { y = Add(x, k) }", ir=3, k=floats(2))
    found = round_trip(proto)
    assert found.ir_version == 4
    assert [i.name for i in found.graph.input] == ["x"]
    assert [t.name for t in found.graph.initializer] == ["k"]


def test_optional_and_sequence_types() -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    sequence = helper.make_sequence_type_proto(tensor)
    optional = helper.make_optional_type_proto(tensor)
    graph = helper.make_graph(
        [
            helper.make_node("SequenceAt", ["s", "i"], ["a"]),
            helper.make_node("OptionalGetElement", ["o"], ["b"]),
            helper.make_node("SequenceConstruct", ["a", "b"], ["t"]),
            helper.make_node("Optional", ["a"], ["p"]),
        ],
        "g",
        [helper.make_value_info("s", sequence), helper.make_value_info("o", optional)],
        [helper.make_value_info("t", sequence), helper.make_value_info("p", optional)],
        [numpy_helper.from_array(np.int64(0), "i")],
    )
    same_but(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))


def test_sparse_initializers() -> None:
    proto = model("g (float[2,2] x) => (float[2,2] y) { y = Mul(x, k) }")
    values = numpy_helper.from_array(np.float32([5, 6]), "k")
    proto.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, numpy_helper.from_array(np.int64([1, 2])), [2, 2])
    )
    same_but(proto)


def test_functions_with_attributes_of_their_callers() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 17, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.F<alpha = 0.5>(x) }
        <domain: "local", opset_import: ["" : 17]>
        F <alpha, beta: float = 2.0> (a) => (b) {
            c = LeakyRelu<alpha: float = @alpha>(a) b = Elu<alpha: float = @beta>(c)
        }""")
    proto.functions[0].doc_string = "a function"
    same_but(proto)


def test_dtypes_that_numpy_lacks() -> None:
    tensors = [
        helper.make_tensor("b", TensorProto.BFLOAT16, [2], [1.0, 2.0]),
        helper.make_tensor("f", TensorProto.FLOAT8E4M3FN, [2], [1.0, 2.0]),
        helper.make_tensor("i", TensorProto.INT4, [3], [1, 2, -3]),
        helper.make_tensor("s", TensorProto.STRING, [2], [b"a", b"\xff"]),
    ]
    nodes = [helper.make_node("Identity", [t.name], [f"{t.name}2"]) for t in tensors]
    outputs = [helper.make_tensor_value_info(f"{t.name}2", t.data_type, list(t.dims)) for t in tensors]
    graph = helper.make_graph(nodes, "g", [], outputs, tensors)
    same_but(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def test_value_info_is_a_hint_and_goes_without_types() -> None:
    proto = model("g (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }")
    proto.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [2]))
    same_but(proto, "value_info")


def stated_dims(proto: onnx.ModelProto) -> dict[str, list[Any]]:
    """By name, what value_info says: sizes, names of sizes, None."""
    dims = {v.name: v.type.tensor_type.shape.dim for v in proto.graph.value_info}
    return {n: [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in ds] for n, ds in dims.items()}


def behind_an_unknown_operator(*stated: tuple[str, list[Any]]) -> onnx.ModelProto:
    proto = model(
        "g (float[N,4] x) => (float[N,K] y) { i = Identity(x) a = Foo(i) b = Relu(a) c = Exp(b) y = Sqrt(c) }"
    )
    proto.graph.node[1].domain = "my.ops"
    proto.opset_import.add(domain="my.ops", version=1)
    proto.graph.value_info.extend(helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n, dims in stated)
    return proto


def test_shapes_behind_an_operator_that_nobody_knows_are_as_the_file_states_them() -> None:
    stated = ("i", [7, 4]), ("a", ["N", 9]), ("b", ["N", 9]), ("c", ["rows", None])
    result = sp.optimize(behind_an_unknown_operator(*stated))
    assert stated_dims(result.proto) == {"a": ["N", 9], "b": ["N", 9], "c": ["rows", None]}  # i is gone, and stale
    kept = sp.Pipeline(sp.Sizes()).run(behind_an_unknown_operator(*stated))
    assert stated_dims(kept.proto)["i"] == ["N", 4]  # what is known wins


def test_shapes_that_a_file_states_do_not_outlive_new_input_sizes() -> None:
    stated = ("a", [1, 9]), ("b", [1, 9])
    result = sp.optimize(behind_an_unknown_operator(*stated), {"x": [2, 4]})
    assert 1 not in [d for dims in stated_dims(result.proto).values() for d in dims]


def test_what_hangs_on_an_overridable_default_is_as_the_file_states_it() -> None:
    """ONNX Runtime does not load the Resize where it is not told how long its sizes are."""
    proto = model(
        """g (float[1,2,M,5] x, int64[1] at) => (float[?,?,?,?] y) {
            s = Shape(x) from = Slice(s, at, end, zero) more = Mul(from, at) sizes = Concat<axis = 0>(head, more)
            y = Resize<mode = "linear">(x, , , sizes)
        }""",
        at=np.array([3]), end=np.array([4]), zero=np.array([0]), head=np.array([1, 2, 4]),
    )  # fmt: skip
    stated = ("from", 1), ("more", 1), ("sizes", 4)
    proto.graph.value_info.extend(helper.make_tensor_value_info(n, TensorProto.INT64, [k]) for n, k in stated)
    result = sp.optimize(proto)
    assert stated_dims(result.proto)["sizes"] == [4]
    assert result.check.status == "equal"


def test_unsorted_nodes_are_sorted() -> None:
    proto = model("g (float[2] x) => (float[2] y) { y = Relu(b) b = Neg(a) a = Abs(x) }")
    assert operators(round_trip(proto)) == ["Abs", "Neg", "Relu"]


def test_a_node_is_sorted_after_what_its_bodies_capture() -> None:
    proto = model("""g (bool c, float[2] x) => (float[2] y) {
        y = If(c)<then_branch = t () => (float[2] r) { r = Neg(a) }, else_branch = f () => (float[2] r) { r = Exp(x) }>
        a = Abs(x)
    }""")
    found = round_trip(proto)
    assert operators(found) == ["Abs", "If"]
    onnx.checker.check_model(found)


def test_an_inner_name_may_be_that_of_a_later_outer_tensor() -> None:
    proto = model("""g (bool c, float[2] x) => (float[2] y) {
        v = If(c)<then_branch = t () => (float[2] r) { a = Neg(x) r = Abs(a) },
                  else_branch = f () => (float[2] r) { r = Exp(x) }>
        a = Abs(v) y = Neg(a)
    }""")
    same_but(proto)


def broken(text: str, **changes: Any) -> onnx.ModelProto:
    return model(text, **changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("g (float[2] x) => (float[2] y) { y = Neg(x) y = Abs(x) }", "tensor 'y' is defined twice in one graph"),
        ("g (float[2] x) => (float[2] y) { x = Neg(x) y = Abs(x) }", "tensor 'x' is defined twice in one graph"),
        ("g (float[2] x, float[2] x) => (float[2] y) { y = Abs(x) }", "input 'x' is listed twice"),
        ("g (float[2] x) => (float[2] y) { [n] y = Abs(q) }", "node 'n' (Abs) reads 'q', which nothing makes"),
        ("g (float[2] x) => (float[2] z) { y = Abs(x) }", "output 'z' reads 'z', which nothing makes"),
        (
            "g (float[2] x) => (float[2] y) { a = Neg(b) b = Abs(a) y = Relu(b) }",
            "the graph has a cycle through node 'a' (Neg)",
        ),
        ("g (float[2] x) => (float[2] y) { [n] y = Neg(y) }", "the graph has a cycle through node 'n' (Neg)"),
    ],
)
def test_what_is_no_graph(text: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        import_model(model(text))
    assert str(caught.value) == f"the model: {message}"


def test_two_initializers_of_one_name() -> None:
    proto = model("g (float[2] x) => (float[2] y) { y = Add(x, k) }", k=floats(2))
    proto.graph.initializer.add().CopyFrom(proto.graph.initializer[0])
    with pytest.raises(ModelError, match="the model: tensor 'k' is defined twice in one graph"):
        import_model(proto)


def test_initializers_that_nothing_reads() -> None:
    """They stay, in their places, until Cleanup takes them out; new tensors have other names meanwhile."""
    proto = model("g (float[2] x) => (float[2] y) { a = Add(x, k) y = Mul(a, l) }", unread=floats(3), k=floats(2))
    for name in ("l", "y.value"):
        proto.graph.initializer.append(numpy_helper.from_array(floats(2), name))
    same_but(proto)
    same_but(nested_unread())
    assert [t.name for t in sp.Pipeline(sp.Duplicates()).run(proto).proto.graph.initializer] == [
        "unread",
        "k",
        "l",
        "y.value",
    ]
    assert [t.name for t in sp.Pipeline(sp.Cleanup()).run(proto).proto.graph.initializer] == ["k", "l"]


def nested_unread() -> onnx.ModelProto:
    proto = model(
        """g (bool c, float[2] x) => (float[2] y) {
            y = If(c)<then_branch = t () => (float[2] r) { r = Add(x, k) }, else_branch = f () => (float[2] k) { }>
        }""",
        k=floats(2),
    )
    then, other = (attribute.g for attribute in proto.graph.node[0].attribute)
    then.initializer.append(numpy_helper.from_array(floats(2), "inner"))
    other.initializer.append(numpy_helper.from_array(floats(2), "other"))
    return proto


def test_a_new_constant_has_another_name_than_an_initializer_that_nothing_reads() -> None:
    proto = model("g (float[2] x) => (float[2] y) { a = Add(x, k) y = Add(a, l) }", k=floats(2), l=floats(2, seed=1))
    (new,) = (t.name for t in sp.optimize(proto).proto.graph.initializer)
    proto.graph.initializer.append(numpy_helper.from_array(floats(2), new))
    found = sp.Pipeline(sp.Rewrite()).run(proto)
    assert [t.name for t in found.proto.graph.initializer] == [new, f"{new}_1"]
    assert found.check.status == "equal" and found.checker_error == ""


def test_a_tensor_without_a_name_keeps_having_none() -> None:
    proto = model("g (float[2] x) => (float[2] y) { k = Constant<value = float[2] {1.0, 2.0}>() y = Add(x, k) }")
    proto.graph.node[0].attribute[0].t.ClearField("name")
    assert not round_trip(proto).graph.node[0].attribute[0].t.HasField("name")


def test_a_raised_ir_version_is_said() -> None:
    proto = model("g (float[2] x, float[2] k) => (float[2] y) { y = Add(x, k) }", ir=3, k=floats(2))
    assert sp.optimize(proto).notes == ["IR version 3 is raised to 4, from which on weights need not be inputs"]

"""Equal initializers are held once."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import surgeon_passes as sp
from surgeon_passes.runtime import Session

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])


def model(nodes: list[Any], held: dict[str, Any], *inputs: Any, outputs: Any = (Y,)) -> onnx.ModelProto:
    initializers = [numpy_helper.from_array(np.asarray(v), k) for k, v in held.items()]
    graph = helper.make_graph(nodes, "g", [X, *inputs], list(outputs), initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return made


def merged(proto: onnx.ModelProto, **options: Any) -> sp.Result:
    result = sp.Pipeline(sp.Constants(), sp.Cleanup()).run(proto, **options)
    assert result.exit_code == 0 and result.converged
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    for name, value in Session(proto).run({"x": x}).items():
        np.testing.assert_array_equal(value, Session(result.proto).run({"x": x})[name])
    return result


def names(result: sp.Result) -> list[str]:
    return sorted(i.name for i in result.proto.graph.initializer)


def chain(*held: str, ops: tuple[str, ...] = ("Mul", "Add", "Sub")) -> list[Any]:
    tensors = ["x", *(f"t{k}" for k in range(len(held) - 1)), "y"]
    return [helper.make_node(ops[k], [tensors[k], name], [tensors[k + 1]]) for k, name in enumerate(held)]


WEIGHT = np.arange(4, dtype=np.float32)


def test_equal_initializers_become_one() -> None:
    proto = model(chain("a", "b", "c"), {"a": WEIGHT, "b": WEIGHT, "c": WEIGHT})
    result = merged(proto)
    assert names(result) == ["a"]
    assert [n.input[1] for n in result.proto.graph.node] == ["a"] * 3
    assert [(d.rule, d.root, d.verdict) for d in result.applied] == [
        ("merge_duplicate_constants", "b", "verified"),
        ("merge_duplicate_constants", "c", "verified"),
    ]
    assert result.after.bytes == 16 and result.before.bytes == 48


@pytest.mark.parametrize(
    "other", [WEIGHT.reshape(1, 4), WEIGHT + 1, np.where(WEIGHT == 0, np.float32(-0.0), WEIGHT).astype(np.float32)]
)
def test_other_shapes_and_bits_are_others(other: Any) -> None:
    assert names(merged(model(chain("a", "b"), {"a": WEIGHT, "b": other}))) == ["a", "b"]


def test_other_types_of_the_same_bytes_are_others() -> None:
    zeros = {"a": np.zeros(4, np.float32), "b": np.zeros(4, np.int32)}
    nodes = [helper.make_node("Cast", ["b"], ["c"], to=1), helper.make_node("Sum", ["x", "a", "c"], ["y"])]
    assert names(merged(model(nodes, zeros))) == ["a", "b"]


def test_what_a_caller_may_override_stays_apart() -> None:
    listed = helper.make_tensor_value_info("b", TensorProto.FLOAT, [4])
    result = merged(model(chain("a", "b"), {"a": WEIGHT, "b": WEIGHT}, listed))
    assert names(result) == ["a", "b"]
    assert [i.name for i in result.proto.graph.input] == ["x", "b"]


def test_an_output_stays_apart() -> None:
    out = helper.make_tensor_value_info("b", TensorProto.FLOAT, [4])
    assert names(merged(model(chain("a", "b"), {"a": WEIGHT, "b": WEIGHT}, outputs=(Y, out)))) == ["a", "b"]


def test_scales_and_zero_points_stay_apart() -> None:
    held = {k: np.float32(0.1) for k in "ab"} | {k: np.uint8(3) for k in "pq"}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "a", "p"], ["q0"]),
        helper.make_node("DequantizeLinear", ["q0", "b", "q"], ["y"]),
    ]
    assert names(merged(model(nodes, held))) == ["a", "b", "p", "q"]


def body(name: str, op: str, held: str, own: Any = None) -> onnx.GraphProto:
    out = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, ["N", 4])
    initializers = [] if own is None else [numpy_helper.from_array(own, held)]
    return helper.make_graph([helper.make_node(op, ["x", held], [f"{name}_out"])], name, [], [out], initializers)


@pytest.mark.parametrize(("rows", "left"), [(1, 1), (100, 0)])
def test_bodies_read_large_initializers_of_the_graph_around_them(rows: int, left: int) -> None:
    weight = np.resize(WEIGHT, (rows, 4)) if rows > 1 else WEIGHT
    branches = {"then_branch": body("t", "Mul", "b", weight), "else_branch": body("e", "Add", "c", weight)}
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c0"]),
        helper.make_node("If", ["c0"], ["z"], **branches),
        helper.make_node("ReduceMax", ["z"], ["m"], axes=[0]),
        helper.make_node("ReduceMax", ["a"], ["n"], axes=[0]),
        helper.make_node("Mul", ["m", "n"], ["y"]),
    ]
    proto = model(nodes, {"zero": np.float32(0), "a": np.reshape(weight, (rows, 4)) if rows > 1 else weight})
    result = sp.Pipeline(sp.Constants(), sp.Cleanup()).run(proto, verify=sp.Verify(end_check=False))
    x = np.resize(np.float32([1, -2, 3]), (rows, 4))
    for sign in (1, -1):
        feeds = {"x": (sign * x).astype(np.float32)}
        np.testing.assert_array_equal(Session(proto).run(feeds)["y"], Session(result.proto).run(feeds)["y"])
    found = next(n for n in result.proto.graph.node if n.op_type == "If")
    assert [len(a.g.initializer) for a in found.attribute] == [left, left]
    assert [a.g.node[0].input[1] for a in found.attribute] == (
        ["a", "a"] if not left else [a.g.initializer[0].name for a in found.attribute]
    )


def test_two_bodies_side_by_side_hold_their_own() -> None:
    branches = {"then_branch": body("t", "Mul", "b", WEIGHT), "else_branch": body("e", "Add", "c", WEIGHT)}
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c0"]),
        helper.make_node("If", ["c0"], ["y"], **branches),
    ]
    result = merged(model(nodes, {"zero": np.float32(0)}))
    found = next(n for n in result.proto.graph.node if n.op_type == "If")
    assert [len(a.g.initializer) for a in found.attribute] == [1, 1]


def test_what_is_kept_stays() -> None:
    result = merged(model(chain("a", "b"), {"a": WEIGHT, "b": WEIGHT}), keep=["b"])
    assert names(result) == ["a", "b"]


def test_unused_initializers_go_and_overridable_ones_stay() -> None:
    listed = helper.make_tensor_value_info("c", TensorProto.FLOAT, [4])
    result = merged(model(chain("a"), {"a": WEIGHT, "b": WEIGHT + 1, "c": WEIGHT + 2}, listed))
    assert [i.name for i in result.proto.graph.input] == ["x", "c"]
    assert names(result) == ["a", "c"]


def test_the_default_pipeline_shares_weights_once_nothing_would_scale_them() -> None:
    kernel = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Mul", ["p", "k"], ["q"]),
        helper.make_node("Relu", ["q"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["t"]),
        helper.make_node("MatMul", ["t", "c"], ["y"]),
    ]
    result = sp.optimize(model(nodes, {"a": kernel, "b": kernel, "c": kernel, "k": np.float32(2)}))
    assert result.exit_code == 0
    assert [n.op_type for n in result.proto.graph.node] == ["MatMul", "Relu", "MatMul", "Relu", "MatMul"]
    assert len(result.proto.graph.initializer) == 2

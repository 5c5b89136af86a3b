from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from surgeon_passes.runtime import Session
from surgeon_passes.verify import SegmentedSession, end_check, open_model
from surgeon_passes.verify.segments import node_count

from .test_endcheck import model

X = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)


def chain(count: int, scale: float = 1.0) -> ModelProto:
    """MatMul with one shared weight and Tanh, in turn; every tenth reads the model's input again."""
    weight = np.random.default_rng(1).standard_normal((16, 16)).astype(np.float32) * np.float32(scale / 4)
    nodes, last = [], "x"
    for number in range(count // 2):
        nodes.append(helper.make_node("MatMul", [last, "w"], [f"m{number}"]))
        last = f"t{number}"
        op, inputs = ("Sub", [f"m{number}", "x"]) if number % 10 == 9 else ("Tanh", [f"m{number}"])
        nodes.append(helper.make_node(op, inputs, [last]))
    graph = helper.make_graph(
        nodes, "chain", [helper.make_tensor_value_info("x", 1, ["N", 16])],
        [helper.make_tensor_value_info(last, 1, ["N", 16]), helper.make_tensor_value_info("t0", 1, ["N", 16])],
        [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
def test_segments_give_what_the_whole_gives(size: int) -> None:
    made = chain(200)
    whole = Session(made).run({"x": X})
    parts = SegmentedSession(made, segment_nodes=size).run({"x": X})
    assert list(parts) == list(whole)
    assert all(np.array_equal(whole[n], parts[n]) for n in whole)


def test_extra_outputs_and_a_second_run_at_another_size() -> None:
    made = chain(60)
    runner = SegmentedSession(made, segment_nodes=10, extra_outputs=["m3", "t17"])
    assert runner.run({"x": X}, ["t17", "m3"])["m3"].shape == (3, 16)
    assert runner.run({"x": X[:1]})["t17"].shape == (1, 16)


def test_activations_are_dropped_after_their_last_use() -> None:
    made = chain(400)
    runner = SegmentedSession(made, segment_nodes=10)
    widest = max(len(s.gives) for s in runner._segments)
    assert widest <= 2
    assert len(runner._segments) == 40


def fan(count: int, opset: int) -> ModelProto:
    """x and z with ``count`` readers in turn, each with a factor of its own; the results of all in one Concat."""
    nodes = [helper.make_node("Mul", ["xz"[k % 2], f"f{k}"], [f"y{k}"]) for k in range(count)]
    nodes.append(helper.make_node("Concat", [f"y{k}" for k in range(count)], ["y"], axis=0))
    graph = helper.make_graph(
        nodes, "fan", [helper.make_tensor_value_info(n, 1, [f"N{n}", 2]) for n in "xz"],
        [helper.make_tensor_value_info("y", 1, ["M", 2])],
        [numpy_helper.from_array(np.float32([k + 1]), f"f{k}") for k in range(count)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("opset", [10, 13, 18])
def test_many_small_activations_come_as_a_few(opset: int) -> None:
    """Whether they are alike is asked at every run."""
    made = fan(1600, opset)
    runner, whole = SegmentedSession(made, segment_nodes=200), Session(made)
    for rows, packs in (((3, 3), [1000, 600]), ((1, 1), [1000, 600]), ((3, 2), [800, 800]), ((0, 2), [800])):
        feeds = {name: X[:n, :2] for name, n in zip("xz", rows, strict=True)}
        np.testing.assert_array_equal(runner.run(feeds)["y"], whole.run(feeds)["y"])
        last = runner._segments[-1]
        assert last.session is not None
        assert [len(pack.members) for pack in last.packs] == packs
        assert len(last.session.inputs) == len(last.reads) - sum(packs) + len(packs)


def many(op: str, attributes: dict[str, object], reader: str, opset: int, dims: list[object]) -> ModelProto:
    """600 results of ``op`` of x, each read by ``reader``: all of the first in one segment, of the second in the next."""
    nodes = [helper.make_node(op, ["x"], [f"a{k}"], **attributes) for k in range(600)]
    nodes += [helper.make_node(reader, [f"a{k}"], [f"b{k}"]) for k in range(600)]
    ends = [helper.make_value_info(f"b{k}", onnx.TypeProto()) for k in (0, 599)]
    graph = helper.make_graph(nodes, "many", [helper.make_tensor_value_info("x", 1, dims)], ends)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def test_what_is_packed_may_change_its_rank() -> None:
    """Squeeze without axes: [2, 1] becomes [2], [1, 1] a scalar, [2, 3] stays."""
    made = many("Squeeze", {}, "Neg", 13, ["N", "M"])
    runner, whole = SegmentedSession(made, segment_nodes=600), Session(made)
    for rows, columns in ((2, 1), (1, 1), (2, 3), (2, 1)):
        feeds = {"x": X[:rows, :columns]}
        np.testing.assert_array_equal(runner.run(feeds)["b599"], whole.run(feeds)["b599"])


def test_optionals_are_not_packed_as_tensors() -> None:
    made = many("Optional", {}, "OptionalHasElement", 15, ["N"])
    assert SegmentedSession(made, segment_nodes=600).run({"x": X[0]})["b599"]


def test_bodies_read_activations_and_weights_of_other_segments() -> None:
    body = """
        a = Relu(x)
        w2 = Mul(w, w)
        b = Add(a, w2)
        s = ReduceSum<keepdims = 0>(b)
        c = Greater(s, zero)
        y = If (c) <
            then_branch = t () => (float[2, 4] u) { d = Add(a, w)  u = Sub(d, b) },
            else_branch = e () => (float[2, 4] v) { v = Mul(a, b) }
        >
    """
    made = model(body, w=np.float32([1, 2, 3, 4]), zero=np.float32(0))
    feeds = {"x": X[:2, :4]}
    whole, parts = Session(made).run(feeds), SegmentedSession(made, segment_nodes=1).run(feeds)
    assert np.array_equal(whole["y"], parts["y"])


def test_sequences_strings_and_unsorted_nodes_pass_from_segment_to_segment() -> None:
    made = model(
        "s = SequenceConstruct(x, x)\na = Relu(x)\nq = SequenceInsert(s, a)\ny = ConcatFromSequence<axis = 0>(q)",
        "(float[2, 4] x) => (float[6, 4] y)",
    )
    made.graph.node.insert(0, made.graph.node.pop())
    feeds = {"x": X[:2, :4]}
    assert np.array_equal(Session(made).run(feeds)["y"], SegmentedSession(made, segment_nodes=1).run(feeds)["y"])
    text = model("a = Identity(s)\nb = Identity(a)\ny = Identity(b)", "(string[2] s) => (string[2] y)")
    assert SegmentedSession(text, segment_nodes=1).run({"s": np.array(["a", "b"], object)})["y"].tolist() == ["a", "b"]


def test_half_and_bfloat16_pass_between_segments() -> None:
    for dtype in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
        made = model(f"a = Cast<to = {dtype}>(x)\nb = Identity(a)\nc = Identity(b)\ny = Cast<to = 1>(c)")
        feeds = {"x": X[:2, :4]}
        assert np.array_equal(Session(made).run(feeds)["y"], SegmentedSession(made, segment_nodes=1).run(feeds)["y"])


def test_outputs_that_are_inputs_or_weights() -> None:
    made = model("y = Add(x, w)", w=np.ones(4, np.float32))
    made.graph.output.extend(onnx.ValueInfoProto(name=n) for n in ("x", "w"))
    found = SegmentedSession(made).run({"x": X[:2, :4]})
    assert found["w"].tolist() == [1, 1, 1, 1] and np.array_equal(found["x"], X[:2, :4])


def test_large_models_are_segmented_and_compared(tmp_path: Path) -> None:
    one = chain(6000)
    assert node_count(one.graph) == 6000
    assert isinstance(open_model(one), SegmentedSession)
    assert end_check(one, one, [{"x": X}]).status == "equal"
    assert end_check(one, chain(6000, 1.01), [{"x": X}]).status in ("different", "inconclusive")
    onnx.save(chain(6000), tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    assert end_check(one, tmp_path / "m.onnx", [{"x": X}]).status == "equal"


def test_interfaces_in_bfloat16_come_and_go_as_float() -> None:
    made = model("y = Identity(x)", "(bfloat16[2, 4] x) => (bfloat16[2, 4] y)")
    found = open_model(made).run({"x": X[:2, :4]})["y"]
    assert found.dtype == np.float32 and np.abs(found - X[:2, :4]).max() < 0.02
    assert end_check(made, made, [{"x": X[:2, :4]}]).status == "equal"

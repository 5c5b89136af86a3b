"""The embedded model, and its latency."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes import demo
from surgeon_passes.runtime import Session
from surgeon_passes.timing.latency import Latency


@pytest.fixture(scope="module")
def result() -> sp.Result:
    return sp.optimize(demo.build())


def test_is_the_same_each_time_and_passes_the_checker() -> None:
    model = demo.build()
    assert model.SerializeToString(deterministic=True) == demo.build().SerializeToString(deterministic=True)
    onnx.checker.check_model(model, full_check=True)


def test_has_what_it_is_to_show() -> None:
    operators = [node.op_type for node in demo.build().graph.node]
    expected = {"Conv", "BatchNormalization", "Add", "Relu", "Identity", "Dropout", "Shape", "Gather", "Concat", "Gemm"}
    assert expected <= set(operators)
    assert [d.dim_param or d.dim_value for d in demo.build().graph.input[0].type.tensor_type.shape.dim] == [
        "N", 3, demo.SIZE, demo.SIZE
    ]  # fmt: skip


@pytest.mark.parametrize("batch", [1, 3])
def test_outputs_are_neither_constant_nor_exploding(batch: int) -> None:
    images = np.random.default_rng(0).standard_normal((batch, 3, demo.SIZE, demo.SIZE)).astype(np.float32)
    logits = Session(demo.build()).run({"images": images})["logits"]
    assert logits.shape == (batch, demo.CLASSES)
    assert 0.01 < float(np.abs(logits).max()) < 1e3
    assert batch == 1 or np.ptp(logits, axis=0).max() > 1e-3


def test_optimises_to_one_conv_a_block(result: sp.Result) -> None:
    """Conv and Relu a block and in the neck, then pooling, one Reshape or Flatten, Gemm."""
    operators = result.after.operators
    blocks = len(demo.STAGES) + 1
    assert (operators["Conv"], operators["Relu"]) == (blocks, blocks)
    assert not {"BatchNormalization", "Add", "Identity", "Dropout", "Shape", "Gather", "Concat"} & set(operators)
    assert result.after.nodes == 2 * blocks + 3
    assert result.exit_code == 0
    assert {d.verdict for d in result.applied} == {"verified"}


def test_latency_stands_in_the_report_once_it_is_measured(result: sp.Result) -> None:
    assert "latency" not in result.report()
    latency = result.measure_latency()
    assert latency.before > 0
    assert latency.after > 0
    assert latency.rounds >= 5
    assert latency.shapes is not None
    assert latency.shapes["images"][1:] == (3, demo.SIZE, demo.SIZE)
    assert f"latency             {latency}" in result.report()


@pytest.mark.parametrize(
    ("latency", "text"),
    [
        (Latency(2.0, 1.0, 9, {"x": (1, 3)}), "2 ms -> 1 ms (2.00x faster) at x=1,3"),
        (Latency(1.0, 1.25, 9, {"x": (1,), "y": ()}), "1 ms -> 1.25 ms (1.25x slower) at x=1 y="),
        (Latency(reason="no inputs"), "not measured: no inputs"),
    ],
)
def test_latency_as_text(latency: Latency, text: str) -> None:
    assert str(latency) == text


def test_latency_says_why_it_was_not_measured() -> None:
    node = onnx.helper.make_node("Own", ["x"], ["y"], domain="some.custom")
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "xy")
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("some.custom", 1)]
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    assert "Own" in sp.optimize(model).measure_latency().reason

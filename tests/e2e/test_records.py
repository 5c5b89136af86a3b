"""Records, replay and baselines on real exports: renamed, and by two exporters of one network."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import onnx
import pytest

import surgeon_passes as sp
from benchmarks.entries import Wheels, packaged
from surgeon_passes import drift
from surgeon_passes.record.diff import diff
from surgeon_passes.record.replay import replay

from ..record.renamed import renamed

optimize = partial(sp.optimize, record=True)

PACKAGED = {entry["name"]: entry for entry in packaged()}
NAMES = ("nudenet_320n", "slanet_plus", "rep_repvgg_groups__raw")
LARGE = ("slanet_plus",)
"""Unverified, for time's sake: what a record says of checks the others tell."""


@pytest.mark.parametrize("name", NAMES)
def test_replayed_to_the_byte_and_found_again_when_all_is_renamed(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path = path_of(name, request)
    first = optimize(path, verify="off" if name in LARGE else "strict")
    record = first.record()
    again = replay(record, path)
    again.result.save(tmp_path / "again.onnx")
    first.save(tmp_path / "first.onnx")
    assert again.same_file and again.reproduced
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "first.onnx").read_bytes()
    other = replay(record, renamed(onnx.load(path)))
    assert not other.same_file and not other.differs
    assert len(other.diff.same) == len(first.applied) > 10
    found = drift.check(drift.baseline_of(first), other.result)
    assert found.parts == {"signature": 0.0, "operators": 0.0, "weights": 0.0, "matches": 0.0}
    assert all(" is called " in line for line in found.lines)


def path_of(name: str, request: pytest.FixtureRequest) -> Path:
    if name in PACKAGED:
        wheels: Wheels = request.getfixturevalue("wheels")
        return wheels.read(PACKAGED[name]["package"], PACKAGED[name]["path"])
    folder: Path = request.getfixturevalue("models")
    return folder / f"{name}.onnx"


def test_one_network_by_two_exporters(models: Path) -> None:
    """The second one folds ten of the BatchNormalizations itself, and writes the head otherwise."""
    torchscript, dynamo = (optimize(models / f"rep_repvgg_groups__{form}.onnx") for form in ("raw", "dynamo"))
    found = diff(torchscript.record(), dynamo.record())
    assert Counter(a["rule"] for a, _ in found.same) == {"merge_parallel_branches": 5}
    assert Counter(m.match["rule"] for m in found.gone) == {"fold_batch_norm_into_conv": 10}
    assert not found.changed and not found.come
    depths = [(a["place"]["depth"], b["place"]["depth"]) for a, b in found.same]
    assert sorted(depths) == sorted(depths, key=lambda pair: pair[1])
    assert {"BatchNormalization: 13 -> 3", "ReduceMean: 0 -> 1", "opset ai.onnx: 17 -> 20"} <= set(found.facts)
    again = replay(torchscript.record(), models / "rep_repvgg_groups__dynamo.onnx")
    assert not again.left and again.differs
    assert again.result.after == dynamo.after
    far = drift.check(drift.baseline_of(torchscript), dynamo)
    assert far.parts == {"signature": 0.0, "operators": 14 / 41, "weights": 30 / 64, "matches": 10 / 15}
    assert "- rule fold_batch_norm_into_conv matches nowhere; before 10 times" in far.lines


def test_two_exporters_the_other_way_round(models: Path) -> None:
    torchscript, dynamo = (optimize(models / f"rep_acnet__{form}.onnx") for form in ("raw", "dynamo"))
    there, back = diff(torchscript.record(), dynamo.record()), diff(dynamo.record(), torchscript.record())
    assert [m.match["root"] for m in there.gone] == [m.match["root"] for m in back.come]
    assert [m.match["root"] for m in there.come] == [m.match["root"] for m in back.gone]
    assert len(there.same) == len(back.same) > 0


def test_a_shipped_network_that_was_exported_anew(wheels: Wheels) -> None:
    """silero-vad ships one network as torch 2.3 scripted it, and as torch 2.9 traced it, with its LSTM written out."""
    old, new = (
        optimize(wheels.read(PACKAGED[name]["package"], PACKAGED[name]["path"]))
        for name in ("silero_vad_16k_op15", "silero_vad_op18_ifless")
    )
    found = diff(old.record(), new.record())
    gone = Counter(m.match["rule"] for m in found.gone)
    assert (gone["inline_known_if"], gone["drop_identity"], gone["fold_constants"]) == (5, 5, 20)
    assert [m.match["rule"] for m in found.come] == ["gather_all_as_reshape", "merge_reshapes"]
    assert {"LSTM: 2 -> 0", "Gemm: 0 -> 4", "producer_version: 2.3.1 -> 2.9.0+cu126"} <= set(found.facts)
    far = drift.check(drift.baseline_of(old), new)
    assert far.parts["signature"] == 3 / 5
    assert far.value > 0.9
    assert "input 1: float[2, 'batch', 128] -> int64[]" in far.lines
    again = replay(old.record(), renamed(onnx.load(old.source)))
    assert not again.differs and len(again.diff.same) == len(old.applied) == 61

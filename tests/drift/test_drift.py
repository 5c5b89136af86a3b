"""Baselines: what they hold, what counts as drift, and how far it is."""

from __future__ import annotations

import copy
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes import demo, drift
from surgeon_passes.drift.check import apart, compare

from ..record.renamed import renamed

Baseline = dict[str, Any]


@pytest.fixture(scope="module")
def result() -> sp.Result:
    return sp.optimize(demo.build())


@pytest.fixture(scope="module")
def baseline(result: sp.Result) -> Baseline:
    return drift.baseline_of(result)


def changed(baseline: Baseline, **parts: Any) -> Baseline:
    return {**copy.deepcopy(baseline), **parts}


def test_what_it_holds(baseline: Baseline, result: sp.Result) -> None:
    schema = json.loads((files("surgeon_passes.drift") / "schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(json.dumps(baseline)), schema)
    assert baseline["operators"]["BatchNormalization"] == 14
    assert {"dtype": "float", "shape": [64, 64, 3, 3], "count": 2} in baseline["weights"]
    assert sum(w["count"] for w in baseline["weights"]) == 11 + 4 * 14 + 2
    assert baseline["matches"]["merge_parallel_branches"] == 5
    assert baseline["inputs"] == [{"name": "images", "dtype": "float", "shape": ["N", 3, 64, 64]}]
    assert (baseline["producer"], baseline["opsets"]) == ("surgeon_passes.demo", {"": 17})


def test_weights_of_constant_nodes_are_weights(baseline: Baseline) -> None:
    made = demo.build()
    held = list(made.graph.initializer)
    del made.graph.initializer[:]
    constants = [onnx.helper.make_node("Constant", [], [t.name], value=t) for t in held]
    nodes = [*constants, *made.graph.node]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    found = drift.check(baseline, sp.optimize(made))
    assert (found.value, found.lines) == (0.0, ())


def test_names_and_values_are_no_drift(baseline: Baseline) -> None:
    found = drift.check(baseline, sp.optimize(renamed(demo.build(seed=4))))
    assert found.parts == {"signature": 0.0, "operators": 0.0, "weights": 0.0, "matches": 0.0}
    assert found.value == 0.0
    assert found.lines == (
        "input 0 is called 't.1', no longer 'images'",
        "output 0 is called 't.2', no longer 'logits'",
    )


def test_a_lost_batch_normalization_by_its_numbers(baseline: Baseline) -> None:
    made = demo.build()
    (norm,) = (n for n in made.graph.node if n.name == "neck.bn")
    (relu,) = (n for n in made.graph.node if n.name == "neck.relu")
    relu.input[0] = norm.input[0]
    made.graph.node.remove(norm)
    kept = [t for t in made.graph.initializer if not t.name.startswith("neck.bn")]
    del made.graph.initializer[:]
    made.graph.initializer.extend(kept)
    found = drift.check(baseline, sp.optimize(made))
    assert found.parts["operators"] == 1 / 47
    assert found.parts["weights"] == 4 / 69
    assert found.parts["matches"] == 1 / sum(baseline["matches"].values())
    assert "~ operator BatchNormalization stands once fewer: 14 -> 13" in found.lines
    fold = baseline["matches"]["fold_batch_norm_into_conv"]
    assert f"~ rule fold_batch_norm_into_conv matches once fewer: {fold} -> {fold - 1}" in found.lines
    assert "~ weights float[64] stands 4 times fewer: 36 -> 32" in found.lines
    assert found.report(0.01).startswith(
        f"drift {4 / 69:.4g}, beyond the 0.01 that is allowed (signature 0, operators 0.02"
    )
    assert ", within the 0.06 that is allowed" in found.report(0.06)


def test_counts_are_apart_by_the_share_that_is_not_common() -> None:
    assert apart({"a": 3, "b": 1}, {"a": 3, "b": 1}) == apart({}, {}) == 0.0
    assert apart({"a": 3}, {"b": 2}) == 1.0
    assert apart({"a": 3, "b": 1}, {"a": 1, "c": 1}) == (2 + 1 + 1) / (3 + 1 + 1)


@pytest.mark.parametrize(
    ("dims", "share", "line"),
    [
        (["N", 3, 64, 64], 0.0, ""),
        (["M", 3, 64, 64], 0.0, ""),
        ([1, 3, 64, 64], 0.5, "input 0: float['N', 3, 64, 64] -> float[1, 3, 64, 64]"),
        (["N", 3, 64], 0.5, "input 0: float['N', 3, 64, 64] -> float['N', 3, 64]"),
        (None, 0.5, "input 0: float['N', 3, 64, 64] -> float of unknown rank"),
    ],
)
def test_the_signature(baseline: Baseline, dims: Any, share: float, line: str) -> None:
    new = changed(baseline, inputs=[{"name": "images", "dtype": "float", "shape": dims}])
    found = compare(baseline, new)
    assert found.value == found.parts["signature"] == share
    assert found.lines == ((line,) if line else ())


def test_an_input_that_is_gone(baseline: Baseline) -> None:
    found = compare(baseline, changed(baseline, inputs=[]))
    assert found.value == 0.5
    assert found.lines[0] == "input 0: float['N', 3, 64, 64] -> none"


def test_operators_that_came_and_went(baseline: Baseline) -> None:
    operators = {name: number for name, number in baseline["operators"].items() if name != "Dropout"} | {"Gelu": 2}
    assert compare(baseline, changed(baseline, operators=operators)).lines == (
        "+ operator Gelu stands 2 times; before it did not",
        "- operator Dropout stands nowhere; before once",
    )


def test_matches_of_a_run_that_was_told_otherwise_are_not_compared(baseline: Baseline) -> None:
    found = drift.check(baseline, sp.optimize(demo.build(), skip=["fusion"]))
    assert found.parts["matches"] is None
    assert found.value == 0.0
    assert found.lines == ("matches are not compared: the baseline was saved with other passes or options",)
    assert "matches not compared" in found.report()


def test_versions_are_told_and_do_not_count(baseline: Baseline) -> None:
    new = changed(baseline, producer_version="2", opsets={"": 20, "x": 1}, tools={**baseline["tools"], "onnx": "9"})
    found = compare(baseline, new)
    assert found.value == 0.0
    assert found.lines[:3] == ("producer_version:  -> 2", "opset ai.onnx: 17 -> 20", "opset x: none -> 1")


def test_where_it_lies_and_what_is_none(tmp_path: Path, baseline: Baseline) -> None:
    assert drift.path_beside("a/model.v2.onnx") == Path("a/model.v2.baseline.json")
    drift.write_baseline(tmp_path / "m.baseline.json", baseline)
    assert drift.read_baseline(tmp_path / "m.baseline.json") == baseline
    (tmp_path / "n.json").write_text("{}")
    with pytest.raises(sp.ModelError, match=r"n\.json: not a baseline"):
        drift.read_baseline(tmp_path / "n.json")

"""``surgeon-passes bench``: arguments, files and exit codes."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from surgeon_passes.bench import measure as module
from surgeon_passes.bench import tools

from .conftest import Call, Outcome

QUICK = ("-k", "1", "--no-latency")


def test_one_tool_on_one_model(call: Call, model: str) -> None:
    outcome = call("bench", model, "--tool", "onnxruntime", *QUICK, "--json", "b.json")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("model: 2 nodes, ")
    held = json.loads(Path("b.json").read_text())
    assert held["options"]["calls"] == 1
    (row,) = held["models"][0]["rows"]
    assert (row["tool"], row["check"], row["nodes"]) == ("onnxruntime (basic)", "equal", 1)


def test_data_goes_to_the_judge_and_to_ours(call: Call, model: str) -> None:
    np.savez("x.npz", images=np.ones((1, 3, 5, 7), np.float32))
    outcome = call("bench", model, "--tool", "surgeon_passes", *QUICK, "--data", "x.npz")
    assert outcome.code == 0 and outcome.out.count("equal") == 2


def test_a_result_of_ours_that_is_not_equal_is_5(call: Call, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JUDGE", "tests.echo")  # it crashes on what it is asked
    outcome = call("bench", model, "--tool", "surgeon_passes", *QUICK)
    assert outcome.code == 5 and "surgeon_passes: exit code 3: the last words" in outcome.out


def test_tools_that_are_missing_are_named(call: Call, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the model is read."""
    monkeypatch.setattr(tools, "missing", lambda: ["onnxslim", "onnxoptimizer"])
    outcome = call("bench", "absent.onnx", *QUICK)
    first, second = outcome.err.splitlines()
    assert first == "not installed: onnxslim, onnxoptimizer (pip install 'surgeon-passes[bench]')"
    assert second.startswith("error: absent.onnx: cannot be read") and outcome.code == 6


def refused(outcome: Outcome, code: int, says: str) -> None:
    assert outcome.code == code and outcome.out == ""
    assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1 and says in outcome.err


def test_bad_input_is_one_line(call: Call, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = ("--tool", "onnxruntime", *QUICK)
    refused(call("bench", "absent.onnx", *one), 6, "absent.onnx: cannot be read")
    refused(call("bench", model, *one, "--also", "absent.onnx"), 6, "absent.onnx: cannot be read")
    refused(call("bench", model, model, *one, "--also", model), 2, "--also goes with one MODEL")
    Path("text.onnx").write_text("no model")
    refused(call("bench", model, "text.onnx", *one), 6, "text.onnx: not an ONNX model")
    refused(call("bench", model, "--tool", "onnxslm"), 2, "did you mean 'onnxslim'")
    refused(call("bench", model, *one, "--json", "no/b.json"), 6, "there is no folder no")
    refused(call("bench", model, *one, "--data", "absent.npz"), 2, "absent.npz is no .npz file")
    np.savez("x.npz", other=np.ones(1, np.float32))
    refused(call("bench", model, *one, "--data", "x.npz"), 2, "the model's inputs are 'images'")
    refused(call("bench", model, *one, "--timeout", "nan"), 2, "the timeout must be a positive number")
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name))
    refused(call("bench", model, *one, "--plot", "."), 2, "plots need matplotlib: pip install 'surgeon-passes[bench]'")


def test_a_model_that_is_not_valid_is_refused_before_anything_is_measured(call: Call, model: str) -> None:
    """As `optimize` refuses it, not as a result of ours that was not shown equal."""
    one = ("--tool", "onnxruntime", *QUICK)
    proto = onnx.load(model)
    proto.graph.node[0].input[0] = "nowhere"
    onnx.save(proto, "dangling.onnx")
    refused(call("bench", model, "dangling.onnx", *one), 6, "dangling.onnx: node Conv reads 'nowhere'")
    refused(call("bench", model, *one, "--also", "dangling.onnx"), 6, "which nothing makes")
    proto = onnx.load(model)
    weight = proto.graph.initializer[0]
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight), weight.name))
    onnx.save(proto, "beside.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    Path("w.data").unlink()
    refused(call("bench", "beside.onnx", *one), 6, "w.data cannot be read")


def test_models_of_one_name_are_told_apart(call: Call, model: str) -> None:
    for name in ("a", "b"):
        Path(name).mkdir()
        shutil.copy(model, f"{name}/net.onnx")
    outcome = call("bench", "a/net.onnx", "b/net.onnx", model, "--tool", "onnxruntime", *QUICK)
    titles = [line.split(":")[0] for line in outcome.out.splitlines() if " nodes, " in line]
    assert titles == ["a/net.onnx", "b/net.onnx", "model"]


def test_help_names_the_exit_codes(call: Call) -> None:
    out = call("bench", "--help").out
    assert "Exit codes" in out and "--shares" in out

"""``surgeon-passes bench``: arguments, files and exit codes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
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
    monkeypatch.setattr(module, "JUDGE", "tests.bench.echo")  # it crashes on what it is asked
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
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name))
    refused(call("bench", model, *one, "--plot", "."), 2, "plots need matplotlib: pip install 'surgeon-passes[bench]'")


def test_help_names_the_exit_codes(call: Call) -> None:
    out = call("bench", "--help").out
    assert "Exit codes" in out and "--shares" in out

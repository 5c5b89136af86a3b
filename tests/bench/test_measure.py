"""The harness runs, on the embedded network; nothing here depends on time."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes import demo
from surgeon_passes.bench import measure as module
from surgeon_passes.bench import outputs, plot
from surgeon_passes.bench.measure import Options, about, measure
from surgeon_passes.bench.records import Measured, from_json, shares
from surgeon_passes.bench.table import model_table, render, share_table
from surgeon_passes.bench.tools import BY_NAME, ONNXSIM, OURS, installed
from surgeon_passes.errors import ModelError, UsageError

from .fakes import FAKES

OPTIONS = Options(calls=2, latency=0.01, runtime=True)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bench") / "demo.onnx"
    onnx.save(demo.build(), made)
    return made


@pytest.fixture(scope="module")
def measured(path: Path) -> Measured:
    """Every tool that is installed."""
    return measure(path, "demo", installed(), OPTIONS)


def test_every_installed_tool_has_a_row(measured: Measured, path: Path) -> None:
    assert [(row.tool, row.version) for row in measured.rows] == [(tool.name, tool.version) for tool in installed()]
    assert (measured.nodes, measured.bytes) == (47, path.stat().st_size)
    for row in measured.rows:
        assert (row.status, row.check, row.reason) == ("ok", "equal", "")
        assert len(row.seconds) == len(row.cpu) == 2 and min(row.seconds) > 0
        assert row.nodes and row.bytes and row.error is not None and row.error < 1e-4
        assert row.counts is not row.is_too_big
        if sys.platform == "linux":
            assert row.peak is not None and row.anon is not None
    ours = measured.row(OURS)
    assert ours is not None and ours.nodes == 15


def test_results_that_count_have_a_latency(measured: Measured) -> None:
    assert measured.ms and not measured.latency_reason
    for row in measured.rows:
        assert (row.ratio is not None) == (row.ms is not None) == row.counts
        assert row.ratio is None or 0 < row.ratio.low <= row.ratio.median <= row.ratio.high
    assert measured.runtime and measured.runtime_cpu


def test_measurements_survive_json(measured: Measured, tmp_path: Path) -> None:
    outputs.write([measured], about(OPTIONS), str(tmp_path / "b.json"), None)
    assert from_json((tmp_path / "b.json").read_text(), "b.json") == [measured]


def test_tables_hold_every_tool(measured: Measured) -> None:
    text = render([measured, replace(measured, name="again")])
    for row in measured.rows:
        assert text.count(f"\n{row.tool} ") == 3 + (row.tool == OURS) * 3
    assert "2 models, medians" in text and "2 of 2" in text
    if measured.row(ONNXSIM):
        found = shares(measured)
        assert found is not None and found.less_runtime is not None and found.less_runtime < found.strict
        assert f"{found.strict:.2f}" in share_table([measured])


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_a_plot_is_written(measured: Measured, tmp_path: Path) -> None:
    data = plot.write([measured], tmp_path).read_bytes()
    assert data.startswith(b"\x89PNG") and [p.name for p in tmp_path.iterdir()] == ["bench.png"]


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
@pytest.mark.parametrize(
    ("values", "limits"), [((0.03, 0.07), (0.01, 0.1)), ((1, 1), (1, 10)), ((0.2, 300), (0.1, 1000))]
)
def test_a_logarithmic_axis_ends_at_powers_of_ten(values: tuple[float, ...], limits: tuple[float, ...]) -> None:
    """Only those have labels: one model alone would have none."""
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    axis.plot(values, [0, 1], ".")
    plot._whole_decades(axis)
    assert axis.get_xlim() == pytest.approx(limits)


# --- tools that do wrong -------------------------------------------------------------------------------------------------


def fakes(path: Path, names: Iterable[str], monkeypatch: pytest.MonkeyPatch, options: Options) -> Measured:
    monkeypatch.setattr(module, "WORKER", "tests.bench.fakes")
    return measure(path, "demo", [tool for tool in FAKES if tool.name in names], options)


def test_only_equal_results_within_the_budget_count(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = replace(OPTIONS, calls=1, runtime=False)
    found = fakes(path, ("same", "wrong", "big", "raises", "dies"), monkeypatch, once)
    assert [(row.tool, row.outcome, row.counts) for row in found.rows] == [
        ("same", "equal", True),
        ("wrong", "differs", False),
        ("big", "too big", False),
        ("raises", "failed", False),
        ("dies", "crashed", False),
    ]
    assert found.ranked[0].tool == "same"
    assert [row.tool for row in found.rows if row.ratio is not None] == ["same"]
    text = render([found])
    for reason in (
        "wrong: error ",
        "big: 1.29 MB, beyond the byte budget",
        "raises: ValueError: no such operator",
        "dies: killed by SIGABRT",
    ):
        assert f"\n{reason}" in text


def test_outputs_are_not_called_equal_without_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing that is made up runs, no result counts."""
    model = demo.build()
    model.graph.node[0].op_type, model.graph.node[0].domain = "Own", "own"
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))
    onnx.save(model, tmp_path / "own.onnx")
    found = fakes(tmp_path / "own.onnx", ["same"], monkeypatch, replace(OPTIONS, calls=1))
    (row,) = found.rows
    assert (row.outcome, row.counts, found.latency_reason) == ("not checked", False, "no result counts")
    assert "Own" in row.check_reason


def test_results_are_compared_on_the_inputs_that_are_given(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "one.npz", images=np.full((1, 3, 64, 64), np.nan, np.float32))
    legal = replace(OPTIONS, calls=1, legal=str(tmp_path), latency=0)
    (row,) = fakes(path, ["wrong"], monkeypatch, legal).rows
    assert row.check == "equal"  # NaN + 0.5 is NaN
    with pytest.raises(UsageError, match="rank 1"):
        np.savez(tmp_path / "one.npz", images=np.zeros(3, np.float32))
        measure(path, "demo", [], legal)


def test_another_form_of_the_model_stands_beside_the_results(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = (str(tmp_path / "deploy.onnx"), str(tmp_path / "other.onnx"))
    sp.optimize(path).save(others[0])
    onnx.save(demo.build(seed=1), others[1])
    options = replace(OPTIONS, calls=1, runtime=False, also=others)
    found = measure(path, "demo", [BY_NAME[OURS]], options)
    ours, deploy, other = found.rows
    assert (deploy.tool, deploy.nodes, deploy.outcome, other.outcome) == ("deploy.onnx", ours.nodes, "equal", "differs")
    assert ours.ours is not None and ours.ours.low == ours.ours.high == 1
    assert deploy.ours is not None and other.ours is None
    assert f"deploy.onnx: ours takes {deploy.ours} of its time" in model_table(found).splitlines()


def test_from_file_to_file(tmp_path: Path) -> None:
    """Weights beside the file: each tool of its own way of writing."""
    model = demo.build()
    size = model.ByteSize()
    onnx.save(model, tmp_path / "demo.onnx", save_as_external_data=True, location="demo.data", size_threshold=1024)
    own = [tool for tool in installed() if tool.prepare_file and tool.name != OURS]
    found = measure(tmp_path / "demo.onnx", "demo", own, Options(calls=1, span="file", latency=0))
    assert abs(found.bytes - size) < 5_000
    for row in found.rows:
        assert (row.tool, row.reason, row.check_reason, row.counts) == (row.tool, "", "", True)
        assert row.nodes is not None and row.nodes < 47 and row.bytes is not None and row.bytes > 400_000


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"absent.onnx: cannot be read"):
        measure(tmp_path / "absent.onnx", "absent", installed(), OPTIONS)

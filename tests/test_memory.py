"""Anonymous memory of one run, in a process of its own; the figures of large models come from benchmarks.memory."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import pytest

from benchmarks.memory import main, measure, write_model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="RssAnon is Linux's")


def test_an_inline_model_takes_little_more_than_itself() -> None:
    row = measure(60, external=False, verify="strict")
    assert row["end_check"] == "equal" and row["applied"] > 0
    assert row["nodes"][1] < row["nodes"][0]
    assert 0.9 < row["saved"] / row["bytes"] < 1.1
    assert row["peak"] < 1.6 * row["bytes"]


def test_external_data_is_not_taken_into_memory() -> None:
    row = measure(120, external=True, verify="strict")
    assert row["end_check"] == "equal" and row["applied"] > 0
    assert 0.9 < row["saved"] / row["bytes"] < 1.1
    assert row["peak"] < 0.5 * row["bytes"]


@pytest.mark.parametrize("external", [False, True])
def test_the_models_are_models(tmp_path: Path, external: bool) -> None:
    path = tmp_path / "m.onnx"
    size = write_model(path, 4, external)
    assert size == sum(p.stat().st_size for p in tmp_path.iterdir())
    onnx.checker.check_model(str(path), full_check=True)


def test_the_table(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--inline", "4", "--verify", "off"]) == 0
    header, row = capfd.readouterr().out.splitlines()
    assert header.split()[:3] == ["weights", "MB", "peak"]
    assert row.split()[0] == "inline" and row.split()[-1] == "off"

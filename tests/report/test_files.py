"""Reports by the ending of their file's name."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

import surgeon_passes as sp
from surgeon_passes import demo
from surgeon_passes.errors import ModelError, UsageError

from ..conftest import IN_CI


@pytest.fixture(scope="module")
def result() -> sp.Result:
    return sp.optimize(demo.build())


def test_each_ending_has_its_report(result: sp.Result, tmp_path: Path) -> None:
    for name in ("a.txt", "b.json", "c.html", "D.HTML"):
        result.save_report(tmp_path / name)
    assert (tmp_path / "a.txt").read_text("utf-8") == result.report()
    assert json.loads((tmp_path / "b.json").read_text("utf-8")) == result.record()
    page = (tmp_path / "c.html").read_text("utf-8")
    assert page.startswith("<!doctype html>") and page == (tmp_path / "D.HTML").read_text("utf-8")
    if importlib.util.find_spec("reportlab"):
        result.save_report(tmp_path / "e.pdf")
        assert (tmp_path / "e.pdf").read_bytes().startswith(b"%PDF-")


@pytest.mark.parametrize(
    ("name", "says"), [("report.docx", "this ends with '.docx'"), ("report", "this has no ending")]
)
def test_another_ending_is_refused(result: sp.Result, tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"a report is .txt, .json, .html or .pdf, and {says}"):
        result.save_report(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(result: sp.Result, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be written"):
        result.save_report(tmp_path / "nowhere" / "report.html")


def test_latency_that_is_measured_later_is_told(tmp_path: Path) -> None:
    result = sp.optimize(demo.build(), verify="off")
    assert result.record()["latency"] is None
    result.measure_latency()
    found = result.record()["latency"]
    assert found["before_ms"] > 0 and found["slower"] is (found["ratio"][0] > 1.02)
    result.save_report(tmp_path / "report.html")
    assert "99th percentile" in (tmp_path / "report.html").read_text("utf-8")


@pytest.mark.skipif(os.name == "nt", reason="names of files are text there")
def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.onnx"))
    path.write_bytes(demo.build().SerializeToString())
    result = sp.optimize(path, verify="off", record=True)
    for name in ("a.txt", "b.json", "c.html"):
        result.save_report(tmp_path / name)
    assert json.loads((tmp_path / "b.json").read_text("utf-8"))["source"]["path"] == str(path)
    assert "<title>\\udcff.onnx – surgeon-passes</title>" in (tmp_path / "c.html").read_text("utf-8")


def test_pages_and_pdfs_are_tried_where_the_tests_decide() -> None:
    """Their extras are part of what developers and CI install."""
    if IN_CI and importlib.util.find_spec("mypy"):
        assert all(
            importlib.util.find_spec(name) for name in ("playwright", "axe_playwright_python", "reportlab", "pypdf")
        )

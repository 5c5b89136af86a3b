"""``optimize --report``: kinds of reports, and the one that a terminal gets."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Run, assert_refused, files


def test_several_reports_at_once(run: Run, model: str) -> None:
    outcome = run(model, "--report", "a.txt", "--report", "b.json", "--report", "c.html")
    assert outcome.code == 0
    assert Path("a.txt").read_text() == outcome.out
    assert json.loads(Path("b.json").read_text())["after"]["nodes"] == 1
    assert "Content-Security-Policy" in Path("c.html").read_text()
    assert files() == ["a.txt", "b.json", "c.html", "model.onnx"]


def test_2_another_ending(run: Run, model: str) -> None:
    assert_refused(
        run, 2, model, "--report", "r.doc", says="r.doc: a report is .txt, .json, .html or .pdf, and this ends"
    )


def test_2_a_pdf_without_its_extra(run: Run, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "reportlab" or n == "surgeon_passes.report.pdf"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "reportlab", None)
    assert_refused(run, 2, model, "--report", "r.pdf", says="pip install 'surgeon-passes[pdf]'")


@pytest.mark.skipif(importlib.util.find_spec("reportlab") is None, reason="the extra 'pdf' is not installed")
def test_a_pdf(run: Run, model: str) -> None:
    assert run(model, "--report", "r.pdf").code == 0
    assert Path("r.pdf").read_bytes().startswith(b"%PDF-")


def test_reports_are_written_where_the_model_is_not(run: Run, model: str) -> None:
    assert run(model, "--verify", "off", "--dry-run", "--report", "r.html").code == 0
    assert files() == ["model.onnx"]


def test_a_terminal_gets_colors_and_its_own_width(model: str, tmp_path: Path) -> None:
    """What is piped is plain: tests/cli/test_optimize.py."""
    del model
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    env.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "surgeon_passes", "optimize", "model.onnx"]
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait() == 0
    text = shown.decode()
    assert re.search(r"\x1b\[32mequal", text), text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", "")
    assert "nodes               2 -> 1" in plain
    assert max(map(len, plain.splitlines())) <= 100

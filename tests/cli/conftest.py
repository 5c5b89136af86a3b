"""Calling the command line inside the test's own folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest
from onnx import parser

from surgeon_passes.cli import main


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Call = Callable[..., Outcome]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """``surgeon-passes`` with some arguments."""
    monkeypatch.chdir(tmp_path)

    def go(*arguments: str) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main(arguments, prog_name="surgeon-passes")
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return Outcome(int(stop.value.code or 0), printed.out, printed.err)

    return go


PLAIN = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,3,H,W] images) => (float[N,2,H,W] y)
<float[2,3,1,1] w = {1,2,3,4,5,6}, float[2] s = {1,2}, float[2] b = {1,2}, float[2] m = {1,2}, float[2] v = {1,2}>
{
    c = Conv (images, w)
    y = BatchNormalization (c, s, b, m, v)
}
"""

Run = Call


@pytest.fixture
def run(call: Call) -> Run:
    """``surgeon-passes optimize`` with some arguments, in a folder of its own."""
    return lambda *arguments: call("optimize", *arguments)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return write(tmp_path, PLAIN)


def write(folder: Path, text: str, name: str = "model.onnx") -> str:
    onnx.save(parser.parse_model(text), folder / name)
    return name


def files() -> list[str]:
    return sorted(os.listdir())


def assert_refused(run: Run, code: int, *arguments: str, says: str, lines: int = 1) -> Outcome:
    """One line on stderr (or ``lines``), nothing on stdout, nothing in the folder that was not there before."""
    before = files()
    outcome = run(*arguments)
    assert outcome.code == code, outcome
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == lines, outcome.err
    assert says in outcome.err
    assert outcome.out == ""
    assert files() == before
    return outcome

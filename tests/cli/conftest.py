"""Calling the command line inside the test's own folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

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

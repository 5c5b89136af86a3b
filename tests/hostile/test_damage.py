"""A thousand files cut short, and a thousand with bits flipped, in a process of their own within bounded memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="bounds of memory and time are Linux's")
def test_damaged_files_end_in_one_line_or_in_a_right_result() -> None:
    command = [sys.executable, "-m", "tests.hostile.damage", "--count", "1000", "--seed", "1"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]  # the last line names the file
    assert "WRONG" not in done.stdout, done.stdout
    rows = [row.strip().split("  ", 1) for row in done.stdout.splitlines()]
    counted = {what: int(times) for times, what in rows}
    assert counted["cut: ModelError"] > 990
    assert sum(times for what, times in counted.items() if what.startswith("cut: ")) == 1000
    assert sum(times for what, times in counted.items() if what.startswith("flipped: ")) == 1000
    assert counted["flipped: result is equal"] > 100 and counted["flipped: result of exit code 0"] > 20
    assert set(counted) <= {
        "cut: ModelError",
        "flipped: ModelError",
        *(
            f"{kind}: result is {status}"
            for kind in ("cut", "flipped")
            for status in ("equal", "inconclusive", "not run")
        ),
        *(f"{kind}: result of exit code {code}" for kind in ("cut", "flipped") for code in (0, 4, 5, 7)),
        next(what for what in counted if what.endswith("at most")),
    }

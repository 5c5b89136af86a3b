"""The command as a process: what it says and leaves behind where foreign code crashes, hangs, prints or raises."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from surgeon_passes import demo
from surgeon_passes.testing import model
from tests.engines.hostile import crashing, endless

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the command is one process")

HERE = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "surgeon_passes")
Start = Callable[..., "subprocess.Popen[str]"]

RULE = '''
from surgeon_passes import Replacement, rule
{at_load}

@rule(pattern="y = Abs(x)", rewrite="y = Abs(x)")
def own(m):
    """Nothing new."""
    {in_rule}
    return Replacement()
'''


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Begin ``surgeon-passes`` with some arguments in the test's folder."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    onnx.save(crashing(), tmp_path / "crashing.onnx")
    onnx.save(endless(), tmp_path / "endless.onnx")
    onnx.save(demo.build(), tmp_path / "demo.onnx")

    def go(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return go


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    assert "Traceback" not in err
    return process.returncode, out, err


def left(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()} - {"crashing.onnx", "endless.onnx", "demo.onnx"}


def test_after_a_crash_the_run_begins_again_with_the_runtime_apart(start: Start, tmp_path: Path) -> None:
    code, out, err = ended(start("optimize", "crashing.onnx", "-o", "out.onnx", "--force"))
    first, *more = err.splitlines()
    assert first.startswith("ONNX Runtime crashed (SIG") and first.endswith("(--isolate)") and not more
    assert code == 5 and out.count("end check") == 1
    assert "not run: the original does not run: ONNX Runtime crashed (SIG" in out
    assert [n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node] == ["BatchNormalization", "Relu", "Abs"]
    assert ended(start("optimize", "crashing.onnx", "--isolate"))[2] == ""
    assert left(tmp_path) == {"out.onnx"}


def test_a_pass_by_itself_survives_a_crash_and_is_told_of_once(start: Start) -> None:
    code, out, err = ended(start("pass", "run", "cleanup", "crashing.onnx", "--repeat", "2"))
    assert code == 5 and err.count("\n") == 1 and err.startswith("ONNX Runtime crashed (SIG")
    assert [line.partition(":")[0] for line in out.splitlines()].count("cleanup, run 1") == 1


def test_after_a_hang_the_run_begins_again_with_the_runtime_apart(start: Start) -> None:
    code, out, err = ended(start("optimize", "endless.onnx", "--timeout", "3"))
    assert err.startswith("ONNX Runtime timed out after 3 s (--timeout): beginning again")
    assert code == 5 and "the original does not run: ONNX Runtime timed out after 3 s" in out


@pytest.mark.parametrize(
    ("at_load", "in_rule", "says"),
    [
        ("while True: pass", "", "own.py timed out after 1.5 s"),
        ("", "sum(range(10**15))", "own.py: own timed out after 1.5 s"),
        ("", "while True: m", "own.py: own timed out after 1.5 s"),
        ("import os; os.abort()", "", "own.py crashed (SIGABRT)"),
        ("raise ValueError('a\\nb')", "", "own.py: ValueError: a b"),
        ("raise SystemExit(0)", "", "own.py: SystemExit: 0"),
        ("", "raise KeyError('odd')", "own.py: own: its function failed at Abs -> 'z': KeyError: 'odd'"),
    ],
)
def test_rules_that_hang_crash_or_raise(start: Start, tmp_path: Path, at_load: str, in_rule: str, says: str) -> None:
    (tmp_path / "own.py").write_text(RULE.format(at_load=at_load, in_rule=in_rule))
    arguments = ("optimize", "crashing.onnx", "--verify", "off", "--rules", "own.py", "-o", "out.onnx")
    code, out, err = ended(start(*arguments, "--timeout", "1.5"))
    assert err.startswith(f"error: {says}") and err.count("\n") == 1, err
    assert (code, out) == (134 if "crashed" in says else 2, "")
    assert left(tmp_path) == {"own.py"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("while True: pass", "the shape function of operator my.domain.Op timed out after 1.5 s"),
        ("raise SystemExit(0)", "a rule, a pass or an operator's function ended the process (exit code 0)"),
    ],
)
def test_operators_that_hang_or_end_the_process(start: Start, tmp_path: Path, body: str, says: str) -> None:
    head = "from surgeon_passes import Operator\n\n\ndef shape(n):\n    "
    (tmp_path / "own.py").write_text(f"{head}{body}\n\n\nOP = Operator('my.domain.Op', inputs='x', shape=shape)\n")
    onnx.save(model("g (float[N] x) => (float[N] y) { a = my.domain.Op(x) y = Relu(a) }"), tmp_path / "endless.onnx")
    arguments = ("optimize", "endless.onnx", "--verify", "off", "--rules", "own.py", "-o", "out.onnx")
    code, out, err = ended(start(*arguments, "--timeout", "1.5"))
    assert err.startswith(f"error: {says}") and err.count("\n") == 1, err
    assert (code, out) == (2, "") and left(tmp_path) == {"own.py"}


def plain(text: str) -> list[str]:
    """Lines, less the rule's file and the time it took."""
    return [row.replace("quiet", "own  ") for row in text.splitlines() if not row.startswith("seconds")]


def test_what_rules_print_is_not_in_what_the_command_says(start: Start, tmp_path: Path) -> None:
    (tmp_path / "quiet.py").write_text(RULE.format(at_load="", in_rule=""))
    (tmp_path / "own.py").write_text(RULE.format(at_load="print('loaded')", in_rule="print('matched')"))
    for command in (("rules", "list", "own", "--rules"), ("optimize", "crashing.onnx", "--verify", "off", "--rules")):
        quiet, loud = (ended(start(*command, f"{name}.py")) for name in ("quiet", "own"))
        assert plain(loud[1]) == plain(quiet[1])
        assert quiet[2] == "" and loud[2].startswith("loaded\n")
        assert ("matched" in loud[2]) == (command[0] == "optimize")


# --- signals -------------------------------------------------------------------------------------------------------------


def test_interrupts_at_fifty_moments_leave_files_intact() -> None:
    """Input and older output stay as they are, or the output is the new one, whole; nothing else lies about."""
    command = [sys.executable, "-m", "tests.cli.moments", "50"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    counted = {words: int(times) for times, words in (row.split(maxsplit=1) for row in done.stdout.splitlines())}
    assert sum(counted.values()) == 50 and counted["as it was, ended"] > 5, counted

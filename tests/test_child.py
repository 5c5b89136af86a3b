"""Processes that answer line by line, and those that do not."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator

import pytest

from surgeon_passes.child import Child, Stopped

ECHO = "tests.echo"


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child(ECHO, {})
    made.begin(60)
    yield made
    made.close()


def test_answers_come_in_order_whatever_libraries_print(child: Child) -> None:
    for text in ("one", "two\nlines"):
        assert child.ask(60, do="echo", text=text) == {"said": text}


def test_memory_is_sampled_while_an_answer_is_waited_for(child: Child) -> None:
    seen: list[tuple[float, dict[str, int]]] = []
    child.ask(60, lambda now, held: seen.append((now, held)), do="echo", text="x")
    times = [now for now, _ in seen]
    assert times and times == sorted(times)


def test_a_wait_may_have_no_end(child: Child) -> None:
    for timeout in (float("inf"), 1e300):
        assert child.ask(timeout, do="echo", text="x") == {"said": "x"}


def test_a_failure_is_one_line_and_the_child_goes_on(child: Child) -> None:
    for command, said in (("fail", "a line of ours"), ("err", "KeyError: 'odd'")):
        with pytest.raises(Stopped, match=said) as stopped:
            child.ask(60, do=command)
        assert stopped.value.status == "failed"
    assert child.ask(60, do="echo", text="still here") == {"said": "still here"}


@pytest.mark.parametrize(
    ("command", "status", "says"),
    [
        ("hang", "timeout", "no result after 0.01 s"),
        ("abort", "crashed", "killed by SIGABRT"),
        ("leave", "crashed", "exit code 3: the last words"),
    ],
)
def test_a_child_that_gives_no_answer(child: Child, command: str, status: str, says: str) -> None:
    with pytest.raises(Stopped) as stopped:
        child.ask(0.01 if command == "hang" else 60, do=command)
    assert (stopped.value.status, str(stopped.value)) == (status, says)


def test_a_dead_child_says_so_again(child: Child) -> None:
    for _ in range(2):
        with pytest.raises(Stopped, match="SIGABRT"):
            child.ask(60, do="abort")


def test_a_child_that_cannot_begin() -> None:
    child = Child(ECHO, {"broken": True})
    with pytest.raises(Stopped, match="KeyError: 'no operator'"):
        child.begin(60)
    child.close()


def test_reasons_are_short() -> None:
    assert str(Stopped("failed", "a\n b")) == "a b"
    assert len(str(Stopped("failed", "long " * 100))) == 160


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_a_child_ends_with_its_parent() -> None:
    """Even if it hangs, and the parent has no time to say so."""
    code = (
        "import os\nfrom surgeon_passes.child import Child\n"
        f"child = Child({ECHO!r}, {{}})\nchild.begin(60)\nprint(child._process.pid, flush=True)\n"
        'child._process.stdin.write(b\'{"do": "hang"}\\n\')\nchild._process.stdin.flush()\nos.kill(os.getpid(), 9)'
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    with contextlib.suppress(ProcessLookupError):  # it may be gone already
        process = os.pidfd_open(int(done.stdout))
        ended, _, _ = select.select([process], [], [], 30)
        os.close(process)
        assert ended

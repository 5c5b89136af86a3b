"""The command's own process: the work is done in a child, which may crash or hang without taking the last word along.

Where ONNX Runtime has ended the child, the work is begun again with it in a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import click

from surgeon_passes import memory, watch
from surgeon_passes.watch import Task, Watch, end_with_parent

RUNTIME = "ONNX Runtime"
LOOKED_EVERY = 0.25
"""Seconds between two looks at what the child does."""
PATIENCE = 5.0
"""Seconds that a child has to unwind after it was asked to end."""

_ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@dataclass(frozen=True)
class Attempt:
    """What the command line is told besides its arguments. ``isolate``: ONNX Runtime has ended the attempt before."""

    isolate: bool = False


Main = Callable[[Attempt], None]


def isolates() -> bool:
    """Whether the command that runs now is the attempt after a crash."""
    found = click.get_current_context().find_object(Attempt)
    return found is not None and found.isolate


def supervise(main: Main) -> int:
    """Exit code of ``main``, which ends with SystemExit, in a child process."""
    if sys.platform != "linux":
        main(Attempt())
        return 0
    shared = Watch()
    ended = _Child(main, Attempt(), shared).wait()
    if not ended.by_itself and ended.task.what == RUNTIME:
        click.echo(f"{RUNTIME} {ended.how}: beginning again, with it in a process of its own (--isolate)", err=True)
        ended = _Child(main, Attempt(isolate=True), shared).wait()
    if not ended.by_itself:
        click.echo(f"error: {ended.task.what or 'the run'} {ended.how}", err=True)
    return ended.code


@dataclass(frozen=True)
class _End:
    code: int
    by_itself: bool
    task: Task
    how: str = ""


class _Child:
    """A fork of this process that does the work. Signals to end are handed on to it."""

    def __init__(self, main: Main, attempt: Attempt, shared: Watch) -> None:
        self._shared, self._asked = shared, 0
        shared.say("")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._ends, write = os.pipe()  # the child's side is closed when it ends
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # none gets lost between two handlers
        self._pid = os.fork()
        if not self._pid:
            os.close(self._ends)
            _work(main, attempt, shared, mask)
        os.close(write)
        self._held = {number: signal.getsignal(number) for number in _ENDING}
        for number, handler in self._held.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, self._hand_on)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def wait(self) -> _End:
        try:
            return self._watched()
        finally:
            os.close(self._ends)
            for number, handler in self._held.items():
                signal.signal(number, handler)

    def _hand_on(self, number: int, _: object) -> None:
        """A terminal sends SIGINT to both: the child takes no notice of the second one."""
        self._asked = number
        self._kill(number)

    def _kill(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)

    def _watched(self) -> _End:
        overdue = ""
        asked_at = 0.0
        task = Task()
        while not select.select([self._ends], [], [], LOOKED_EVERY)[0]:
            before, task = task, self._shared.task()
            asked_at = asked_at or (time.monotonic() if self._asked else 0.0)
            if self._asked and ((task.what and task == before) or time.monotonic() - asked_at > PATIENCE):
                self._kill(signal.SIGKILL)  # foreign code does not come back to unwind; it writes no files
            elif task.is_over and task == before:
                overdue = f"timed out after {task.seconds:g} s (--timeout)"
                self._kill(signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if self._asked and code < 0:
            return _End(128 + self._asked, True, self._shared.task())
        if code >= 0:
            return _End(code, True, self._shared.task())
        how = overdue or f"crashed ({signal.Signals(-code).name})"
        return _End(2 if overdue else 128 - code, False, self._shared.task(), how)


def _work(main: Main, attempt: Attempt, shared: Watch, mask: set[int]) -> None:
    """The child's side. It leaves without tearing down libraries, some of which crash then."""
    end_with_parent()
    memory.bound(memory.total())
    watch.tell(shared)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the command guards itself
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        main(attempt)
        code = 0
    except SystemExit as end:
        code = _exit_code(end)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _exit_code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    click.echo(end.code, err=True)
    return 1

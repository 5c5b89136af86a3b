"""What the commands share: errors as one line and an exit code, and a progress line."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import click

from surgeon_passes import watch
from surgeon_passes.cli.supervise import isolates
from surgeon_passes.errors import ModelError, RuleError, SurgeonError, visible
from surgeon_passes.watch import SECONDS

if TYPE_CHECKING:
    from surgeon_passes.engines import Isolate
    from surgeon_passes.result import Result


class _Unwinding:
    """A request to end the process unwinds it, so that no temporary file is left. Ignored signals stay ignored."""

    _NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
    number = 0
    """the signal that has asked for it, if any"""

    def __enter__(self) -> _Unwinding:
        numbers = [getattr(signal, name) for name in self._NAMES if hasattr(signal, name)]
        ours = (signal.SIG_DFL, signal.default_int_handler)
        is_main = threading.current_thread() is threading.main_thread()  # no other thread may change handlers
        self._held = {n: signal.getsignal(n) for n in numbers if is_main and signal.getsignal(n) in ours}
        for number in self._held:
            signal.signal(number, self._end)
        return self

    def _end(self, number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one must not keep the first from cleaning up
        self.number = number
        raise SystemExit(128 + number)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._held.items():
            signal.signal(number, handler)


def guarded(action: Callable[[], int], debug: bool) -> int:
    """Exit code of ``action``; what bad input causes is one line on stderr, and what a bug causes is, too."""
    unwinding = _Unwinding()
    try:
        with unwinding, _prints_apart():
            return action()
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        if unwinding.number or isinstance(error, KeyboardInterrupt):  # what it meets on its way may change its type
            number = unwinding.number or signal.SIGINT
            if number == signal.SIGINT:
                click.echo("interrupted", err=True)
            return 128 + number
        if isinstance(error, SystemExit):  # nothing of ours asks for it
            error = RuleError(f"a rule, a pass or an operator's function ended the process (exit code {error.code})")
        code = _blamed(error)
        if debug:
            traceback.print_exception(error)
        return code


def _blamed(error: Exception) -> int:
    """Exit code of an error, which is told in one line."""
    if isinstance(error, MemoryError):
        click.echo("error: there is not enough memory for this model", err=True)
        return 6
    if not isinstance(error, SurgeonError):
        text = " ".join(f"{type(error).__name__}: {error}".split())
        click.echo(f"error: {text} (this is a bug of surgeon-passes; --debug shows where)", err=True)
        return 1
    click.echo(f"error: {error}", err=True)
    if isinstance(error, RuleError) and error.details:
        click.echo(error.details, err=True)
    return error.exit_code


def say(text: str, nl: bool = True) -> None:
    """Print what the command is asked for; what a terminal would obey is escaped."""
    try:
        click.echo("\n".join(map(visible, text.split("\n"))), file=_stdout.get(), nl=nl)
    except BrokenPipeError:
        return  # nobody reads on
    except OSError as error:
        raise ModelError(f"standard output cannot be written ({error.strerror or error})") from None


def show(result: Result) -> None:
    """Print the report of a run: laid out for a terminal, plain where it is piped."""
    stream = _stdout.get() or sys.stdout
    if not stream.isatty():
        say(result.report(), nl=False)
        return
    from rich.console import Console

    from surgeon_passes.report.text import show as lay_out

    lay_out(result, Console(file=stream, highlight=False, markup=False, emoji=False))


_stdout: ContextVar[Any] = ContextVar("stdout", default=None)


@contextmanager
def _prints_apart() -> Iterator[None]:
    """What rules and libraries print goes to stderr; stdout is for :func:`say`."""
    token = _stdout.set(sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _stdout.reset(token)


def runtime_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say where ONNX Runtime runs, and what it may take; :func:`isolation` reads them."""
    for option in (
        click.option("--isolate", is_flag=True, help="Keep ONNX Runtime in a process that it may crash."),
        click.option(
            "--timeout",
            type=click.FloatRange(0, min_open=True),
            default=SECONDS,
            show_default=True,
            help="Seconds that one call of ONNX Runtime, or of a rule, may take.",
        ),
        click.option(
            "--memory", metavar="SIZE", help="What ONNX Runtime may take with --isolate.  [default: all that is free]"
        ),
    ):
        command = option(command)
    return command


def isolation(isolate: bool, timeout: float, memory: str | None) -> bool | Isolate:
    """What a run is told. After a crash ONNX Runtime is kept apart without being asked."""
    from surgeon_passes.engines import Isolate

    watch.allow(timeout)
    return Isolate(timeout, memory) if isolate or isolates() else False


FILE = click.Path(readable=False)
"""Whether it can be read is found where it is read: exit code 6, one line."""
CUSTOM_OPS = click.option(
    "--custom-ops",
    multiple=True,
    type=FILE,
    metavar="LIB",
    help="A shared library of custom operators, for the checks.",
)


@contextmanager
def progress_line() -> Iterator[Any]:
    """A progress line on a terminal; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("load", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)

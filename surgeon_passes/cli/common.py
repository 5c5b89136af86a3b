"""What the commands share: errors as one line and an exit code, and a progress line."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from surgeon_passes.errors import RuleError, SurgeonError


@contextmanager
def _unwinding() -> Iterator[None]:
    """A request to end the process unwinds it, so that no temporary file is left. Ignored signals stay ignored."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    is_main = threading.current_thread() is threading.main_thread()  # no other thread may change handlers
    changed = [n for n in numbers if is_main and signal.getsignal(n) is signal.SIG_DFL]
    for number in changed:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


def guarded(action: Callable[[], int], debug: bool) -> int:
    """Exit code of ``action``; what bad input causes is one line on stderr."""
    try:
        with _unwinding():
            return action()
    except SurgeonError as error:
        click.echo(f"error: {error}", err=True)
        if isinstance(error, RuleError) and error.details:
            click.echo(error.details, err=True)
        if debug:
            traceback.print_exc()
        return error.exit_code
    except KeyboardInterrupt:
        click.echo("interrupted; nothing was written", err=True)
        return 130


FILE = click.Path(readable=False)
"""Whether it can be read is found where it is read: exit code 6, one line."""


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

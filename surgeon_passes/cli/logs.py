"""``-v`` and ``--log-level``: what the package logs, on stderr. Without them it says nothing."""

from __future__ import annotations

import logging
from typing import Any

import click

from surgeon_passes.errors import visible

ROOT = "surgeon_passes"
LEVELS = ("debug", "info", "warning", "error")
_ASKED = f"{__name__}.asked"


class _Stderr(logging.Handler):
    """One line a record, with what a terminal would obey escaped; stderr is looked up anew each time."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = visible(" ".join(record.getMessage().split()))
            click.echo(f"{record.levelname.lower()}: {record.name.removeprefix(ROOT + '.')}: {text}", err=True)
        except Exception:
            self.handleError(record)


def _louder(context: click.Context, level: int) -> None:
    """The most that was asked for, before or behind the command's name, holds."""
    held = context.find_root().meta
    held[_ASKED] = min(level, held.get(_ASKED, level))
    logger = logging.getLogger(ROOT)
    logger.handlers = [h for h in logger.handlers if not isinstance(h, _Stderr)] + [_Stderr()]
    logger.setLevel(held[_ASKED])


def _verbose(context: click.Context, _: click.Parameter, times: int) -> None:
    if times:
        _louder(context, logging.INFO if times == 1 else logging.DEBUG)


def _level(context: click.Context, _: click.Parameter, name: str | None) -> None:
    if name is not None:
        _louder(context, getattr(logging, name.upper()))


def with_logs(command: click.Command) -> click.Command:
    """The options on ``command`` and all that stand below it."""
    parts: list[Any] = list(command.commands.values()) if isinstance(command, click.Group) else []
    command.params += [
        click.Option(
            ["-v", "--verbose"],
            count=True,
            expose_value=False,
            callback=_verbose,
            help="Log what is done on stderr; -vv in detail.",
        ),
        click.Option(
            ["--log-level"],
            type=click.Choice(LEVELS),
            expose_value=False,
            callback=_level,
            help="The same, by the name of the least level.",
        ),
    ]
    for part in parts:
        with_logs(part)
    return command

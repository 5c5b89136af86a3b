"""Everything that bad input can cause.

A :class:`SurgeonError` carries one line for a person: what is wrong, where (file, node, tensor), and the mend. Any
other exception that leaves the package is a bug.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SurgeonError(Exception):
    """Base class; ``str(error)`` is one line."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(visible(" ".join(message.split())))


class ModelError(SurgeonError):
    """A file cannot be read or written, or is not a valid model."""

    exit_code = 6


class RuntimeFailure(SurgeonError):
    """ONNX Runtime refused a model or a run. ``code`` is its error code, such as NOT_IMPLEMENTED, or "".

    CRASHED and TIMED_OUT are ours: the process in which it ran did not survive. Other inputs are then not tried.
    """

    exit_code = 5

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_fatal(self) -> bool:
        return self.code in ("CRASHED", "TIMED_OUT")


class UsageError(SurgeonError):
    """An option, an input name or rank, or a pipeline file is wrong."""


class RuleError(SurgeonError):
    """A rule's definition is wrong. ``str(error)`` is one line; ``details`` adds the source line and a caret."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class OperatorError(SurgeonError):
    """What is said of a custom operator does not fit together."""


class ContradictionError(ModelError):
    """Shape inference and the shape evaluator disagree about a node: one of them is wrong, so nothing is done."""


def visible(text: str) -> str:
    """``text`` with escapes in the place of what does not print: names out of a file may hold anything."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """`` (did you mean 'strides'?)``, or nothing where no candidate is near."""
    names = sorted(set(candidates) - {""})
    near = [name for name in names if name.lower() == word.lower()] or difflib.get_close_matches(word, names, n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""

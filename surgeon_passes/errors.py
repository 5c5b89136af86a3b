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
        super().__init__(" ".join(message.split()))


class ModelError(SurgeonError):
    """A file cannot be read or written, or is not a valid model."""

    exit_code = 6


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


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """`` (did you mean 'strides'?)``, or nothing where no candidate is near."""
    names = sorted(set(candidates) - {""})
    near = [name for name in names if name.lower() == word.lower()] or difflib.get_close_matches(word, names, n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""

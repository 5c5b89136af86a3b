"""What passes there are, and one of them by name."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from surgeon_passes.errors import UsageError, did_you_mean
from surgeon_passes.passes import PASSES, ConvertOpset, Pass
from surgeon_passes.passes.specialize import Shape, Specialize


def summary(kind: type[Pass]) -> str:
    """One line: how the pass's docstring begins."""
    return re.split(r"[:.](?:\s|$)", " ".join((kind.__doc__ or "").split()), maxsplit=1)[0]


def options(kind: type[Pass]) -> dict[str, str]:
    """The fields of a pass and their defaults, as text."""
    found = {}
    for field in dataclasses.fields(kind):
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        found[field.name] = "()" if default == () else str(default) if not isinstance(default, str) else repr(default)
    return found


def find_pass(name: str) -> type[Pass]:
    """Raises UsageError for an unknown name."""
    for kind in PASSES:
        if kind.name == name:
            return kind
    names = [kind.name for kind in PASSES]
    raise UsageError(f"no pass is called '{name}'{did_you_mean(name, names)} (passes: {', '.join(names)})")


def with_requirements(
    name: str, shapes: Mapping[str, Shape] | None = None, opset: int | None = None
) -> tuple[list[Pass], Pass]:
    """(passes that have to run before, the pass), with their defaults; ``shapes`` are for Specialize, ``opset`` for
    ConvertOpset."""
    wanted = find_pass(name)
    before: list[type[Pass]] = []
    todo = list(wanted.requires)
    while todo:
        kind = find_pass(todo.pop(0))
        if kind not in before:
            before.insert(0, kind)
            todo += kind.requires
    first: list[Pass] = [Specialize(shapes)] if shapes and wanted is not Specialize else []
    return [*first, *(kind() for kind in before)], _made(wanted, shapes, opset)


def _made(kind: type[Pass], shapes: Mapping[str, Shape] | None, opset: int | None) -> Pass:
    arguments: dict[str, Any] = {"shapes": shapes} if kind is Specialize and shapes else {}
    if kind is ConvertOpset and opset is not None:
        arguments = {"version": opset}
    return kind(**arguments)

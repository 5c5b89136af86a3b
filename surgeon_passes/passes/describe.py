"""What a pass is for, its options, and what it needs before it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from surgeon_passes.passes.base import Pass
from surgeon_passes.passes.registry import find_pass
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


def with_requirements(step: Pass, shapes: Mapping[str, Shape] | None = None) -> list[Pass]:
    """The passes that have to run before ``step``, with their defaults: Specialize too, where there are ``shapes``."""
    before: list[type[Pass]] = []
    todo = list(step.requires)
    while todo:
        kind = find_pass(todo.pop(0))
        if kind not in before:
            before.insert(0, kind)
            todo += kind.requires
    first: list[Pass] = [Specialize(shapes)] if shapes and not isinstance(step, Specialize) else []
    return [*first, *(kind() for kind in before)]

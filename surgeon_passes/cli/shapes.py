"""``-i``: shapes of inputs as they are written on the command line."""

from __future__ import annotations

from collections import Counter
from typing import Any

from surgeon_passes.errors import UsageError


def parse_shape(text: str) -> tuple[str, list[int] | dict[str, int]]:
    """``images=1,3,640,640`` or ``images=N:1,H:640``; the last ``=`` separates, names may hold ``:`` and ``=``."""
    name, equals, sizes = text.rpartition("=")
    if not equals or not name or not sizes:
        raise UsageError(f"-i {text}: write NAME=1,3,640,640 or NAME=N:1,H:640")
    parts = [part.strip() for part in sizes.split(",")]
    try:
        if any(":" in part for part in parts):
            pairs = [part.rpartition(":") for part in parts]
            if not all(dim for dim, _, _ in pairs):
                raise UsageError(f"-i {text}: mixes dim names and plain sizes; give a name to each, or to none")
            twice = [dim for dim, number in Counter(dim for dim, _, _ in pairs).items() if number > 1]
            if twice:
                raise UsageError(f"-i {text}: dim '{twice[0]}' is given twice")
            return name, {dim: int(size) for dim, _, size in pairs}
        return name, [int(part) for part in parts]
    except ValueError:
        raise UsageError(f"-i {text}: sizes are whole numbers, as in NAME=1,3,640,640 or NAME=N:1,H:640") from None


def parse_shapes(texts: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, sizes = parse_shape(text)
        if name in found:
            raise UsageError(f"-i {text}: input '{name}' is given twice")
        found[name] = sizes
    return found

"""What a pass is: a frozen dataclass whose fields are its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from surgeon_passes.errors import UsageError
from surgeon_passes.passes.state import State


@dataclass(frozen=True)
class Pass:
    """``run`` changes the state's graph through its rewriter and says whether it changed anything."""

    name: ClassVar[str] = "pass"
    once: ClassVar[bool] = False
    """runs before the fixpoint, not in it"""
    last: ClassVar[bool] = False
    """runs once behind the fixpoint"""
    requires: ClassVar[tuple[str, ...]] = ()
    """names of the passes without which this one finds little: they run first where it is run by itself"""
    makes: ClassVar[tuple[str, ...]] = ()
    """names under which the report shows the edits that the pass makes by itself"""

    @classmethod
    def of(cls, **options: Any) -> Self:
        """The pass with these values of its fields; those of a file are lists where fields are tuples."""
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in options.items()})

    def run(self, state: State) -> bool:
        raise NotImplementedError(type(self).__name__)


def parse_bytes(size: int | str) -> int:
    """Bytes of 4096, "64KiB", "1MiB", "2GB". Raises UsageError for anything else."""
    try:
        found = size if isinstance(size, int) else _parse(size.strip())
        if found < 0:
            raise ValueError(size)
        return found
    except (ValueError, OverflowError):
        raise UsageError(f"max_bytes is '{size}', not a number of bytes such as 4096, 64KiB or 1MiB") from None


def _parse(text: str) -> int:
    units = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    for unit in sorted(units, key=len, reverse=True):
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * units[unit])
    return int(text)

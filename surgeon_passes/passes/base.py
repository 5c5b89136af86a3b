"""What a pass is: a frozen dataclass whose fields are its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from surgeon_passes.passes.state import State

OBJECTS = "objects"
"""In the metadata of a pass's field: it holds objects that text cannot give, rules say."""


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

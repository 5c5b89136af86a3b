"""Tables that a terminal can be trusted with."""

from __future__ import annotations

from typing import Any

from rich import table

from surgeon_passes.errors import visible


class Table(table.Table):
    """Names of a model may hold line breaks, and what a terminal would obey."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*(visible(c) if isinstance(c, str) else c for c in cells), **options)

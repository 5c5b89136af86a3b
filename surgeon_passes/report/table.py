"""Tables that a terminal can be trusted with."""

from __future__ import annotations

import re
from typing import Any

from rich import table
from rich.text import Text

from surgeon_passes.errors import visible

STYLES = {
    "equal": "green",
    "verified": "green",
    "inconclusive": "yellow",
    "unverified": "yellow",
    "warning": "yellow",
    "different": "red",
    "refuted": "red",
}
"""On a terminal that has colors, by the first word of a cell."""


class Table(table.Table):
    """Names of a model may hold line breaks, what a terminal would obey, and what rich would replace."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*(_cell(c) if isinstance(c, str) else c for c in cells), **options)


def _cell(text: str) -> Text:
    """As text, not as a string, in which rich would replace ``:name:``."""
    return Text(visible(text), style=STYLES.get(re.split(r"[ ,:]", text, maxsplit=1)[0], ""))

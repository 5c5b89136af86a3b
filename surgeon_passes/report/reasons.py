"""Reasons that differ only in what they are about, told as one."""

from __future__ import annotations

import re


def kind_of(reason: str) -> str:
    """A reason without the names, shapes and so on that differ from place to place."""
    return re.sub(r"'[^']*'", "'…'", re.sub(r"\[[^\[\]]*\]|\([\d, ]*\)", "[…]", reason))

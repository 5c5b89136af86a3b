"""Fields of protobuf messages, whatever the message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def copy_fields(source: Any, target: Any, wanted: Callable[[Any], bool]) -> None:
    """Add to ``target`` the fields that ``source`` has and whose descriptor (``name``, ``number``) is wanted."""
    for descriptor, value in source.ListFields():
        if not wanted(descriptor):
            continue
        held = getattr(target, descriptor.name)
        if hasattr(held, "MergeFrom"):
            held.MergeFrom(value)
        else:
            setattr(target, descriptor.name, value)

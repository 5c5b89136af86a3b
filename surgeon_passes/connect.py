"""Things that share something belong together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def connected_by(items: Sequence[T], keys: Callable[[T], Iterable[Hashable]]) -> list[list[T]]:
    """``items`` grouped by shared keys (union-find), each group, and the groups by their first members, in order."""
    parent = list(range(len(items)))

    def find(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    owner: dict[Hashable, int] = {}
    for number, item in enumerate(items):
        for key in keys(item):
            if key in owner:
                parent[find(number)] = find(owner[key])
            owner[key] = find(number)
    groups: dict[int, list[T]] = {}
    for number, item in enumerate(items):
        groups.setdefault(find(number), []).append(item)
    return list(groups.values())

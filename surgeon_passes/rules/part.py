"""What a rewrite does for one match: the groups of leaves of one sum are parts of one edit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import onnx_graphsurgeon as gs

from surgeon_passes.ops.cost import Cost
from surgeon_passes.rules.emit import Emitter
from surgeon_passes.rules.match import Match
from surgeon_passes.rules.rule import Replacement


@dataclass(eq=False)
class Part:
    """``removed`` goes, ``emitter`` holds what comes; ``before`` is what the former cost."""

    match: Match
    replacement: Replacement
    removed: tuple[gs.Node, ...]
    emitter: Emitter
    before: Cost

    @property
    def added(self) -> list[gs.Node]:
        return self.emitter.done.nodes

    def taken(self) -> Iterator[gs.Tensor]:
        """The leaves that this part merges."""
        left = {id(leaf) for leaf in self.replacement.leave}
        for group in self.match.leaf_groups.values():
            yield from (leaf.leaf for leaf in group if id(leaf) not in left)


class Rest:
    """The leaves that no part has taken yet, in order, with repeats."""

    def __init__(self, leaves: Sequence[gs.Tensor]) -> None:
        self.leaves = leaves
        self.count = Counter(map(id, leaves))

    def take(self, part: Part) -> bool:
        """Give the part its leaves; False where another has one of them."""
        wanted = Counter(map(id, part.taken()))
        if any(self.count[key] < number for key, number in wanted.items()):
            return False
        self.count -= wanted
        return True

    def left(self) -> Iterator[gs.Tensor]:
        count = self.count.copy()
        for tensor in self.leaves:
            if count[id(tensor)]:
                count[id(tensor)] -= 1
                yield tensor


def matched(parts: Iterable[Part]) -> tuple[gs.Node, ...]:
    return tuple({id(n): n for part in parts for n in part.match.matched}.values())


def identity(parts: Iterable[Part]) -> frozenset[int]:
    """What the edit is known by: the ids of all nodes that matched."""
    return frozenset(id(n) for part in parts for n in part.match.matched)

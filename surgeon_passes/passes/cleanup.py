"""What nobody uses goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from surgeon_passes.passes.base import Pass
from surgeon_passes.passes.state import State, remove_dead


@dataclass(frozen=True)
class Cleanup(Pass):
    """Dead nodes; constants and functions that nothing reads or calls any more."""

    name: ClassVar[str] = "cleanup"

    def run(self, state: State) -> bool:
        removed = remove_dead(state)
        for extras in state.model.extras.graphs.values():
            extras.unread.clear()  # no other pass can see them: that they go is no reason for another round
        called = {(n.domain or "", n.op) for n in state.index.nodes()}
        held = _guarded(state)
        kept = [f for f in state.graph.functions if (f.domain or "", f.name) in called or id(f) in held]
        dropped = len(state.graph.functions) - len(kept)
        if dropped:
            state.graph.functions = kept
            state.index.drop_functions({id(f) for f in kept})
        return bool(removed or dropped)


def _guarded(state: State) -> set[int]:
    """Ids of the functions in which something has to stay."""
    index = state.index
    functions = [s for s in index.scopes if s.is_function and s.parent is None]
    return {id(s.graph) for s in functions if any(state.guard.reason(n, index) for n in index.scope_nodes(s))}

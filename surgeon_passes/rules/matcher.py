"""The generic matcher: one pattern, anchored at one node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import onnx_graphsurgeon as gs

from surgeon_passes.rules.goals import Bindings, Define, Finish, Miss
from surgeon_passes.rules.machine import Machine
from surgeon_passes.rules.match import Context, Match
from surgeon_passes.rules.pattern import Pattern, Span

MAX_NAMED = 32
"""Nodes of a near-match that are kept for the report."""


class Matcher:
    """Matches one pattern. :attr:`miss` tells, after a call that found nothing, where the best attempt stopped."""

    def __init__(self, pattern: Pattern, context: Context) -> None:
        self.pattern = pattern
        self.context = context
        self.index = context.index
        self.facts = pattern.facts
        self.miss = Miss()

    def may_match(self, root: gs.Node) -> bool:
        """Whether the pattern's screen lets the root through; where not, :meth:`matches` gives nothing."""
        return self.facts.screen(root, self.context)

    def matches(self, root: gs.Node) -> Iterator[Match]:
        """Every way in which the pattern fits with its root at ``root``, best first."""
        self.miss = Miss()
        for state in self.states(root):
            names, nodes = {**self.facts.unbound, **state.names}, dict(state.nodes)
            matched = tuple(state.matched.values())
            yield Match(
                root,
                names,
                nodes,
                self.context,
                dict(state.leaves),
                matched,
                state.leftovers,
                self.facts.join,
                dict(state.siblings),
            )

    def states(self, root: gs.Node) -> Iterator[Bindings]:
        machine = Machine(self, root, self.facts.made_by)
        single = self.facts.single_calls
        if single:
            return machine.run_single(self.pattern.root, single, root)
        return machine.run((Define(self.pattern.root, root), (Finish(), None)))

    def note(self, matched: Mapping[int, gs.Node], span: Span, reason: str) -> None:
        if matched and len(matched) >= self.miss.reach:
            self.miss = Miss(tuple(islice(matched.values(), MAX_NAMED)), span, reason, len(matched))

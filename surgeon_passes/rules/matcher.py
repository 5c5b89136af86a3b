"""The generic matcher: one pattern, anchored at one node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import onnx_graphsurgeon as gs

from surgeon_passes.rules import flat
from surgeon_passes.rules.goals import Define, Finish, Miss
from surgeon_passes.rules.machine import Machine
from surgeon_passes.rules.match import Context, Match
from surgeon_passes.rules.pattern import (
    Alternatives,
    Call,
    Flat,
    NameRef,
    OpId,
    Pattern,
    Span,
    TemplateUse,
    Value,
)
from surgeon_passes.rules.prefilter import Prefilter

MAX_NAMED = 32
"""Nodes of a near-match that are kept for the report."""


def root_operators(pattern: Pattern) -> frozenset[OpId]:
    """Operators that the root may be."""
    found: set[OpId] = set()
    todo: list[Value] = [pattern.root.value]
    while todo:
        value = todo.pop()
        if isinstance(value, Call):
            found.update(value.ops)
        elif isinstance(value, Flat):
            found.update(OpId("", op) for op in flat.OPERATORS[value.kind])
        elif isinstance(value, Alternatives):
            todo.extend(value.options)
    return frozenset(found)


def bound_names(pattern: Pattern) -> set[str]:
    """Every tensor name that the pattern may bind outside templates; an alternative not taken leaves its own None."""
    found = {output.name for d in pattern.definitions for output in d.outputs}
    todo: list[Any] = [d.value for d in pattern.definitions]
    while todo:
        value = todo.pop()
        if isinstance(value, NameRef):
            found.add(value.name)
        elif isinstance(value, (Call, Flat)):
            todo.extend(value.args)
        elif isinstance(value, Alternatives):
            todo.extend(value.options)
        elif isinstance(value, TemplateUse):
            found.update(value.params)
    return found - {""}


def _uses(pattern: Pattern) -> Counter[str]:
    """How often each name is read."""
    found: Counter[str] = Counter()
    todo: list[Any] = [d.value for d in pattern.definitions]
    todo += [option for template in pattern.templates.values() for option in template.options]
    while todo:
        value = todo.pop()
        if isinstance(value, NameRef):
            found[value.name] += 1
        elif isinstance(value, (Call, Flat)):
            todo.extend(value.args)
        elif isinstance(value, Alternatives):
            todo.extend(value.options)
        elif isinstance(value, TemplateUse):
            found.update({name: 2 for name in value.params})
    return found


class Matcher:
    """Matches one pattern. :attr:`miss` tells, after a call that found nothing, where the best attempt stopped.

    ``quick`` leaves roots out at which nothing but the root could match; of those :attr:`miss` then tells nothing.
    """

    def __init__(self, pattern: Pattern, context: Context, quick: bool = False) -> None:
        self.pattern = pattern
        self.context = context
        self.index = context.index
        self.made_by = {name.name: d for d in pattern.definitions for name in d.outputs}
        self.uses = _uses(pattern)
        self.unbound = dict.fromkeys(bound_names(pattern))
        self.prefilter = Prefilter(pattern, self.made_by, self.index) if quick else None
        self.miss = Miss()

    def matches(self, root: gs.Node) -> Iterator[Match]:
        """Every way in which the pattern fits with its root at ``root``, best first."""
        self.miss = Miss()
        if self.prefilter is not None and not self.prefilter.passes(self.context.view(root)):
            return
        machine = Machine(self, root, self.made_by)
        for state in machine.run((Define(self.pattern.root, root), (Finish(), None))):
            join = "Add"
            if isinstance(self.pattern.root.value, Flat):
                join = flat.JOIN[self.pattern.root.value.kind]
            matched = tuple(state.matched.values())
            names, nodes = {**self.unbound, **state.names}, dict(state.nodes)
            yield Match(
                root, names, nodes, self.context, dict(state.leaves), matched, state.leftovers, join
            )  # fmt: skip

    def note(self, matched: Mapping[int, gs.Node], span: Span, reason: str) -> None:
        if matched and len(matched) >= self.miss.reach:
            self.miss = Miss(tuple(islice(matched.values(), MAX_NAMED)), span, reason, len(matched))

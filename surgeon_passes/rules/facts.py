"""What a pattern says by itself, read off once: its names, its possible roots, and what must stand before a root."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from surgeon_passes.index import GraphIndex
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.ops.traits import COMMUTATIVE
from surgeon_passes.ops.view import NodeView
from surgeon_passes.rules import flat
from surgeon_passes.rules.pattern import (
    Alternatives,
    Call,
    Definition,
    Flat,
    NameRef,
    OpId,
    Pattern,
    TemplateUse,
    Value,
)


class Argument(NamedTuple):
    """Operators that may make an operand as part of a match, and whether one of them must."""

    makers: frozenset[OpId]
    is_required: bool


class PatternFacts:
    """Of one pattern. ``roots``: operators that the root may be; ``made_by``: definitions by name; ``uses``: how often each
    name is read; ``unbound``: None for each tensor name that the pattern may bind."""

    def __init__(self, pattern: Pattern) -> None:
        self.roots = _root_operators(pattern)
        self.made_by = {name.name: d for d in pattern.definitions for name in d.outputs}
        self.uses = _uses(pattern)
        self.unbound = dict.fromkeys(_bound_names(pattern))
        root = pattern.root.value
        args = root.args if isinstance(root, Call) else ()
        self._arguments = tuple(_argument(arg, self.made_by) for arg in args)
        self._makers = frozenset[OpId]().union(*(a.makers for a in self._arguments))
        has_rest = any(isinstance(arg, NameRef) and arg.variadic for arg in args)
        self._is_open = has_rest or not any(a.is_required for a in self._arguments)

    def may_match(self, root: NodeView, index: GraphIndex) -> bool:
        """Whether the pattern can match more than the root itself: where not, no match is lost, and no near-match.

        Where something fits, what is missing is the matcher's to tell. Always for a pattern whose root is no call with an
        operand that an operator must make.
        """
        if self._is_open:
            return True
        made = [_maker(root, k, index) for k in range(len(root.inputs))]
        if root.op in COMMUTATIVE:
            return not self._makers.isdisjoint(made)
        return any(maker in a.makers for a, maker in zip(self._arguments, made, strict=False))


def _root_operators(pattern: Pattern) -> frozenset[OpId]:
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


def _bound_names(pattern: Pattern) -> set[str]:
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


def _maker(view: NodeView, position: int, index: GraphIndex) -> OpId | None:
    tensor = view.inputs[position]
    node = index.producer(tensor) if tensor is not None else None
    return None if node is None else OpId(domain_of(node.domain), node.op)


def _argument(value: Value, made_by: Mapping[str, Definition]) -> Argument:
    if isinstance(value, Call):
        return Argument(frozenset(value.ops), True)
    if isinstance(value, Flat):
        return Argument(frozenset(OpId("", op) for op in flat.OPERATORS[value.kind]), True)
    if isinstance(value, Alternatives):
        options = [_argument(option, made_by) for option in value.options]
        makers = frozenset[OpId]().union(*(option.makers for option in options))
        return Argument(makers, all(option.is_required for option in options))
    if isinstance(value, NameRef) and value.name in made_by:
        inner = _argument(made_by[value.name].value, made_by)
        return Argument(inner.makers, inner.is_required and not value.optional)
    return Argument(frozenset(), False)

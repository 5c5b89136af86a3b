"""What a pattern says by itself, read off once: its names, its possible roots, and the screen of a root."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from surgeon_passes.rules import flat
from surgeon_passes.rules.pattern import (
    Alternatives,
    Call,
    Flat,
    Literal,
    NameRef,
    OpId,
    Pattern,
    TemplateUse,
    Value,
)
from surgeon_passes.rules.roots import RootOperands
from surgeon_passes.rules.screen import NodeScreen, screen_of


class PatternFacts:
    """Of one pattern. ``roots``: operators that the root may be; ``made_by``: definitions by name; ``uses``: how often each
    name is read; ``unbound``: None for each tensor name that the pattern may bind; ``join``: what puts a flat root together;
    ``single_calls``: the root's, where the pattern is one call, or alternatives of one, on names and literals."""

    def __init__(self, pattern: Pattern) -> None:
        self.roots = _root_operators(pattern)
        self.made_by = {name.name: d for d in pattern.definitions for name in d.outputs if name.name}
        self.uses = _uses(pattern)
        self.unbound = dict.fromkeys(_bound_names(pattern))
        root = pattern.root.value
        self.join = flat.JOIN[root.kind] if isinstance(root, Flat) else "Add"
        self.single_calls = _single_calls(pattern)
        self._pattern = pattern

    @cached_property
    def operators(self) -> frozenset[OpId]:
        """Every operator that the pattern names."""
        return frozenset(op for value in _values(self._pattern) for op in _named(value))

    @cached_property
    def root_operands(self) -> RootOperands:
        """What the operands of the root may be."""
        return RootOperands(self._pattern, self.made_by)

    @cached_property
    def screen(self) -> NodeScreen:
        """Whether the pattern may fit with its root at a node."""
        return screen_of(self._pattern, self.made_by)


def _single_calls(pattern: Pattern) -> tuple[Call, ...]:
    root = pattern.root.value
    options = root.options if isinstance(root, Alternatives) else (root,)
    calls = tuple(option for option in options if isinstance(option, Call))
    args = [arg for call in calls for arg in call.args]
    is_single = len(pattern.definitions) == 1 and len(calls) == len(options)
    return calls if is_single and all(isinstance(arg, (NameRef, Literal)) for arg in args) else ()


def _named(value: Any) -> Iterable[OpId]:
    if isinstance(value, Call):
        return value.ops
    return [OpId("", op) for op in flat.OPERATORS[value.kind]] if isinstance(value, Flat) else ()


def _values(pattern: Pattern) -> Iterator[Any]:
    """Every value of a pattern, templates included."""
    todo: list[Any] = [d.value for d in pattern.definitions]
    todo += [option for template in pattern.templates.values() for option in template.options]
    while todo:
        value = todo.pop()
        yield value
        if isinstance(value, (Call, Flat)):
            todo.extend(value.args)
        elif isinstance(value, Alternatives):
            todo.extend(value.options)


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

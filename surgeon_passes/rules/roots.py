"""Which roots a pattern may have, by their operators and operands: one answer for all places that look alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations

import onnx_graphsurgeon as gs

from surgeon_passes.index import GraphIndex
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.ops.view import NodeView
from surgeon_passes.rules import flat
from surgeon_passes.rules.goals import is_permuted, is_rest
from surgeon_passes.rules.pattern import (
    Alternatives,
    Call,
    Definition,
    Flat,
    Literal,
    NameRef,
    Pattern,
    TemplateUse,
    Value,
)

MISSING, INPUT, CONSTANT = "missing", "input", "constant"
"""What an operand is where no node makes it."""


def operand_kinds(view: NodeView, index: GraphIndex) -> tuple[str, ...]:
    """Of each operand: the operator that makes it (with its domain, where it has one), or what else it is."""
    return tuple([_kind(tensor, index) for tensor in view.inputs])


def _kind(tensor: gs.Tensor | None, index: GraphIndex) -> str:
    if tensor is None:
        return MISSING
    node = index.producer(tensor)
    if node is None:
        return CONSTANT if isinstance(tensor, gs.Constant) else INPUT
    domain = domain_of(node.domain)
    return f"{domain}.{node.op}" if domain else str(node.op)


class RootOperands:
    """What the operands of a pattern's root may be."""

    def __init__(self, pattern: Pattern, definitions: Mapping[str, Definition]) -> None:
        self._definitions = definitions
        root = pattern.root.value
        options = root.options if isinstance(root, Alternatives) else (root,)
        calls = [option for option in options if isinstance(option, Call)]
        self._is_open = len(calls) < len(options)
        self._calls = [
            (
                frozenset(op.name for op in call.ops),
                [self._kinds(a) for a in call.args if not is_rest(a)],
                any(map(is_rest, call.args)),
            )
            for call in calls
        ]

    def fit(self, root: NodeView, kinds: Sequence[str]) -> bool:
        """Whether a root with such operands can match; always for a pattern whose root may be no call."""
        return self._is_open or any(
            root.op in names and _fit(root, kinds, accepted, has_rest) for names, accepted, has_rest in self._calls
        )

    def _kinds(self, value: Value | TemplateUse) -> _Kinds:
        if isinstance(value, Call):
            return _Kinds(frozenset(f"{op.domain}.{op.name}" if op.domain else op.name for op in value.ops))
        if isinstance(value, Flat):
            return _Kinds(flat.OPERATORS[value.kind])
        if isinstance(value, Alternatives):
            options = [self._kinds(option) for option in value.options]
            return _Kinds(frozenset[str]().union(*(o.named for o in options)), any(o.is_made for o in options))
        if isinstance(value, Literal):
            return _Kinds(frozenset({MISSING} if value.value == "" else {CONSTANT}), value.value != "")
        assert isinstance(value, NameRef)
        return self._name_kinds(value)

    def _name_kinds(self, ref: NameRef) -> _Kinds:
        missing = {MISSING} if ref.optional else set()
        definition = self._definitions.get(ref.name)
        if definition is not None:
            inner = self._kinds(definition.value)
            return _Kinds(inner.named | missing, inner.is_made)
        held = {CONSTANT} if ref.kind == "const" else {CONSTANT, INPUT}
        return _Kinds(frozenset(held | missing), True)


def _fit(root: NodeView, kinds: Sequence[str], accepted: Sequence[_Kinds], has_rest: bool) -> bool:
    if len(kinds) < len(accepted) if has_rest else len(kinds) > len(accepted):
        return False
    given = (*kinds, *[MISSING] * (len(accepted) - len(kinds)))
    if has_rest or not is_permuted(root, len(accepted)):
        return _each(given, accepted)
    return any(_each(order, accepted) for order in permutations(given))


def _each(kinds: Iterable[str], accepted: Iterable[_Kinds]) -> bool:
    return all(kind in kinds_of_one for kind, kinds_of_one in zip(kinds, accepted, strict=False))


class _Kinds:
    """A set of kinds of operands; ``is_made``: what any node makes is in it (its value may be known)."""

    def __init__(self, named: frozenset[str], is_made: bool = False) -> None:
        self.named = named
        self.is_made = is_made

    def __contains__(self, kind: str) -> bool:
        return kind in self.named or (self.is_made and kind not in (MISSING, INPUT, CONSTANT))

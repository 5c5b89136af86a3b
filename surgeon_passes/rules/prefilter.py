"""What the operands of a root must be made by: most roots are ruled out without a match being tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from surgeon_passes.index import GraphIndex
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.ops.traits import COMMUTATIVE
from surgeon_passes.ops.view import NodeView
from surgeon_passes.rules import flat
from surgeon_passes.rules.pattern import Alternatives, Call, Definition, Flat, NameRef, OpId, Pattern, Value


class Argument(NamedTuple):
    """Operators that may make an operand as part of a match, and whether one of them must."""

    makers: frozenset[OpId]
    is_required: bool


class Prefilter:
    """Tells roots at which a pattern can match no node but the root itself: no match is lost, and no near-match.

    Only for a pattern whose root is a call with an operand that an operator must make; others always pass.
    """

    def __init__(self, pattern: Pattern, made_by: Mapping[str, Definition], index: GraphIndex) -> None:
        self.index = index
        root = pattern.root.value
        args = root.args if isinstance(root, Call) else ()
        self.arguments = tuple(_argument(arg, made_by) for arg in args)
        self.makers = frozenset[OpId]().union(*(a.makers for a in self.arguments))
        has_rest = any(isinstance(arg, NameRef) and arg.variadic for arg in args)
        self.is_open = has_rest or not any(a.is_required for a in self.arguments)

    def passes(self, view: NodeView) -> bool:
        """Whether a match at this root is worth trying. What is missing where something fits is the matcher's to tell."""
        if self.is_open:
            return True
        made = [self._maker(view, k) for k in range(len(view.inputs))]
        if view.op in COMMUTATIVE:
            return not self.makers.isdisjoint(made)
        return any(maker in a.makers for a, maker in zip(self.arguments, made, strict=False))

    def _maker(self, view: NodeView, position: int) -> OpId | None:
        tensor = view.inputs[position]
        node = self.index.producer(tensor) if tensor is not None else None
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

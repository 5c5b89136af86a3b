"""What must hold around a root for a pattern to fit there, as far up as the pattern goes; compiled once from the pattern.

Most places are ruled out by who makes an operand, some nodes up. A screen asks only that: it binds nothing, and never rules
out what the matcher would match. (:mod:`surgeon_passes.rules.roots` asks before, of the root's operands alone.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import permutations
from typing import TypeAlias

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.ops.schema import domain_of
from surgeon_passes.ops.view import CallerAttribute, NodeView
from surgeon_passes.rules import flat
from surgeon_passes.rules.goals import is_permuted, is_rest
from surgeon_passes.rules.literals import equals
from surgeon_passes.rules.match import Context
from surgeon_passes.rules.pattern import (
    Alternatives,
    Call,
    Definition,
    Flat,
    Literal,
    NameRef,
    Pattern,
    Template,
    TemplateUse,
    Value,
)

NodeScreen: TypeAlias = Callable[[gs.Node, Context], bool]
OperandsScreen: TypeAlias = Callable[[NodeView, Context], bool]
OperandScreen: TypeAlias = Callable[["gs.Tensor | None", Context], bool]


def screen_of(pattern: Pattern, definitions: Mapping[str, Definition]) -> NodeScreen:
    """Whether the pattern may fit with its root at a node. ``definitions`` are the pattern's, by name of a result."""
    return _Compiler(pattern, definitions).root()


class _Compiler:
    def __init__(self, pattern: Pattern, definitions: Mapping[str, Definition]) -> None:
        self.pattern = pattern
        self.definitions = definitions
        self.screens: dict[str, OperandScreen | None] = {}

    def root(self) -> NodeScreen:
        value = self.pattern.root.value
        if isinstance(value, Call):
            return self.call(value)
        if isinstance(value, Flat):
            return self.flat(value, is_root=True)
        operand = self.operand(value)
        if operand is None:
            return lambda node, context: True
        return lambda node, context: operand(node.outputs[0], context)

    # --- operands ----------------------------------------------------------------------------------------------------

    def operand(self, value: Value) -> OperandScreen | None:
        """None where anything fits, a missing operand too."""
        if isinstance(value, Alternatives):
            return _any_of([self.operand(option) for option in value.options])
        if isinstance(value, Literal):
            return _literal(value)
        if isinstance(value, NameRef):
            return self.name(value)
        if isinstance(value, Call):
            return _made(frozenset(op.name for op in value.ops), self.call(value))
        return _made(flat.OPERATORS[value.kind], self.flat(value, is_root=False))

    def name(self, ref: NameRef) -> OperandScreen | None:
        definition = self.definitions.get(ref.name)
        if definition is None:
            return _bare(ref)
        if ref.name not in self.screens:
            self.screens[ref.name] = self.operand(definition.value)
        made = self.screens[ref.name]
        if made is None or not ref.optional:
            return made
        return lambda tensor, context: tensor is None or made(tensor, context)

    # --- nodes -------------------------------------------------------------------------------------------------------

    def call(self, call: Call) -> NodeScreen:
        operators = {(op.domain, op.name) for op in call.ops}
        is_standard = all(op.domain == "" for op in call.ops)
        names = {op.name for op in call.ops}
        attributes = [(a.name, a.value.value) for a in call.attrs if isinstance(a.value, Literal) and a.name != "axis"]
        operands = self.operands(call)

        def fits(node: gs.Node, context: Context) -> bool:
            if node.op not in names or (
                (node.domain or not is_standard) and (domain_of(node.domain), node.op) not in operators
            ):
                return False
            view = context.index.view(node)
            if not view.regular or not operands(view, context):
                return False
            return not attributes or all(_has_attribute(view, name, wanted) for name, wanted in attributes)

        return fits

    def operands(self, call: Call) -> OperandsScreen:
        args = call.args
        has_rest = bool(args) and is_rest(args[-1])
        screens = [self.operand(arg) for arg in (args[:-1] if has_rest else args)]
        number = len(screens)
        in_place = _in_place(screens)
        in_any_order = in_place if has_rest else _in_any_order(screens)

        def fits(view: NodeView, context: Context) -> bool:
            found = len(view.inputs)
            if found < number if has_rest else found > number:
                return False
            return (in_any_order if is_permuted(view, number) else in_place)(view, context)

        return fits

    # --- sums and products -------------------------------------------------------------------------------------------

    def flat(self, value: Flat, is_root: bool) -> NodeScreen:
        operators = flat.OPERATORS[value.kind]
        if len(value.args) == 1 and isinstance(value.args[0], TemplateUse):
            template = self.template(self.pattern.templates[value.args[0].template])
            fits, limit = template, None
        else:
            fixed = [a for a in value.args if not isinstance(a, (TemplateUse, NameRef)) or _is_single(a)]
            is_open = is_root or len(fixed) < len(value.args)
            fits, limit = self.leaves([a for a in fixed if not isinstance(a, TemplateUse)], is_open)

        def screen(node: gs.Node, context: Context) -> bool:
            if node.op not in operators or (is_root and flat.is_inner(node, value.kind, context.index)):
                return False
            tree = context.tree(node, value.kind, limit)
            return tree is not None and fits(tree.leaves, context)

        return screen

    def leaves(
        self, fixed: Sequence[Value], is_open: bool
    ) -> tuple[Callable[[tuple[gs.Tensor, ...], Context], bool], int | None]:
        number = len(fixed)
        screens = [s for s in (self.operand(arg) for arg in fixed) if s is not None]

        def fits(leaves: tuple[gs.Tensor, ...], context: Context) -> bool:
            if len(leaves) < number or (len(leaves) > number and not is_open):
                return False
            return all(any(screen(leaf, context) for leaf in leaves) for screen in screens)

        return fits, None if is_open else number

    def template(self, template: Template) -> Callable[[tuple[gs.Tensor, ...], Context], bool]:
        """Two leaves, one of which is more than the bare parameter."""
        options = [self.operand(o) for o in template.options if not isinstance(o, NameRef)]
        more = _any_of(options)

        def fits(leaves: tuple[gs.Tensor, ...], context: Context) -> bool:
            if len(leaves) < 2:
                return False
            single = (leaf for leaf in leaves if context.index.edge_count(leaf) == 1)
            return bool(options) and any(more is None or more(leaf, context) for leaf in single)

        return fits


def _in_place(screens: Sequence[OperandScreen | None]) -> OperandsScreen:
    asked = [(position, screen) for position, screen in enumerate(screens) if screen is not None]
    if not asked:
        return lambda view, context: True
    if len(asked) == 1:
        ((only, its_screen),) = asked
        return lambda view, context: its_screen(view.input(only), context)

    if len(asked) == 2:  # most calls: all() over a generator takes twice as long
        (one, its), (other, others) = asked
        return lambda view, context: its(view.input(one), context) and others(view.input(other), context)
    return lambda view, context: all(screen(view.input(position), context) for position, screen in asked)


def _in_any_order(screens: Sequence[OperandScreen | None]) -> OperandsScreen:
    asked = [(position, screen) for position, screen in enumerate(screens) if screen is not None]
    if not asked:
        return lambda view, context: True
    if len(asked) == 1:
        ((_, its_screen),) = asked

        def one(view: NodeView, context: Context) -> bool:
            given = view.inputs
            for tensor in given:
                if its_screen(tensor, context):
                    return True
            return len(given) < len(screens) and its_screen(None, context)

        return one

    def fits(view: NodeView, context: Context) -> bool:
        given = view.inputs + (None,) * (len(screens) - len(view.inputs))
        for order in permutations(given):
            for position, screen in asked:
                if not screen(order[position], context):
                    break
            else:
                return True
        return False

    return fits


def _is_single(value: Value | TemplateUse) -> bool:
    return isinstance(value, NameRef) and not value.variadic


def _any_of(screens: Iterable[OperandScreen | None]) -> OperandScreen | None:
    asked: list[OperandScreen] = []
    for screen in screens:
        if screen is None:
            return None
        asked.append(screen)
    if len(asked) == 1:
        return asked[0]
    if len(asked) == 2:
        one, other = asked
        return lambda tensor, context: one(tensor, context) or other(tensor, context)
    return lambda tensor, context: any(screen(tensor, context) for screen in asked)


def _made(operators: frozenset[str], screen: NodeScreen) -> OperandScreen:
    def fits(tensor: gs.Tensor | None, context: Context) -> bool:
        node = None if tensor is None else context.index.producer(tensor)
        return node is not None and node.op in operators and screen(node, context)

    return fits


def _bare(ref: NameRef) -> OperandScreen | None:
    if ref.kind == "any":
        return None if ref.optional else lambda tensor, context: tensor is not None
    holds = {"const": _may_be_constant, "partial": _may_be_partial, "unshared": _is_unshared}[ref.kind]
    return lambda tensor, context: ref.optional if tensor is None else holds(tensor, context)


def _is_unshared(tensor: gs.Tensor, context: Context) -> bool:
    return context.index.edge_count(tensor) == 1


def _may_be_partial(tensor: gs.Tensor, context: Context) -> bool:
    return isinstance(tensor, gs.Constant) or context.value(tensor) is not None


def _may_be_constant(tensor: gs.Tensor, context: Context) -> bool:
    """Without reading weights: a screen is asked far more often than they are needed."""
    return isinstance(tensor, gs.Constant) or isinstance(context.value(tensor), np.ndarray)


def _literal(literal: Literal) -> OperandScreen:
    is_list = isinstance(literal.value, tuple)

    def fits(tensor: gs.Tensor | None, context: Context) -> bool:
        if literal.value == "" or tensor is None:
            return literal.value == "" and tensor is None
        if not is_list and isinstance(tensor, gs.Constant) and math.prod(tensor.shape) != 1:
            return False
        value = context.value(tensor)
        return isinstance(value, np.ndarray) and equals(literal.value, value)

    return fits


def _has_attribute(view: NodeView, name: str, wanted: object) -> bool:
    try:
        return equals(wanted, view.attr(name))
    except CallerAttribute:
        return True  # left to the matcher

"""What the matching machine works on: goals, bindings, and the ways to lay arguments on operands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import permutations
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.ops.custom import find
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.ops.traits import COMMUTATIVE
from surgeon_passes.ops.view import NodeView
from surgeon_passes.rules.match import Context, Group, Leaf
from surgeon_passes.rules.pattern import (
    NOWHERE,
    Alternatives,
    Call,
    Definition,
    Flat,
    Literal,
    NameRef,
    OpId,
    Span,
    Value,
)

MAX_PERMUTED = 4
"""Operands of a commutative variadic operator whose orders are all tried; beyond it, the order as written."""


class Seek(NamedTuple):
    """Match ``value`` against ``tensor`` (None: missing)."""

    value: Value
    tensor: gs.Tensor | None


class Define(NamedTuple):
    """Match a definition against the node that makes one of its results."""

    definition: Definition
    node: gs.Node


class Leaves:
    """Leaves of a tree, found by what they are: a long sum is not searched operand by operand."""

    def __init__(self, tensors: tuple[gs.Tensor, ...], context: Context) -> None:
        self.tensors = tensors
        self.by_tensor: dict[int, list[int]] = {}
        self.by_operator: dict[OpId, list[int]] = {}
        self.constants: list[int] = []
        for position, tensor in enumerate(tensors):
            self.by_tensor.setdefault(id(tensor), []).append(position)
            node = context.index.producer(tensor)
            if node is not None:
                self.by_operator.setdefault(OpId(domain_of(node.domain), node.op), []).append(position)
            if is_constant(tensor, context):
                self.constants.append(position)

    def candidates(self, value: Value, bound: Mapping[str, Any]) -> Iterable[int]:
        """Positions of the leaves that ``value`` may fit."""
        if isinstance(value, Call):
            return sorted(p for op in value.ops for p in self.by_operator.get(op, ()))
        if isinstance(value, NameRef) and value.name in bound:
            return sorted({*self.by_tensor.get(id(bound[value.name]), ()), *self.constants})
        return range(len(self.tensors))


class Assign(NamedTuple):
    """Give each of ``args`` one of ``leaves``."""

    flat: Flat
    args: tuple[Value, ...]
    leaves: Leaves
    taken: frozenset[int] = frozenset()
    """positions of leaves that have an argument"""

    @property
    def others(self) -> tuple[gs.Tensor, ...]:
        return tuple(leaf for position, leaf in enumerate(self.leaves.tensors) if position not in self.taken)


class Finish(NamedTuple):
    """Give free names their operands, from the ``number``-th node that waits for it on."""

    number: int = 0


Goal: TypeAlias = Seek | Define | Assign | Finish
Goals: TypeAlias = "tuple[Goal, Goals] | None"


class Miss(NamedTuple):
    """How far the best attempt came, and why it stopped. ``reach`` counts its nodes, ``nodes`` are the first of them."""

    nodes: tuple[gs.Node, ...] = ()
    span: Span = NOWHERE
    reason: str = ""
    reach: int = 0


class Bindings:
    __slots__ = ("leaves", "leftovers", "matched", "names", "nodes", "siblings", "waiting")

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.nodes: dict[str, gs.Node] = {}
        self.matched: dict[int, gs.Node] = {}
        self.leaves: dict[str, tuple[Leaf, ...]] = {}
        self.leftovers: tuple[gs.Tensor, ...] = ()
        self.siblings: dict[str, tuple[Group, ...]] = {}
        """by template: further groups of leaves of the same tree"""
        self.waiting: dict[int, Options] = {}
        """orders of operands that decide nothing but which name is which: chosen last"""


Seed: TypeAlias = Any  # Callable[[], bool] | None: bindings made when a choice is entered
Options: TypeAlias = list[tuple[tuple[Goal, ...], Seed]]


SETTLED: Options = [((), None)]
"""One way, and nothing left to do for it. Options are never changed."""


def push(steps: tuple[Goal, ...], rest: Goals) -> Goals:
    for goal in reversed(steps):
        rest = (goal, rest)
    return rest


def is_rest(value: Any) -> bool:
    return isinstance(value, NameRef) and value.variadic


def selectivity(value: Value) -> int:
    """Structured operands first, then constants, then names that anything fits."""
    if isinstance(value, (Call, Flat)):
        return 0
    if isinstance(value, Alternatives):
        return 1
    if isinstance(value, Literal):
        return 2
    return 3 if value.kind != "any" else 4


Order: TypeAlias = tuple[tuple[Value, ...], tuple[gs.Tensor | None, ...], tuple[NameRef, tuple[gs.Tensor, ...]] | None]


def is_permuted(view: NodeView, number: int) -> bool:
    """Whether the operands of a node are tried in every order where ``number`` are wanted."""
    if not 1 < number <= MAX_PERMUTED:
        return False
    if view.domain:
        known = find(view.domain, view.op)
        return known is not None and known.commutative
    return view.op in COMMUTATIVE


def orders(call: Call, view: NodeView) -> list[Order]:
    """Each way to lay the call's arguments on the node's operands."""
    args, operands = call.args, view.inputs
    tail: tuple[NameRef, tuple[gs.Tensor, ...]] | None = None
    if args and isinstance(args[-1], NameRef) and args[-1].variadic:
        head = len(args) - 1
        if len(operands) < head or any(t is None for t in operands[head:]):
            return []
        tail = (args[-1], tuple(t for t in operands[head:] if t is not None))
        args, operands = args[:-1], operands[:head]
    if len(operands) > len(args):
        return []
    padded = operands + (None,) * (len(args) - len(operands))
    if tail is None and is_permuted(view, len(args)):
        return [(args, order, None) for order in _permuted(padded)]
    return [(args, padded, tail)]


def _permuted(operands: tuple[gs.Tensor | None, ...]) -> list[tuple[gs.Tensor | None, ...]]:
    """Every order of the operands, each once where operands are the same."""
    if len(operands) == 2:
        first, second = operands
        return [operands] if first is second else [operands, (second, first)]
    found: dict[tuple[int, ...], tuple[gs.Tensor | None, ...]] = {}
    for order in permutations(operands):
        found.setdefault(tuple(map(id, order)), order)
    return list(found.values())


def same(first: Any, second: Any, context: Context) -> bool:
    """Whether two bindings are the same tensor, constants of equal dtype, shape and bytes, or equal tuples of them."""
    if first is second:
        return True
    if first is None or second is None:
        return False
    if isinstance(first, tuple) or isinstance(second, tuple):
        if not (isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second)):
            return False
        return all(same(a, b, context) for a, b in zip(first, second, strict=True))
    if not (is_constant(first, context) and is_constant(second, context)):
        return False
    a, b = context.value(first), context.value(second)
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        return False
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def is_constant(tensor: gs.Tensor, context: Context) -> bool:
    """Whether a tensor is an initializer, or what a Constant node makes (those of functions stay nodes)."""
    if isinstance(tensor, gs.Constant):
        return True
    node = context.index.producer(tensor)
    return node is not None and node.op == "Constant"

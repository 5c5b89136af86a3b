"""The ranks that readers require of a tensor: those that it can have in a run that does not fail.

An LSTM fails on anything but three dims. What leads to it, ``y = If(c) {rank 2 | rank 3}``, ``LSTM(Unsqueeze(y))``, has rank
2 in every run that gives results: the If's condition is not known, the rank is.

Where the original fails for it the result must fail, too, not give something else (a run computes all outputs). So the
reader that fails (the guard) has to outlast whatever rewrites do with the rank that it tells them:

- It runs whenever the tensor is made: it stands in the same graph, or there is one in each branch of an If there. A body
  of a Loop or Scan may not run at all, a function's is not looked into; neither holds a guard.
- It is never folded: its operand is what a run decides, and no rewrite looks through a recurrent operator or a Gemm.
  Initial states are no guard: a state of zeros is left out, whatever its rank.
- It never becomes dead: its result reaches an output of the model, on a way of which every operator needs the operand that
  it gets (in each branch, where it goes through an If). Shape and Size end such a way, since they are folded; so do
  operators that may leave an operand out, such as Where, Slice, and Mul, which of integers is 0 where one is 0.
- Between the tensor and the guard nothing hides a wrong rank: an operator that does not change it, and at most one
  Squeeze, Unsqueeze or Transpose. Two of them may become one Reshape, which takes any rank.

A rule of a plugin that takes a guard itself away says so by what it matches, and is checked in its own region.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property, reduce
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.index import GraphIndex, Scope, subgraphs
from surgeon_passes.ops import NodeView
from surgeon_passes.ops.traits import ELEMENTWISE
from surgeon_passes.values.lattice import Value

Ranks = Mapping[int, int]
"""Ranks that are possible, each with the number of operators between that move dims."""
Place = tuple[gs.Tensor, Scope]
"""A tensor, seen from a run of one graph that makes it or lies inside the one that does."""

_RECURRENT = ("RNN", "GRU", "LSTM")
GUARDS: Mapping[str, Mapping[int, frozenset[int]]] = {
    **{op: dict.fromkeys((0, 1, 2), frozenset({3})) for op in _RECURRENT},
    "Gemm": {0: frozenset({1, 2}), 1: frozenset({2})},
}
"""Operands by position and the only ranks on which the operator does not fail. (ONNX Runtime takes a Gemm's A of rank 1.)"""

_MOVERS = frozenset({"Squeeze", "Unsqueeze", "Transpose"})
_FIRST_NEEDED = frozenset(
    {"Squeeze", "Unsqueeze", "Reshape", "Flatten", "Transpose", "Softmax", "LogSoftmax", "ReduceMean", "ReduceSum", "Conv",
     "ConvTranspose", "BatchNormalization", "LayerNormalization", "Gemm", *_RECURRENT}
)  # fmt: skip
_ALL_NEEDED = frozenset({"Add", "Sub", "MatMul", "Concat"})


class Readers:
    """What the readers of a tensor require of its rank, over one state of a model; every answer is kept.

    ``view`` reads a node, ``constant`` a tensor that is constant by itself; either gives None for what it cannot read.
    """

    def __init__(
        self,
        index: GraphIndex,
        view: Callable[[gs.Node], NodeView | None],
        constant: Callable[[gs.Tensor], Value],
    ) -> None:
        self.index = index
        self._view = view
        self._constant = constant
        self._found: dict[tuple[int, int], tuple[gs.Tensor, Ranks | None]] = {}
        self._by_scope: dict[int, dict[int, dict[int, gs.Node]]] = {}
        """by id(tensor) and id(scope): the nodes there that read it; good for one question, between which edits come"""
        self.told: dict[int, gs.Tensor] = {}
        """tensors whose rank was told, by id"""

    def rank_of(self, tensor: gs.Tensor, possible: Collection[int]) -> int | None:
        """The one of the ``possible`` ranks that ``tensor`` has in every run that does not fail; None where not known."""
        required = self.required_ranks(tensor)
        left = [rank for rank in possible if required is not None and rank in required]
        if required is None or len(left) != 1 or required[left[0]] > 1:
            return None
        self.told[id(tensor)] = tensor
        return left[0]

    def required_ranks(self, tensor: gs.Tensor) -> Ranks | None:
        """The ranks on which no reader of ``tensor`` fails; None where nothing requires one."""
        home = self.index.home(tensor)
        if home is None:
            return None
        self._by_scope.clear()
        todo: list[Place] = [(tensor, home)]
        entered: set[tuple[int, int]] = set()
        while todo:
            place = todo[-1]
            missing: list[Place] = []
            if _key(place) not in self._found:
                found = self._met(place, missing)
                if missing and _key(place) not in entered:
                    entered.add(_key(place))
                    todo += missing
                    continue
                self._found[_key(place)] = (place[0], found)
            todo.pop()
        return self._found[_key((tensor, home))][1]

    # --- one tensor ------------------------------------------------------------------------------------------------------

    def _met(self, place: Place, missing: list[Place]) -> Ranks | None:
        """What all readers let pass. Answers that are not there yet go to ``missing``."""

        def ask(tensor: gs.Tensor, scope: Scope) -> Ranks | None:
            held = self._found.get(_key((tensor, scope)))
            if held is None:
                missing.append((tensor, scope))
                return None
            return held[1]

        tensor, scope = place
        found = [ask(*behind) for behind in self._handed_out(place)]
        for node in self._users(place):
            if node.op == "If" and not node.domain:
                found.append(_either([ask(tensor, self.index.scope_of_graph(body)) for _, body in subgraphs(node)]))
                continue
            view = self._view(node)
            if view is None or view.domain != "":
                continue
            found += self._guarded(view, place)
            shift = self._shift(view, tensor)
            if shift is not None:
                found.append(_shifted(ask(node.outputs[0], scope), shift, node.op in _MOVERS))
        return reduce(_both, found, None)

    def _handed_out(self, place: Place) -> Iterator[Place]:
        """The results of the If in whose branch ``tensor`` is one."""
        tensor, scope = place
        owner = scope.owner
        if owner is not None and owner.op == "If" and not owner.domain:
            for given, result in zip(scope.graph.outputs, owner.outputs, strict=False):
                if given is tensor and result.name:
                    yield result, self.index.scope(owner)

    def _users(self, place: Place) -> list[gs.Node]:
        """Nodes of the place's graph that read the tensor, themselves or in a body; each once."""
        tensor, scope = place
        held = self._by_scope.get(id(tensor))
        if held is None:
            held = self._by_scope[id(tensor)] = {}
            for reader in self.index.consumers(tensor):
                node: gs.Node | None = reader
                while node is not None:
                    around = self.index.scope(node)
                    held.setdefault(id(around), {})[id(node)] = node
                    node = around.owner
        return list(held.get(id(scope), {}).values())

    def _guarded(self, view: NodeView, place: Place) -> Iterator[Ranks]:
        tensor, scope = place
        positions = GUARDS.get(view.op, {})
        if positions and any((id(t), id(scope)) in self._needed for t in view.node.outputs):
            for position, ranks in positions.items():
                if view.input(position) is tensor:
                    yield dict.fromkeys(ranks, 0)

    def _shift(self, view: NodeView, tensor: gs.Tensor) -> int | None:
        """By how much the rank of the first result exceeds that of ``tensor``; None where that is not known."""
        if view.input(0) is not tensor or len(view.node.outputs) != 1:
            return None
        if view.op == "Transpose" or _is_unary(view):
            return 0
        axes = view.input(1)
        found = None if axes is None or view.op not in _MOVERS else self._constant(axes)
        if not isinstance(found, np.ndarray):
            return None
        return found.size if view.op == "Unsqueeze" else _squeezed(found)

    # --- what must be computed -------------------------------------------------------------------------------------------

    @cached_property
    def _needed(self) -> set[tuple[int, int]]:
        """Places (by id) without whose value some output of the model cannot be known."""
        main = self.index.scope_of_graph(self.index.graph)
        found: set[tuple[int, int]] = set()
        todo: list[Place] = [(t, main) for t in main.graph.outputs]
        while todo:
            place = todo.pop()
            if _key(place) not in found:
                found.add(_key(place))
                todo += self._needed_for(place, found)
        return found

    def _needed_for(self, place: Place, found: set[tuple[int, int]]) -> Iterable[Place]:
        tensor, scope = place
        node = self.index.producer(tensor)
        if node is None:
            return
        if self.index.scope(node) is not scope:
            yield from self._captured(place, found)
        elif node.op == "If" and not node.domain:
            for _, body in subgraphs(node):
                pairs = zip(body.outputs, node.outputs, strict=False)
                yield from ((given, self.index.scope_of_graph(body)) for given, result in pairs if result is tensor)
        else:
            view = self._view(node)
            if view is not None and view.domain == "" and (tensor is node.outputs[0] or view.op in _RECURRENT):
                yield from ((operand, scope) for operand in _needed_operands(view))

    def _captured(self, place: Place, found: set[tuple[int, int]]) -> Iterable[Place]:
        """A tensor from around an If is needed there once each branch needs it."""
        tensor, scope = place
        owner = scope.owner
        if owner is not None:
            branches = [self.index.scope_of_graph(body) for _, body in subgraphs(owner)]
            if all((id(tensor), id(branch)) in found for branch in branches):
                yield tensor, self.index.scope(owner)


def _key(place: Place) -> tuple[int, int]:
    return id(place[0]), id(place[1])


def _is_unary(view: NodeView) -> bool:
    """Whether it works on each element of its one operand."""
    return view.op in ELEMENTWISE and sum(t is not None for t in view.inputs) == 1


def _squeezed(axes: np.ndarray[Any, Any]) -> int | None:
    """Minus the number of dims that a Squeeze takes away: an axis that is named twice goes once."""
    distinct = set(axes.ravel().tolist())
    return -len(distinct) if all(a >= 0 for a in distinct) or all(a < 0 for a in distinct) else None


def _needed_operands(view: NodeView) -> list[gs.Tensor]:
    if view.op in _FIRST_NEEDED or _is_unary(view):
        return [t for t in view.inputs[:1] if t is not None]
    return [t for t in view.inputs if t is not None] if view.op in _ALL_NEEDED else []


def _both(a: Ranks | None, b: Ranks | None) -> Ranks | None:
    if a is None or b is None:
        return b if a is None else a
    return {rank: max(a[rank], b[rank]) for rank in a if rank in b}


def _either(found: list[Ranks | None]) -> Ranks | None:
    """What one branch or another lets pass; a branch that requires nothing lets everything pass."""
    union: dict[int, int] = {}
    for ranks in found:
        if ranks is None:
            return None
        for rank, moved in ranks.items():
            union[rank] = max(moved, union.get(rank, 0))
    return union


def _shifted(behind: Ranks | None, shift: int, moves: bool) -> Ranks | None:
    if behind is None:
        return None
    return {rank - shift: moved + moves for rank, moved in behind.items() if rank >= shift}

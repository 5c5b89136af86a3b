"""One run of a Loop's body: its tensors anew, from given inputs; what it captures is known as in the graph around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import onnx_graphsurgeon as gs

from surgeon_passes.errors import ContradictionError
from surgeon_passes.index import GraphIndex, Scope, subgraphs
from surgeon_passes.model import onnx_dtype
from surgeon_passes.region import TensorType
from surgeon_passes.values.lattice import Value
from surgeon_passes.values.operands import Unknown
from surgeon_passes.values.solver import Missing, Solver

MAX_TASKS = 1 << 13
"""Nodes evaluated for one Loop, over all its turns and the Loops inside."""


@dataclass(eq=False)
class Budget:
    left: int = MAX_TASKS

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Unknown


class _Outside(Exception):
    """Something that a solver further out must evaluate first."""

    def __init__(self, solver: Solver, missing: Missing) -> None:
        self.solver = solver
        self.missing = missing


class BodySolver(Solver):
    """Facts of one run of ``body``: tensors of the body, and of bodies inside it, have values and types of this run only.

    Everything else is looked up in the solver around. Sizes that nothing tells stay unknown here: a name for one would
    mean another size in each run.
    """

    def __init__(self, outer: Solver, body: gs.Graph, budget: Budget | None = None) -> None:
        super().__init__(outer.index, outer.seeds, outer.hints, outer.names, ask_readers=False)
        self.outer = outer
        self.body = body
        self.budget: Budget = outer.budget if isinstance(outer, BodySolver) else budget or Budget()
        self._is_inside: dict[int, bool] = {}

    def bind(self, tensor: gs.Tensor, value: Value, entry: TensorType) -> None:
        """Give an input of the body. The type of a value that is known is the value's own."""
        if value is not None:
            entry = TensorType(onnx_dtype(value.dtype), tuple(value.shape))
        self._values[id(tensor)] = (tensor, value)
        self._types[id(tensor)] = (tensor, entry)

    def values(self, tensors: list[gs.Tensor]) -> list[Value]:
        with self._asking():
            return [self.value(t) for t in tensors]

    def types(self, tensors: list[gs.Tensor]) -> list[TensorType]:
        with self._asking():
            return [self.type(t) for t in tensors]

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """What is missing outside goes to whoever evaluates there; types that contradict each other say nothing."""
        try:
            yield
        except _Outside as outside:
            if outside.solver is self.outer:
                raise outside.missing from None
            raise
        except ContradictionError:
            raise Unknown from None

    # --- how a Solver does it, for this run ----------------------------------------------------------------------------

    def _run(self, kind: str, node: gs.Node) -> None:
        self.budget.spend()
        super()._run(kind, node)

    def _lookup(self, kind: str, tensor: gs.Tensor) -> Any:
        if self.inside(tensor):
            return super()._lookup(kind, tensor)
        try:
            return self.outer.one_value_now(tensor) if kind == "value" else self.outer.one_type_now(tensor)
        except Missing as missing:
            raise _Outside(self.outer, missing) from None

    def inside(self, tensor: gs.Tensor) -> bool:
        """Whether the body, or one inside it, makes ``tensor``."""
        home = self.index.home(tensor)
        return home is not None and self._covers(home)

    def _covers(self, home: Scope) -> bool:
        known = self._is_inside.get(id(home))
        if known is None:
            scope: Scope | None = home
            while scope is not None and scope.graph is not self.body:
                scope = scope.parent
            known = self._is_inside[id(home)] = scope is not None
        return known


def captures(index: GraphIndex, node: gs.Node) -> list[gs.Tensor]:
    """Tensors that the bodies of ``node`` read from around it, each once; constants are left out."""
    if not any(True for _ in subgraphs(node)):
        return []
    members = index.with_bodies(node)
    made = {id(t) for member in members[1:] for t in member.outputs}
    read: dict[int, gs.Tensor] = {}
    for member in members:
        for _, body in subgraphs(member):
            made.update(id(t) for t in body.inputs)
            read.update((id(t), t) for t in body.outputs)
    read.update((id(t), t) for member in members[1:] for t in member.inputs)
    return [t for key, t in read.items() if key not in made and t.name and not isinstance(t, gs.Constant)]

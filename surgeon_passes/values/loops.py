"""What is known of a Loop's results: turn by turn where there are few, else what no turn changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_graphsurgeon as gs
from onnx import TensorProto

from surgeon_passes.errors import ContradictionError
from surgeon_passes.ops import NodeView
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.ops.view import CallerAttribute
from surgeon_passes.region import TensorType
from surgeon_passes.values import dims
from surgeon_passes.values.bodies import BodySolver, Budget, captures
from surgeon_passes.values.dims import Dim, Shape, type_shape
from surgeon_passes.values.lattice import Value, elements_of, is_integer, object_array, pack
from surgeon_passes.values.operands import Operands, Unknown
from surgeon_passes.values.solver import FAILURES, Missing, Solver

MAX_TURNS = 64
MAX_ROUNDS = 8
"""Weakenings of an assumption until it must hold; each round is one run of the body."""


@dataclass
class Carried:
    """What goes from one turn of the loop to the next."""

    values: list[Value]
    types: list[TensorType]


@dataclass
class Turns:
    """A loop that was run to its end: what it carried out, and per turn what it gave to each scan output."""

    carried: Carried
    scanned: list[list[Value]] = field(default_factory=list)
    scan_types: list[list[TensorType]] = field(default_factory=list)


class Loop:
    """The node's operands and body. Raises Unknown where it is no regular Loop."""

    def __init__(self, n: Operands) -> None:
        body = n.attr("body")
        self.count = n.outputs()
        if not isinstance(body, gs.Graph) or not isinstance(n.facts, Solver):
            raise Unknown
        self.n, self.facts, self.body = n, n.facts, body
        self.states = len(body.inputs) - 2
        initial = [n.view.input(2 + k) for k in range(self.states)]
        self.initial = [t for t in initial if t is not None]
        if self.states < 0 or len(self.initial) < self.states or len(body.outputs) <= self.states:
            raise Unknown
        around = captures(n.facts.index, n.view.node)
        n.values_of(*self.initial, *around)
        n.types_of(*self.initial, *around)

    def start(self) -> Carried:
        return Carried(self.n.values_of(*self.initial), self.n.types_of(*self.initial))

    def run(self, turn: Value, carried: Carried, budget: Budget) -> BodySolver:
        """The body with its inputs given; ``turn`` is the iteration number, None for any."""
        inner = BodySolver(self.facts, self.body, budget)
        number, condition, *states = self.body.inputs
        inner.bind(number, turn, TensorType(TensorProto.INT64, ()))
        inner.bind(condition, np.array(True), TensorType(TensorProto.BOOL, ()))
        for tensor, value, entry in zip(states, carried.values, carried.types, strict=True):
            inner.bind(tensor, value, entry)
        return inner

    def limit(self) -> int | None:
        """The largest number of turns; None for no limit. Raises Unknown where it is not known."""
        return int(self.n.array(0).reshape(())) if self.n.has(0) else None

    def enters(self) -> bool:
        """Whether the condition holds before the first turn. Raises Unknown where it is not known."""
        return bool(self.n.array(1).reshape(())) if self.n.has(1) else True


# --- turn by turn --------------------------------------------------------------------------------------------------------


def unrolled(loop: Loop) -> Turns:
    """Raises Unknown where the number of turns is not known, or more than is worth it."""
    limit, going = loop.limit(), loop.enters()
    if limit is not None and limit > MAX_TURNS:
        raise Unknown
    turns, budget = Turns(loop.start()), Budget()
    done = 0
    while going and (limit is None or done < limit):
        if done == MAX_TURNS:
            raise Unknown
        inner = loop.run(np.array(done, np.int64), turns.carried, budget)
        condition, *results = loop.body.outputs
        values = inner.values(results)
        done += 1
        if done != limit:
            going = _truth(inner.values([condition])[0])
        types = inner.types(results)
        turns.carried = Carried(values[: loop.states], types[: loop.states])
        turns.scanned.append(values[loop.states :])
        turns.scan_types.append(types[loop.states :])
    return turns


def _truth(value: Value) -> bool:
    if not isinstance(value, np.ndarray) or value.size != 1:
        raise Unknown
    return bool(value.reshape(()))


def stacked(parts: Sequence[Value]) -> Value:
    """What the turns gave to one scan output, along a new first axis; None where a part is not known."""
    known = [p for p in parts if p is not None]
    if not known or len(known) < len(parts) or any(p.shape != known[0].shape for p in known):
        return None
    arrays = [p for p in known if isinstance(p, np.ndarray)]
    if len(arrays) == len(known):
        return np.stack(arrays)
    elements = [e for p in known for e in elements_of(p).ravel()]
    return pack(object_array(elements, (len(known), *known[0].shape)), known[0].dtype)


# --- what no turn changes ------------------------------------------------------------------------------------------------


@dataclass
class Invariant:
    """What holds of the carried tensors before, between and after turns, and of each turn's scan results."""

    carried: Carried
    scan_types: list[TensorType]
    goes_on: bool
    """the body never ends the loop"""


def invariant(loop: Loop) -> Invariant:
    """By induction: what is known of the initial values is weakened until one turn keeps it."""
    assumed, budget = loop.start(), Budget()
    condition, *results = loop.body.outputs
    for _ in range(MAX_ROUNDS):
        inner = loop.run(None, assumed, budget)
        values = inner.values(results[: loop.states])
        types = inner.types(results)
        weaker = Carried(
            [joined(a, b) for a, b in zip(assumed.values, values, strict=True)],
            [joined_types(a, b) for a, b in zip(assumed.types, types[: loop.states], strict=True)],
        )
        if _equal(weaker, assumed):
            going = inner.values([condition])[0]
            goes_on = isinstance(going, np.ndarray) and bool(going.all())
            return Invariant(assumed, types[loop.states :], goes_on)
        assumed = weaker
    raise Unknown


def joined(a: Value, b: Value) -> Value:
    """What both say: elements that are certainly equal, in one dtype and shape."""
    if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape:
        return None
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.tobytes() == b.tobytes():
        return a
    if not is_integer(a.dtype):
        return None
    pairs = zip(elements_of(a).ravel(), elements_of(b).ravel(), strict=True)
    return pack(object_array((x if dims.same(x, y) else None for x, y in pairs), a.shape), a.dtype)


def joined_types(a: TensorType, b: TensorType) -> TensorType:
    """What both say."""
    if a.kind != b.kind:
        return TensorType(None, None, "unknown")
    return TensorType(a.dtype if a.dtype == b.dtype else None, joined_shapes(type_shape(a), type_shape(b)), a.kind)


def joined_shapes(a: Shape | None, b: Shape | None) -> Shape | None:
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if dims.same(x, y) else None for x, y in zip(a, b, strict=True))


def _equal(a: Carried, b: Carried) -> bool:
    return a.types == b.types and all(map(_equal_values, a.values, b.values))


def _equal_values(a: Value, b: Value) -> bool:
    if a is None or b is None:
        return a is b
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray)  # joined: what is still whole did not change
    return bool((a.elements == b.elements).all())


def trips(loop: Loop, goes_on: bool) -> Dim:
    """The number of turns of a loop that its limit alone ends; None where the condition may."""
    if not loop.n.has(0) or not goes_on:
        return None
    limit = loop.n.dims(0)[0]
    entered = loop.enters()
    return dims.maximum(limit, 0) if entered else 0


def carried_types(solver: Solver) -> Iterator[tuple[gs.Tensor, TensorType]]:
    """(input of a Loop's body, its type in every turn), outer loops first: the caller states each before it goes on."""
    for scope in solver.index.scopes:
        for node in solver.index.scope_nodes(scope):
            if node.op != "Loop" or domain_of(node.domain):
                continue
            body, held = node.attrs.get("body"), _settled(solver, node)
            if held is None or not isinstance(body, gs.Graph):
                continue
            number, condition, *states = body.inputs
            yield number, TensorType(TensorProto.INT64, ())
            yield condition, TensorType(TensorProto.BOOL, ())
            yield from zip(states, held.carried.types, strict=True)


def _settled(solver: Solver, node: gs.Node) -> Invariant | None:
    """What holds in every turn, once everything around the loop that it needs is evaluated; None where unknown."""
    try:
        view = NodeView(node, solver.index.opset(node))
        while True:
            try:
                return invariant(Loop(Operands(view, solver)))
            except Missing as missing:
                solver.finish(missing)
    except (Unknown, CallerAttribute, ContradictionError, *FAILURES):
        return None

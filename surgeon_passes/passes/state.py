"""What a pipeline's passes share: the graph with its links, types and values, the journal, and what was decided."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx_graphsurgeon as gs

from surgeon_passes.decisions import UNDONE, Decision
from surgeon_passes.errors import SurgeonError
from surgeon_passes.index import GraphIndex
from surgeon_passes.model.extras import Model
from surgeon_passes.ops.custom import find
from surgeon_passes.region import Region, TensorType, Tolerances, Verdict
from surgeon_passes.rules.journal import Edit
from surgeon_passes.rules.match import Context
from surgeon_passes.rules.registry import Registry
from surgeon_passes.rules.rewriter import Rewriter
from surgeon_passes.rules.tracing import trace
from surgeon_passes.selection import Only, make_guard
from surgeon_passes.traces import StepTrace, Trace
from surgeon_passes.values import Evaluator, TypeMap

log = logging.getLogger(__name__)

Observer = Callable[[Decision], None]
Progress = Callable[[str, int, int], None]
Checker = Callable[[Sequence[Region]], list[Verdict]]
Permit = Callable[[str, Trace], bool]
"""whether a rule may do what the trace tells"""


class InvariantError(SurgeonError):
    """A pass changed what it must not: a bug, caught before anything is written."""

    exit_code = 6


@dataclass(frozen=True)
class Verify:
    """How rewrites are checked.

    ``mode``: "strict" applies only what is verified, "available" also what could not be checked, "off" checks nothing.
    ``data``: npz file, folder of npy, or callable giving feeds. ``end_check``: compare the whole models at the end.
    ``custom_ops``: shared libraries that register custom operators with ONNX Runtime.
    """

    mode: str = "strict"
    data: object = None
    end_check: bool = True
    tolerances: Tolerances = field(default_factory=Tolerances)
    seed: int = 0
    custom_ops: tuple[str, ...] = ()


@dataclass(eq=False)
class State:
    """Mutable, owned by one run of a pipeline."""

    model: Model
    registry: Registry
    verify: Verify
    original: onnx.ModelProto | None = None
    check: Checker | None = None
    """checks regions; None where verification is off"""
    decisions: list[Decision] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """what the report says besides: budgets, stale value_info"""
    settings: list[str] = field(default_factory=list)
    """what the run was asked for besides the defaults, and which rules stood back for it"""
    observers: tuple[Observer, ...] = ()
    progress: Progress | None = None
    banned: set[tuple[str, str, str]] = field(default_factory=set)
    """(rule, graph, root) that the end check found guilty"""
    edit_limit: int | None = None
    keep: Sequence[str] = ()
    """patterns of nodes and tensors that stay as they are"""
    only: Only | str | None = None
    """the part that may change; None is all"""
    skip: frozenset[str] = frozenset()
    """names of rules, sets of rules and edits that are left out"""
    traces: bool = False
    """whether edits are traced, as a record wants them: a tenth of the time of a run"""
    permit: Permit | None = None
    """asked of each rewrite by a rule; None permits all"""
    made: list[Decision] = field(default_factory=list)
    """every edit in the order in which it was made, whatever became of it"""
    applied: list[Decision] = field(default_factory=list)
    refuted: set[tuple[str, frozenset[int]]] = field(default_factory=set)
    references: dict[tuple[str, str], onnx.FunctionProto] = field(default_factory=dict)
    """bodies of custom operators, of the model or that rules emit: what ONNX Runtime runs in their place when it checks"""
    made_by: dict[int, str] = field(default_factory=dict)
    """by id(node): the rule that made it"""
    steps: list[StepTrace] = field(default_factory=list)
    """the passes in the order in which they were run"""
    step: str = ""
    """the pass that runs now"""
    looked_for: set[str] = field(default_factory=set)
    """names of the rules that some pass has tried"""
    times: Counter[str] = field(default_factory=Counter)
    """how often each rule was applied"""
    _seen: set[tuple[Any, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.index = GraphIndex(self.graph)
        for extras in self.model.extras.graphs.values():
            self.index.reserve(str(constant.name) for constant in extras.constants)  # those that nobody reads, too
        self.guard = make_guard(self.index, self.keep, self.only, self.skip)
        self.rebuild()
        for node in self.index.nodes():
            self.refer(node)

    def refer(self, node: gs.Node) -> None:
        """Take note of the function that stands for a custom operator where ONNX Runtime checks."""
        known = find(node.domain, node.op) if node.domain else None
        own = ((f.domain, f.name) for f in self.graph.functions)
        if known is not None and known.function is not None and (known.domain, known.op) not in own:
            self.references[known.domain, known.op] = known.function

    @property
    def graph(self) -> gs.Graph:
        return self.model.graph

    def rebuild(self) -> None:
        """Infer types and forget values: at the start, and after dims of the inputs have changed."""
        self.index.take_touched()
        self.types = TypeMap(self.graph, self.index, self.model.extras, whole=False)
        _type_functions(self.types, self.index)
        self.types.store()
        self._read_anew()

    def refresh(self) -> None:
        """Infer anew what has changed: at the start of each further round."""
        if self.types.renew():
            self._read_anew()
        else:
            self.rebuild()

    def _read_anew(self) -> None:
        self.evaluator = Evaluator(self.graph, self.index, self.types)
        self.context = Context(self.index, self.evaluator.value, self.types.type_of, ramp=self.evaluator.ramp)
        self.rewriter = Rewriter(self.context, self.evaluator.cone, self.guard)

    def decide(self, decision: Decision, node: gs.Node | None = None) -> None:
        """Record a decision; what is said of the same ``node`` again, for the same reason, is said once."""
        place = decision.root if node is None else id(node)
        key = (decision.rule, decision.graph, place, decision.status, decision.reason)
        if key in self._seen and decision.status != "applied":
            return
        self._seen.add(key)
        decision.step = self.step
        self.decisions.append(decision)
        level = logging.INFO if decision.status == UNDONE else logging.DEBUG
        log.log(level, "%s at %s: %s %s", decision.rule, decision.root, decision.status, decision.reason)
        for observer in self.observers:
            observer(decision)

    def take(self, edit: Edit) -> None:
        """Take note of an edit that was made, as it was when it was made."""
        if self.traces or self.permit is not None:
            edit.decision.trace = trace(edit, self.index, self.types)
        self.made.append(edit.decision)

    def may_edit(self) -> bool:
        return self.edit_limit is None or len(self.made) < self.edit_limit

    def report_progress(self, what: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(what, done, total)


def remove_dead(state: State) -> int:
    """Take out nodes whose results nobody uses, less what is kept; gives how many. Not journaled: only between sweeps."""
    index = state.index
    todo = [node for node in reversed(index.nodes()) if index.is_dead(node)]
    removed = 0
    while todo:
        node = todo.pop()
        if not index.is_live(node) or not index.is_dead(node) or state.guard.reason(node, index):
            continue
        sources = [index.producer(t) for t in _reads(node, state)]
        index.remove_node(node)
        removed += 1
        todo.extend(source for source in sources if source is not None and index.is_dead(source))
    return removed


def _reads(node: gs.Node, state: State) -> Iterable[gs.Tensor]:
    """What a node reads, from inside its bodies too."""
    members = state.index.with_bodies(node)
    return [t for member in members for t in member.inputs if t.name]


def _type_functions(types: TypeMap, index: GraphIndex) -> None:
    """Give the inputs of each local function the types on which all its callers agree: its body says none."""
    calls: dict[tuple[str, str], list[gs.Node]] = {}
    for node in index.nodes():
        calls.setdefault((node.domain or "", node.op), []).append(node)
    for scope in index.scopes:
        if not scope.is_function or scope.parent is not None:
            continue
        callers = calls.get((scope.graph.domain or "", scope.graph.name), [])
        for place, tensor in enumerate(scope.graph.inputs):
            given = [types.type_of(c.inputs[place]) for c in callers if place < len(c.inputs) and c.inputs[place].name]
            if given and len(given) == len(callers):
                types.set(tensor, _agreed(given))


def _agreed(given: list[TensorType]) -> TensorType:
    """What is true of all: a dtype, a rank, a dim that all share; symbols of the main graph mean nothing in a body."""
    dtypes, kinds, ranks = {t.dtype for t in given}, {t.kind for t in given}, {t.rank for t in given}
    if len(dtypes) > 1 or len(kinds) > 1:
        return TensorType()
    shape = None
    if len(ranks) == 1 and given[0].shape is not None:
        columns = zip(*(t.shape for t in given if t.shape is not None), strict=True)
        shape = tuple(c[0] if isinstance(c[0], int) and len(set(c)) == 1 else None for c in columns)
    return TensorType(dtypes.pop(), shape, kinds.pop())

"""One run of a pipeline: fixpoint, invariants after every pass, the end check, the search for a rewrite that fails it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import onnx
import onnx_graphsurgeon as gs

from surgeon_passes.blocks import find_blocks
from surgeon_passes.decisions import Decision
from surgeon_passes.dynamics import find_dynamic
from surgeon_passes.errors import SurgeonError, UsageError
from surgeon_passes.model import Model, Weights, export_light, import_model
from surgeon_passes.model.files import with_weights
from surgeon_passes.model.importer import import_function
from surgeon_passes.model.nested import count_nodes, every_node
from surgeon_passes.model.outputs import refine_outputs
from surgeon_passes.ops.custom import find
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.passes import Pass, Preparation, Rewrite, Specialize
from surgeon_passes.passes.prepare import Draft
from surgeon_passes.passes.state import InvariantError, Observer, Permit, Progress, State, Verify
from surgeon_passes.report.blocks import Block
from surgeon_passes.report.counts import count
from surgeon_passes.result import Result
from surgeon_passes.rules.misses import near_misses
from surgeon_passes.rules.registry import Registry
from surgeon_passes.selection import Only
from surgeon_passes.traces import Ran, StepTrace
from surgeon_passes.values.dims import never_equal
from surgeon_passes.watch import within

if TYPE_CHECKING:
    from surgeon_passes.pipeline import Pipeline
    from surgeon_passes.stages.recorder import Recorder
    from surgeon_passes.verify import Sample

log = logging.getLogger(__name__)

MAX_GUILTY = 8
"""Rewrites that the end check may find guilty, one by one, before it gives up."""


@dataclass(frozen=True)
class Switches:
    """What a run leaves out, keeps, and is confined to."""

    skip: frozenset[str] = frozenset()
    keep: tuple[str, ...] = ()
    only: Only | str | None = None
    permit: Permit | None = None
    traces: bool = False
    """whether edits are traced for a record"""


@dataclass(eq=False)
class _Outcome:
    state: State
    iterations: int
    converged: bool
    final: tuple[onnx.ModelProto, Weights]


class Run:
    """One run, repeated with single rewrites banned where the end check fails."""

    def __init__(
        self,
        pipeline: Pipeline,
        model: Model,
        verify: Verify,
        registry: Registry,
        observers: tuple[Observer, ...],
        progress: Progress | None,
        switches: Switches,
    ) -> None:
        self.pipeline = pipeline
        self.switches = switches
        self.verify = verify
        self.registry = registry
        self.observers = observers
        self.progress = progress
        self.source = model.source
        self.external = model.external
        self.is_ours = model.is_ours
        self.stamp = model.stamp
        self.model: Model | None = model
        self.before = count(model.graph)
        self.original, self.weights = (model.proto, model.weights) if model.proto is not None else export_light(model)
        self.runnable = with_references(self.original)
        """the original, with what stands for custom operators that ONNX Runtime does not know"""
        self.prepared = self.original
        """what the passes over the graph begin with: the original, inlined or converted where that is asked for"""
        self.recorder: Recorder | None = None
        """is told of every pass"""
        self._samples: list[Sample] | None = None
        self.prepared_by: list[StepTrace] = []

    def result(self) -> Result:
        began = time.perf_counter()
        if self.recorder is not None:
            self.recorder.begin(self.original, self.weights)
        draft = self.prepare()
        outcome = self.once(self.observers)
        check = self.end_check(outcome)
        guilty: list[tuple[Decision, Any]] = []
        while check is not None and check.status == "different" and len(guilty) < MAX_GUILTY:
            found = self.find_guilty(outcome, [d for d, _ in guilty])
            if found is None:
                break
            guilty.append((found, check))
            outcome = self.once((), banned=[d for d, _ in guilty])
            check = self.end_check(outcome)
        for decision, why in guilty:
            decision.status, decision.verdict = "undone", "refuted"
            decision.reason = f"the end check failed with it: {why.reason}"
            outcome.state.decisions.append(decision)
            for observer in self.observers:
                observer(decision)
        if check is not None:
            log.info("%s, end check: %s %s", self.source, check.status, check.reason)
        light, weights = outcome.final
        if not self.is_ours:  # what a caller holds it may change
            light = with_weights(light, weights, self.external, in_place=True)
        return Result(
            model=outcome.state.model,
            light=light,
            weights=weights,
            decided=[*draft.decisions, *outcome.state.decisions],
            notes=[*draft.notes, *outcome.state.notes],
            settings=outcome.state.settings,
            before=self.before,
            after=count(outcome.state.graph),
            iterations=outcome.iterations,
            converged=outcome.converged,
            check=check,
            verify=self.verify,
            seconds=time.perf_counter() - began,
            source=self.source,
            original=self.original,
            external=self.external,
            shapes=self.shapes,
            dynamic=find_dynamic(outcome.state.index, outcome.state.types, outcome.state.evaluator),
            blocks=self.blocks(outcome.state),
            find_near_misses=partial(self.near_misses, light, weights),
            ran=self.ran(outcome.state),
            stamp=self.stamp,
            checked_at=self.checked_at(),
        )

    def ran(self, state: State) -> Ran:
        """How this run was told to go, and how it went."""
        own = [r for p in self.pipeline.passes if isinstance(p, Rewrite) for r in p.rules]
        return Ran(
            pipeline=self.pipeline,
            skip=tuple(sorted(self.switches.skip)),
            keep=self.switches.keep,
            only="" if self.switches.only is None else str(self.switches.only),
            steps=(*self.prepared_by, *state.steps),
            rules=frozenset(state.looked_for),
            known={rule.name: tuple(rule.sets) for rule in (*self.registry, *own)},
        )

    def blocks(self, state: State) -> tuple[Block, ...]:
        rules = [*self.registry, *(r for p in self.pipeline.passes if isinstance(p, Rewrite) for r in p.rules)]
        return find_blocks(state.context, state.decisions, rules)

    def near_misses(self, final: onnx.ModelProto, weights: Weights) -> list[Decision]:
        """Where the pipeline's rules come close in the result. It is imported anew: its graph is the caller's by now."""
        state = State(import_model(final, self.source, weights), self.registry, Verify("off"), skip=self.switches.skip)
        steps = [step for step in self.pipeline.passes if isinstance(step, Rewrite)]
        rules = {rule.name: rule for step in steps for rule in step.chosen(state)}
        return list(near_misses(rules.values(), state.index.nodes(), state.context))

    @property
    def shapes(self) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        for step in self.pipeline.passes:
            if isinstance(step, Specialize):
                found.update(step.shapes)
        return found

    # --- before the import -------------------------------------------------------------------------------------------

    def prepare(self) -> Draft:
        """Carry out what is done to the file itself; the model is imported anew where that changed it."""
        steps = [p for p in self.pipeline.passes if isinstance(p, Preparation)]
        confined = bool(self.switches.keep) or self.switches.only is not None
        check = None if self.verify.mode == "off" else self.compare
        draft = Draft(self.original, self.verify, check, confined, self.weights)
        for step in steps:
            self.report(step.name)
            heard, held, began = len(draft.decisions), draft.proto, time.perf_counter()
            step.prepare(draft)
            if self.recorder is not None:
                self.recorder.prepared(step.name, draft.proto, self.weights)
            took = time.perf_counter() - began
            counts = count_nodes(held), count_nodes(draft.proto)
            self.prepared_by.append(StepTrace(step.name, 0, draft.proto is not held, took, *counts))
            for decision in draft.decisions[heard:]:
                decision.step = step.name
                for observer in self.observers:
                    observer(decision)
        if draft.proto is not self.original:
            self.prepared, self.model = draft.proto, None
        return draft

    def compare(self, proto: onnx.ModelProto, weights: Weights | None = None) -> Any:
        """The end check of ``proto`` against the original, which is run once for all checks; ``weights`` finds what it
        refers to."""
        from surgeon_passes.runtime import RuntimeFailure
        from surgeon_passes.verify import check_samples, without_inputs

        try:
            samples = self.samples()
        except RuntimeFailure as failure:
            return without_inputs(failure)
        files = (self.runnable, self.weights), (with_references(proto), weights or self.weights)
        return check_samples(*files, samples, self.verify.tolerances)

    # --- one run -----------------------------------------------------------------------------------------------------

    def fresh(self) -> Model:
        """The input model, imported anew after the first run has changed it."""
        if self.model is not None:
            model, self.model = self.model, None
            return model
        return import_model(self.prepared, self.source, self.weights)

    def once(
        self, observers: tuple[Observer, ...], banned: Sequence[Decision] = (), limit: int | None = None
    ) -> _Outcome:
        state = State(
            self.fresh(),
            self.registry,
            self.verify,
            self.prepared,
            observers=observers,
            progress=self.progress,
            banned={(d.rule, d.graph, d.root) for d in banned},
            edit_limit=limit,
            keep=self.switches.keep,
            only=self.switches.only,
            skip=self.switches.skip,
            permit=self.switches.permit,
            traces=self.switches.traces or self.switches.permit is not None,
        )
        self.attach_checker(state)
        recorder = self.recorder if limit is None else None  # a search for the guilty is no stage
        if recorder is not None:
            recorder.begin_graph()
        for step in (p for p in self.pipeline.passes if p.once and not isinstance(p, Preparation)):
            self.step(step, state, recorder)
        iterations, converged = self.fixpoint(state, recorder)
        for step in (p for p in self.pipeline.passes if p.last):
            self.step(step, state, recorder)
        state.index.sync()
        state.notes += [f"value_info contradicts the graph and was recomputed: {s}" for s in state.types.stale()]
        if 0 < self.original.ir_version < 4:
            state.notes.append(
                f"IR version {self.original.ir_version} is raised to 4, from which on weights need not be inputs"
            )
        types = state.types.declarable
        state.notes += refine_outputs(state.graph, types.type_of, never_equal)
        return _Outcome(state, iterations, converged, export_light(state.model, types))

    def fixpoint(self, state: State, recorder: Recorder | None) -> tuple[int, bool]:
        steps = [p for p in self.pipeline.passes if not (p.once or p.last)]
        for iteration in range(1, self.pipeline.max_iterations + 1):
            changed = [self.step(step, state, recorder, iteration) for step in steps]
            if not any(changed):
                return iteration, True
            state.refresh()
        return self.pipeline.max_iterations, not steps

    def step(self, step: Pass, state: State, recorder: Recorder | None, iteration: int = 0) -> bool:
        state.report_progress(step.name, 0, 1)
        held = _interface(state.graph)
        state.step, began = step.name, time.perf_counter()
        before = state.steps[-1].nodes_after if state.steps else state.index.count()
        changed = _run(step, state)
        took = time.perf_counter() - began
        state.steps.append(StepTrace(step.name, iteration, changed, took, before, state.index.count()))
        log.info("%s, pass %s: %d -> %d nodes, %.3f s", self.source, step.name, before, state.index.count(), took)
        now = _interface(state.graph)
        if step.once:
            held, now = _without_dims(held), _without_dims(now)
        if held != now:
            raise InvariantError(f"pass {step.name} changed the model's interface from {held} to {now}: this is a bug")
        state.report_progress(step.name, 1, 1)
        if recorder is not None:
            recorder.ran(self.title(step), iteration, state, changed)
        return changed

    def title(self, step: Pass) -> str:
        """Its name, and its sets where several passes of the name are told apart by those."""
        alike = [p for p in self.pipeline.passes if p.name == step.name]
        sets = "+".join(step.sets) if isinstance(step, Rewrite) else ""
        return f"{step.name}{{{sets}}}" if sets and len(alike) > 1 else step.name

    def attach_checker(self, state: State) -> None:
        if self.verify.mode == "off":
            return
        from surgeon_passes.verify import Activations, check

        feeds = [s.feeds for s in self.samples()] if self.verify.data is not None else None
        held = Activations((with_references(self.prepared), self.weights), feeds, self.prepared_samples)

        def run(regions: Sequence[Any]) -> list[Any]:
            return check(regions, state.types, _with_references(state), self.verify.tolerances, held)

        state.check = run

    # --- the end check -----------------------------------------------------------------------------------------------

    def samples(self) -> list[Sample]:
        """What the original is fed, and what it gives on it where it has been run. Raises RuntimeFailure, UsageError."""
        if self._samples is None:
            from surgeon_passes.verify import Sample, load_data, may_be_asked, observed_samples

            model = (self.runnable, self.weights)
            if self.verify.data is not None:
                self._samples = [Sample(feeds) for feeds in load_data(self.verify.data, model)]
            else:  # the run that shows feeds to be legal shows what checks of regions will ask for
                asked = may_be_asked(self.runnable) if self.prepared is self.original else []
                self._samples = observed_samples(model, asked, self.input_shapes(), self.verify.seed)
        return self._samples

    def prepared_samples(self) -> list[Sample]:
        """The same for what the passes begin with: where that is another model, sizes inside the original are not its own."""
        samples = self.samples()
        return samples if self.prepared is self.original else [replace(sample, shapes={}) for sample in samples]

    def checked_at(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the first inputs that original and result were run on."""
        first = self._samples[0].feeds if self._samples else {}
        return {name: value.shape for name, value in first.items() if hasattr(value, "shape")}

    def input_shapes(self) -> dict[str, list[Any]]:
        """The inputs' dims as the result has them, so that feeds fit both."""
        if not self.shapes:
            return {}
        bare = onnx.ModelProto(ir_version=self.original.ir_version, opset_import=self.original.opset_import)
        bare.graph.input.extend(self.original.graph.input)
        state = State(import_model(bare, self.source), Registry(), replace(self.verify, mode="off"))
        Specialize(self.shapes).run(state)
        return {str(t.name): list(t.shape) for t in state.graph.inputs if isinstance(t.shape, (list, tuple))}

    def end_check(self, outcome: _Outcome) -> Any:
        if self.verify.mode == "off" or not self.verify.end_check:
            return None
        self.report("end check")
        return self.compare(*_runnable(outcome))

    def report(self, what: str) -> None:
        if self.progress is not None:
            self.progress(what, 0, 1)

    def find_guilty(self, outcome: _Outcome, banned: list[Decision]) -> Decision | None:
        """The rewrite with which the end check begins to fail: the run is repeated up to its n-th edit, n by bisection."""
        low, high = 0, len(outcome.state.made)
        if high == 0:
            return None
        while low < high:
            middle = (low + high) // 2
            trial = self.once((), banned, limit=middle)
            check = self.end_check(trial)
            if check is not None and check.status == "different":
                high = middle
            else:
                low = middle + 1
        if low == 0:
            return None
        made = self.once((), banned, limit=low).state.made
        return made[low - 1] if len(made) >= low else None


def _run(step: Pass, state: State) -> bool:
    """Whether the pass changed anything. Raises UsageError, naming it, where somebody else's fails."""
    if type(step).__module__.startswith("surgeon_passes."):
        return step.run(state)
    try:
        with within(f"pass {step.name}"):
            return step.run(state)
    except SurgeonError:
        raise
    except Exception as error:
        raise UsageError(f"pass {step.name} failed: {type(error).__name__}: {error}") from error


def _with_references(state: State) -> gs.Graph:
    """The graph whose functions checks may call: the model's own, and bodies of custom operators that rules emit."""
    if not state.references:
        return state.graph
    graph = gs.Graph(opset=state.graph.opset, import_domains=state.graph.import_domains)
    graph.ir_version = max(8, state.graph.ir_version or 0)
    graph.functions = [*state.graph.functions, *map(import_function, state.references.values())]
    return graph


def _runnable(outcome: _Outcome) -> tuple[onnx.ModelProto, Weights]:
    """The result with the bodies of custom operators that rules emitted, so that ONNX Runtime can run it."""
    light, weights = outcome.final
    return with_references(light, list(outcome.state.references.values())), weights


def with_references(proto: onnx.ModelProto, more: Sequence[onnx.FunctionProto] = ()) -> onnx.ModelProto:
    """The model with the bodies of its custom operators that somebody has told about, or that are among ``more``; itself
    where there are none."""
    own = {(f.domain, f.name) for f in proto.functions}
    given = {(f.domain, f.name): f for f in more}
    found: dict[tuple[str, str], onnx.FunctionProto] = {}
    todo = [proto.graph.node, *(f.node for f in proto.functions)]
    while todo:
        for node in every_node(todo.pop()):
            key = (node.domain, node.op_type)
            known = find(*key) if node.domain else None
            body = given.get(key) or (known.function if known is not None else None)
            if body is not None and key not in own and key not in found:
                found[key] = body
                todo.append(body.node)
    return _with_functions(proto, found.values()) if found else proto


def _with_functions(proto: onnx.ModelProto, functions: Iterable[onnx.FunctionProto]) -> onnx.ModelProto:
    found = onnx.ModelProto()
    found.CopyFrom(proto)
    found.functions.extend(functions)
    known = {domain_of(entry.domain) for entry in found.opset_import}
    needed = {domain_of(e.domain): e for f in found.functions for e in f.opset_import}
    found.opset_import.extend(entry for domain, entry in needed.items() if domain not in known)
    found.ir_version = max(8, found.ir_version)
    return found


def _interface(graph: gs.Graph) -> list[tuple[str, str, str, Any]]:
    """(side, name, dtype, dims) of every input and output."""
    sides = (("input", graph.inputs), ("output", graph.outputs))
    return [
        (side, str(t.name), str(t.dtype), tuple(t.shape) if t.shape is not None else None)
        for side, tensors in sides
        for t in tensors
    ]


def _without_dims(interface: list[tuple[str, str, str, Any]]) -> list[tuple[str, str, str, Any]]:
    return [(side, name, dtype, None if dims is None else len(dims)) for side, name, dtype, dims in interface]

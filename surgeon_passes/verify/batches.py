"""Checks of many regions: batched, each verdict its own."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx_graphsurgeon as gs
from onnx import TensorProto

from surgeon_passes.ops.traits import CONTROL_FLOW
from surgeon_passes.region import Exactness, Region, Tolerances, Types, Verdict
from surgeon_passes.runtime import Array, RuntimeFailure, Session
from surgeon_passes.verify.activations import Activations
from surgeon_passes.verify.alone import check_alone
from surgeon_passes.verify.assemble import assemble, calls_function, piece_of
from surgeon_passes.verify.bounds import HALF, bound_of, elem_type, float_types, reduction_length
from surgeon_passes.verify.claims import claimed, contradiction
from surgeon_passes.verify.inputs import KINDS, LARGE
from surgeon_passes.verify.shapes import Candidates, candidates, elements
from surgeon_passes.verify.sides import Fingerprints, Sides, Unfit, sides_of
from surgeon_passes.verify.trial import Trial, agreed

_GUILTY = re.compile(r"\br(\d+)~")
_BATCH_ELEMENTS = 1 << 24
_BATCH_BYTES = 1 << 28
_NAMED_LIMIT = 4
_STEP = {int(TensorProto.FLOAT16): 2.0**-10, int(TensorProto.BFLOAT16): 2.0**-7}
"""Relative distance of neighbours in half precision: an output stored so cannot be told more finely."""
_DATA_REGIONS = 200
"""regions that one run of the original serves with real activations"""


def check(
    regions: Sequence[Region],
    types: Types,
    graph: gs.Graph,
    tolerances: Tolerances | None = None,
    activations: Activations | None = None,
    batch: int = 50,
) -> list[Verdict]:
    """Compare before and after of each region in ONNX Runtime; one verdict per region, in order.

    ``graph`` gives the IR version and the local functions. ``activations`` supplies values for integer boundary tensors
    where made-up ones are illegal; where it was given data, every boundary takes real values once, too. Equal regions
    share a verdict. Raises nothing for what a region does: that is its verdict.
    """
    return _Checker(types, graph, tolerances or Tolerances(), activations, batch).run(regions)


@dataclass(eq=False, slots=True)
class _Entry:
    """A distinct region: its trials, all of which must pass. ``outputs`` are the names of the region that is tried."""

    trials: list[Trial] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    verdict: Verdict | None = None

    def settle(self) -> Verdict:
        if self.verdict is None:
            verdicts = [t.finish() for t in self.trials]
            decisive = verdicts[0]
            for trial, verdict in zip(self.trials[1:], verdicts[1:], strict=True):
                if verdict.status == "refuted" and decisive.status == "verified":
                    decisive = verdict
                elif verdict.status == "unverified" and decisive.status == "verified" and not trial.piece.wide:
                    note = f"compared in float32 only: {verdict.reason}"
                    decisive = replace(decisive, reason=note)
            self.verdict = decisive
        return self.verdict

    def verdict_of(self, region: Region) -> Verdict:
        """The verdict on an equal region, which calls its outputs otherwise."""
        found = self.settle()
        names = _names(region)
        if found.tensor not in self.outputs or names == self.outputs:
            return found
        return replace(found, tensor=names[self.outputs.index(found.tensor)])


def _names(region: Region) -> list[str]:
    return [str(before.name) for before, _ in region.outputs]


class _Checker:
    def __init__(
        self, types: Types, graph: gs.Graph, tolerances: Tolerances, activations: Activations | None, batch: int
    ) -> None:
        self.types, self.graph, self.tolerances = types, graph, tolerances
        self.activations, self.batch = activations, max(1, batch)
        self.functions = {(f.domain or "", f.name) for f in graph.functions}
        self.count = 0
        self.shapes: dict[tuple[Hashable, bool], Candidates] = {}

    def run(self, regions: Sequence[Region]) -> list[Verdict]:
        prints = Fingerprints()
        shared: dict[Any, _Entry] = {}
        entries: list[_Entry] = []
        given: list[list[gs.Tensor]] = []
        for region in regions:
            given.append([])
            try:
                sides = sides_of(region, self.types)
                given[-1] = claimed(sides)
                key = prints.of(sides)
                entry = shared.get(key) if key is not None else None
                if entry is None:
                    entry = _Entry(self.trials(sides, key and key.structure), _names(region))
                    shared[len(shared) if key is None else key] = entry
            except Unfit as reason:
                entry = _Entry(verdict=Verdict("unverified", None, "", str(reason)))
            entries.append(entry)
        trials = [t for e in shared.values() for t in e.trials]
        if self.activations is not None:
            self.activations.announce(name for t in trials for name in t.index_names())
        for chunk in self.chunks(trials):
            self.run_chunk(chunk, 0)
        self.run_data(trials)
        verdicts = [entry.verdict_of(region) for entry, region in zip(entries, regions, strict=True)]
        return self.held_to_the_original(verdicts, given)

    def held_to_the_original(self, verdicts: list[Verdict], given: Sequence[Sequence[gs.Tensor]]) -> list[Verdict]:
        """Refute what holds only at sizes that the original does not give the tensors that a Shape reads."""
        names = [str(t.name) for v, ts in zip(verdicts, given, strict=True) if v.status == "verified" for t in ts]
        if self.activations is None or not names:
            return verdicts
        observed = self.activations.shapes(names)
        for number, (verdict, tensors) in enumerate(zip(verdicts, given, strict=True)):
            tensor, reason = contradiction(tensors, self.types, observed)
            if verdict.status == "verified" and reason:
                verdicts[number] = Verdict("refuted", None, tensor, reason)
        return verdicts

    # --- trials ------------------------------------------------------------------------------------------------------

    def trials(self, sides: Sides, structure: Hashable) -> list[Trial]:
        """One at the real precision; before it one in float32 where the region is half precision and may round."""
        tensors = [t for image in sides.images() for t in (*image.inputs, *image.outputs) if t.name]
        tensors += [t for pair in sides.region.outputs for t in pair]
        floats = float_types({id(t): t for t in tensors}.values(), self.types)
        exactness = sides.region.exactness
        bodies = any(image.node.op in CONTROL_FLOW for image in sides.images())
        half = bool(floats & HALF) and (exactness is not Exactness.EXACT or bodies) and not self.calls(sides)
        made = []
        if half:
            made.append(self.trial(sides, self.wide_floats(sides, floats), True, KINDS, exactness, structure))
            if exactness is Exactness.EXACT:  # ONNX Runtime casts around bodies, where it has no kernel for half
                exactness = Exactness.ROUNDING
        kinds = ("normal", "zeros") if half else KINDS
        return [*made, self.trial(sides, floats, False, kinds, exactness, structure)]

    def candidates(self, sides: Sides, structure: Hashable) -> Candidates:
        """Those of a region: regions of one structure, whatever their weights are, share theirs."""
        reducible = not sides.region.cone and not sides.gives_constants()
        found = self.shapes.get((structure, reducible)) if structure is not None else None
        if found is None:
            found = candidates(sides.input_types, sides.before, sides.after, sides.inputs, reducible)
            if structure is not None:
                self.shapes[structure, reducible] = found
        return found

    def calls(self, sides: Sides) -> bool:
        return bool(self.functions) and calls_function(sides, self.functions)

    def wide_floats(self, sides: Sides, floats: set[int]) -> set[int]:
        """Types that bound the float32 check: half precision counts where the new constants were rounded to it, or old ones
        that are gone: the root of 2, say, which an operator now has to the last bit."""
        rounded = {elem_type(c) for c in (*sides.new_constants, *sides.old_constants())} & HALF
        return (floats - HALF) | rounded | {int(TensorProto.FLOAT)}

    def trial(
        self,
        sides: Sides,
        floats: set[int],
        wide: bool,
        kinds: tuple[str, ...],
        exactness: Exactness,
        structure: Hashable = None,
    ) -> Trial:
        self.count += 1
        shapes = self.candidates(sides, structure)
        piece = piece_of(self.count, sides, wide, self.types)
        reduction = reduction_length(sides.images(), self.types)
        bound = bound_of(exactness, reduction, floats, self.tolerances)
        trial = Trial(piece, shapes, bound, kinds if sides.inputs else ("normal",), self.tolerances, exactness)
        trial.resolution = max((_STEP[f] for f in floats if f in _STEP), default=0.0)
        trial.noise_factor *= max(1.0, math.sqrt(reduction / 256))
        if trial.has_indices() and trial.is_arithmetic():
            trial.integers = "wide"
        return trial

    def chunks(self, trials: Sequence[Trial]) -> Iterator[list[Trial]]:
        """Batches of trials with one set of opsets and runs, bounded in number, activations and weights."""
        groups: dict[Any, list[Trial]] = {}
        for trial in trials:
            scope = trial.piece.sides.region.scope
            runs = (trial.candidates.wanted, trial.candidates.alike)
            key = (tuple(sorted(scope.opsets.items())), self.calls(trial.piece.sides), runs)
            groups.setdefault(key, []).append(trial)
        for group in groups.values():
            chunk: list[Trial] = []
            size = weight = 0
            for trial in group:
                more, heavier = _elements(trial), _weight(trial)
                full = size + more > _BATCH_ELEMENTS or weight + heavier > _BATCH_BYTES
                if chunk and (len(chunk) >= self.batch or full):
                    yield chunk
                    chunk, size, weight = [], 0, 0
                chunk.append(trial)
                size, weight = size + more, weight + heavier
            if chunk:
                yield chunk

    # --- running -----------------------------------------------------------------------------------------------------

    def run_chunk(self, chunk: list[Trial], named: int) -> None:
        """Give each trial its verdict or its errors; a failure isolates the trials that cause it."""
        lonely = [t for t in chunk if not t.candidates.first(1)]
        together = [t for t in chunk if t.candidates.first(1)]
        for trial in lonely:
            check_alone(trial, self.graph, self.activations)
        if not together:
            return
        try:
            made = assemble([t.piece for t in together], self.graph)
            session = Session(made.model, external=made.external)
            for attempt in range(max(len(t.candidates.first(t.candidates.wanted)) for t in together)):
                for kind in KINDS:
                    self.run_kind(together, session, attempt, kind)
        except (RuntimeFailure, Unfit) as failure:
            for trial in together:
                trial.reset()
            self.split(together, failure, named)

    def run_kind(self, chunk: Sequence[Trial], session: Session, attempt: int, kind: str) -> None:
        live = [t for t in chunk if t.verdict is None and t.takes(kind, attempt)]
        if not live:
            return
        own = {id(t): self.feeds(t, attempt, kind) for t in chunk}
        for _ in LARGE:
            values = session.run({n: x for f in own.values() for n, x in f.items()})
            together = agreed(live, values)
            again: list[Trial] = []
            for trial in live:
                if not trial.overflows(kind, values):
                    trial.judge(kind, own[id(trial)], values, self.graph, together)
                elif trial.scale + 1 < len(LARGE):
                    trial.scale += 1
                    own[id(trial)] = self.feeds(trial, attempt, kind)
                    again.append(trial)
            live = again
            if not live:
                return

    def feeds(self, trial: Trial, attempt: int, kind: str) -> dict[str, Array]:
        return trial.feeds(trial.candidates.first(attempt + 1)[-1], attempt, kind)

    def split(self, chunk: list[Trial], failure: Exception, named: int) -> None:
        """Blame the trials that ONNX Runtime names, or bisect."""
        if len(chunk) == 1:
            check_alone(chunk[0], self.graph, self.activations)
            return
        numbers = {int(n) for n in _GUILTY.findall(str(failure))}
        guilty = [t for t in chunk if t.piece.number in numbers]
        if guilty and named < _NAMED_LIMIT:
            for trial in guilty:
                check_alone(trial, self.graph, self.activations)
            rest = [t for t in chunk if t.piece.number not in numbers]
            if rest:
                self.run_chunk(rest, named + 1)
            return
        middle = len(chunk) // 2
        self.run_chunk(chunk[:middle], named)
        self.run_chunk(chunk[middle:], named)

    # --- real activations --------------------------------------------------------------------------------------------

    def run_data(self, trials: Sequence[Trial]) -> None:
        """Where data was given, every region that is still good sees real activations, too."""
        if self.activations is None or not self.activations.has_data:
            return
        for start in range(0, len(trials), _DATA_REGIONS):
            some = [
                t for t in trials[start : start + _DATA_REGIONS] if t.verdict is None or t.verdict.status == "verified"
            ]
            self.activations.announce(str(i.name) for t in some for i in t.piece.sides.inputs)
            for trial in some:
                check_alone(trial, self.graph, self.activations, only_data=True)
            self.activations.release()


def _elements(trial: Trial) -> int:
    return sum(map(elements, trial.candidates.first(1)))


def _weight(trial: Trial) -> int:
    sides = trial.piece.sides
    return sum(int(getattr(c._values, "nbytes", 0)) for c in sides.constants)

"""A region that could not be checked in a batch: its sides are loaded apart, and several inputs are tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import onnx_graphsurgeon as gs
from onnx import TensorProto

from surgeon_passes.region import Verdict
from surgeon_passes.runtime import Array, RuntimeFailure, Session, Value
from surgeon_passes.verify.activations import Activations
from surgeon_passes.verify.assemble import assemble, unknown_operators
from surgeon_passes.verify.bounds import HALF
from surgeon_passes.verify.inputs import LARGE
from surgeon_passes.verify.reference import ReferenceSession
from surgeon_passes.verify.resize import Shape
from surgeon_passes.verify.sides import Unfit
from surgeon_passes.verify.trial import Trial

_Runner: TypeAlias = Session | ReferenceSession
_Start: TypeAlias = tuple[tuple[Shape, ...], str, Mapping[int, Array] | None]
"""shapes of the boundary, what integers hold, activations"""


class _AfterFailed(Exception):
    """The original ran, the rewritten side did not."""


def check_alone(trial: Trial, graph: gs.Graph, activations: Activations | None, only_data: bool = False) -> None:
    """Set the trial's verdict, or leave it open where everything that ran agreed."""
    try:
        before = _load(trial, graph, 0)
    except (RuntimeFailure, Unfit) as failure:
        if isinstance(failure, RuntimeFailure) and failure.is_fatal:
            reason = str(failure)
        else:
            reason = f"the original region does not load: {_explained(trial, failure)}"
        trial.verdict = Verdict("unverified", None, "", reason)
        return
    try:
        after = _load(trial, graph, 1)
    except (RuntimeFailure, Unfit) as failure:
        unknown = unknown_operators(trial.piece.sides.after, graph)
        if unknown:
            mend = "give reference= to the rule, or tell it by an Operator"
            reason = f"ONNX Runtime does not know {', '.join(unknown)}: {mend}"
            trial.verdict = Verdict("unverified", None, "", reason)
            return
        after = None
        trial.note = f"the rewritten region does not load: {_explained(trial, failure)}"
    alone = _Alone(trial, graph, before, after)
    try:
        if only_data:
            alone.with_data(activations)
        else:
            alone.run(activations)
    except _AfterFailed as failed:
        trial.verdict = Verdict("refuted", None, "", str(failed))
    except RuntimeFailure as failure:
        trial.verdict = Verdict("unverified", None, "", str(failure))


def _explained(trial: Trial, failure: RuntimeFailure | Unfit) -> str:
    return trial.explain(failure) if isinstance(failure, RuntimeFailure) else str(failure)


def _load(trial: Trial, graph: gs.Graph, side: int) -> _Runner:
    made = assemble([trial.piece], graph, (side,))
    if not trial.reference:
        try:
            return Session(made.model, external=made.external)
        except RuntimeFailure as failure:
            if side or failure.code != "NOT_IMPLEMENTED" or not _lacks_kernels(trial):
                raise
            trial.reference = True
            trial.note = "computed by onnx.reference: ONNX Runtime has no kernel for this type"
    return ReferenceSession(made.model, made.external)


def _lacks_kernels(trial: Trial) -> bool:
    """Whether the region is of a type that ONNX Runtime implements in part."""
    partly = {*HALF, TensorProto.DOUBLE}
    constants = {gs_constant.dtype for gs_constant in trial.piece.sides.constants}
    return bool(partly & set(trial.piece.real_types)) or any(getattr(d, "name", "") == "float64" for d in constants)


class _Alone:
    def __init__(self, trial: Trial, graph: gs.Graph, before: _Runner, after: _Runner | None) -> None:
        self.trial, self.graph, self.before, self.after = trial, graph, before, after
        self.first_reason = ""

    def run(self, activations: Activations | None) -> None:
        """Made-up inputs first; activations where the original refuses those."""
        done = self._try_all(self._made_up(), self.trial.candidates.wanted)
        if not done and activations is not None:
            done = self._try_all(self._activated(activations), 2)
        if not done:
            reason = self.first_reason or "its boundary shapes are unknown"
            given = f" ({activations.failure})" if activations is not None and activations.failure else ""
            self.trial.verdict = Verdict("unverified", None, "", f"{reason}{given}; give --data")

    def with_data(self, activations: Activations | None) -> None:
        """One run on every set of real activations at hand."""
        if activations is not None:
            for shapes, _, real in self._activated(activations):
                if self.trial.verdict is None or self.trial.verdict.status == "verified":
                    self.trial.verdict = None
                    self._one("data", shapes, 0, real)

    def _made_up(self) -> Iterator[_Start]:
        modes = ("wide",) if self.trial.integers == "wide" else ()
        if self.trial.has_indices():
            modes = (*modes, "small", "ones", "count")
        for shapes in self.trial.candidates:
            for mode in modes or ("small",):
                yield shapes, mode, None

    def _activated(self, activations: Activations) -> Iterator[_Start]:
        inputs = self.trial.piece.sides.inputs
        for values in activations.of([str(t.name) for t in inputs]):
            real = {p: values[str(t.name)] for p, t in enumerate(inputs) if str(t.name) in values}
            if len(real) == len(inputs):
                yield tuple(real[p].shape for p in range(len(inputs))), "small", _as_fed(self.trial, real)

    def _try_all(self, starts: Iterator[_Start], wanted: int) -> int:
        """How many starts were checked, up to ``wanted``; all kinds of each."""
        done = attempt = 0
        seen: set[tuple[Shape, ...]] = set()
        for shapes, mode, real in starts:
            if done >= wanted or self.trial.verdict is not None:
                break
            if shapes in seen:
                continue
            self.trial.integers = mode
            before = self.trial.compared
            if self._one("normal", shapes, attempt, real) and (
                self.trial.compared > before or self.trial.verdict is not None
            ):
                seen.add(shapes)
                done += 1
                for kind in self.trial.kinds:
                    if kind != "normal" and self.trial.verdict is None:
                        self._one(kind, shapes, attempt, real)
            attempt += 1
        return done

    def _one(self, kind: str, shapes: tuple[Shape, ...], attempt: int, real: Mapping[int, Array] | None) -> bool:
        """Run one kind on both sides; False where the original refuses it. Raises _AfterFailed."""
        for _ in LARGE:
            feeds = self.trial.feeds(shapes, attempt, kind, real)
            try:
                values: dict[str, Value] = self.before.run(feeds)
            except RuntimeFailure as failure:
                if failure.is_fatal:
                    raise
                self.first_reason = self.first_reason or self.trial.explain(failure)
                return False
            if not self.trial.overflows(kind, values):
                values.update(self._rewritten(feeds))
                self.trial.judge(kind, feeds, values, self.graph)
                return True
            if self.trial.scale + 1 == len(LARGE):
                return False
            self.trial.scale += 1
        return False

    def _rewritten(self, feeds: Mapping[str, Array]) -> dict[str, Value]:
        if self.after is None:
            raise _AfterFailed(self.trial.note)
        try:
            return self.after.run(feeds)
        except RuntimeFailure as failure:
            raise _AfterFailed(f"the rewritten region does not run: {self.trial.explain(failure)}") from failure


def _as_fed(trial: Trial, real: Mapping[int, Array]) -> dict[int, Array]:
    """Activations in the element types in which the region is fed."""
    from onnx import helper

    return {
        p: x.astype(helper.tensor_dtype_to_np_dtype(trial.piece.feed_types[p]), copy=False) for p, x in real.items()
    }

"""A pipeline on a model, once more with something left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from surgeon_passes.model import Model, Weights, import_model

if TYPE_CHECKING:
    import onnx

    from surgeon_passes.decisions import Decision
    from surgeon_passes.result import Result
    from surgeon_passes.run import Run
    from surgeon_passes.stages.recorder import Recorder

Attempt: TypeAlias = "Callable[[Sequence[str], Recorder | None], Result]"
"""The result of a run that leaves out these passes, rules, sets and edits besides what it leaves out anyway."""
Make: TypeAlias = "Callable[[Model, Sequence[str], bool, bool], Run]"
"""A run on a model without the passes, rules and edits of some names; whether it is the first, whether edits are traced"""


class Attempts:
    """Runs of one pipeline on one model: the model is what it was at the beginning of each."""

    def __init__(self, model: Model, make: Make, isolated: bool = False, traces: bool = False) -> None:
        """``isolated``: whether ONNX Runtime is kept in a process of its own. ``traces``: whether edits are traced."""
        self._model = model
        self._make = make
        self._isolated = isolated
        self._traces = traces
        self._given: tuple[onnx.ModelProto, Weights] | None = None

    def __call__(self, left_out: Sequence[str] = (), recorder: Recorder | None = None) -> Result:
        result = self._run(left_out, recorder, self._traces)
        if not self._traces:
            result.trace_again = partial(self._traced, tuple(left_out))
        return result

    def _run(self, left_out: Sequence[str], recorder: Recorder | None, traces: bool) -> Result:
        first = self._given is None
        run = self._make(self._model if first else self._again(), left_out, first, traces)
        self._given = run.original, run.weights
        run.recorder = recorder
        result = run.result()
        result.isolated = self._isolated
        return result

    def _traced(self, left_out: Sequence[str]) -> list[Decision]:
        return self._run(left_out, None, True).decided

    def _again(self) -> Model:
        """A run has changed the model that was given."""
        assert self._given is not None
        model = import_model(self._given[0], self._model.source, self._given[1])
        model.external, model.is_ours = self._model.external, self._model.is_ours
        return model

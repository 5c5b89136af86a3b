"""The model after each pass of a run, as it goes on."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from surgeon_passes.model import Weights, export_light
from surgeon_passes.passes.state import State

ORIGINAL = "original"


@dataclass(frozen=True, eq=False)
class Shot:
    """``proto`` refers to large weights, which ``weights`` finds. ``edits`` are rules and kinds of edits that were applied
    since the shot before."""

    name: str
    round: int
    proto: onnx.ModelProto
    weights: Weights
    edits: tuple[str, ...] = ()

    @property
    def model(self) -> tuple[onnx.ModelProto, Weights]:
        return self.proto, self.weights


class Recorder:
    """Takes a shot after each pass that changed anything."""

    def __init__(self) -> None:
        self._of_file: list[Shot] = []
        self._of_graph: list[Shot] = []
        self._told = 0

    @property
    def shots(self) -> list[Shot]:
        """The original first."""
        return [*self._of_file, *self._of_graph]

    def begin(self, proto: onnx.ModelProto, weights: Weights) -> None:
        """A run begins with this model."""
        self._of_file = [Shot(ORIGINAL, 0, proto, weights)]

    def prepared(self, name: str, proto: onnx.ModelProto, weights: Weights) -> None:
        """A pass that works on the file has run."""
        if proto is not self._of_file[-1].proto:
            self._of_file.append(Shot(name, 0, proto, weights, (name,)))

    def begin_graph(self) -> None:
        """The passes over the graph begin, or begin anew after the end check has found a rewrite guilty."""
        self._of_graph, self._told = [], 0

    def ran(self, name: str, turn: int, state: State, changed: bool) -> None:
        """A pass over the graph has run, in this turn of the pipeline."""
        edits = tuple(dict.fromkeys(d.rule for d in state.applied[self._told :]))
        self._told = len(state.applied)
        if changed or edits:
            state.index.sync()
            self._of_graph.append(Shot(name, turn, *export_light(state.model, state.types.declarable), edits))

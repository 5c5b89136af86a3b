"""onnx's reference evaluator, for the few types that ONNX Runtime has no kernel for (Conv in double or bfloat16)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from onnx import ModelProto

from surgeon_passes.runtime import Array, RuntimeFailure, Value


class ReferenceSession:
    """Looks like :class:`surgeon_passes.runtime.Session`. Nodes must be in topological order."""

    def __init__(self, model: ModelProto, external: Mapping[str, Array]) -> None:
        from onnx.reference import ReferenceEvaluator

        whole = ModelProto()
        whole.CopyFrom(model)
        kept = [t for t in whole.graph.initializer if t.name not in external]
        del whole.graph.initializer[:]
        whole.graph.initializer.extend(kept)
        self._external = dict(external)
        for name in external:
            whole.graph.input.add(name=name)
        self._names = [o.name for o in whole.graph.output]
        try:
            self._evaluator: Any = ReferenceEvaluator(whole)
        except Exception as error:
            raise RuntimeFailure(f"onnx.reference: {error}") from error

    def run(self, feeds: Mapping[str, Value], outputs: Iterable[str] | None = None) -> dict[str, Value]:
        """Raises RuntimeFailure."""
        names = list(self._names if outputs is None else outputs)
        try:
            with np.errstate(all="ignore"):
                values = self._evaluator.run(names, {**feeds, **self._external})
        except Exception as error:
            raise RuntimeFailure(f"onnx.reference: {type(error).__name__}: {error}") from error
        return dict(zip(names, values, strict=True))

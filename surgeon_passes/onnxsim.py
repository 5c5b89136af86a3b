"""Inside onnxsim: ``onnxsim.simplify(model, custom_rewriter=surgeon_passes.onnxsim_rewriter())``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx

from surgeon_passes.pipeline import Pipeline, optimize


def onnxsim_rewriter(
    pipeline: Pipeline | None = None, **options: Any
) -> Callable[[onnx.ModelProto], onnx.ModelProto | bool]:
    """What onnxsim calls in each of its rounds: gives the rewritten model, or False where no rewrite was applied.

    ``options`` are those of :meth:`Pipeline.run` where there is a ``pipeline``, else of :func:`optimize`. What the checks do
    not show equal is not taken: the model stays as onnxsim has it.
    """

    def rewrite(model: onnx.ModelProto) -> onnx.ModelProto | bool:
        result = optimize(model, **options) if pipeline is None else pipeline.run(model, **options)
        return result.proto if result.applied and result.exit_code not in (4, 5) else False

    return rewrite


__all__ = ["onnxsim_rewriter"]

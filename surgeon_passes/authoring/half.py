"""What half precision itself costs: a graph in float16 against the same graph in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from surgeon_passes.authoring.slots import Array
from surgeon_passes.region import Tolerances
from surgeon_passes.runtime import RuntimeFailure, Session
from surgeon_passes.verify.endcheck import output_gap

_FACTORS = (1.0, 0.9, 0.97, 1.03, 1.1)
"""Of the inputs: of one element alone, chance decides whether rounding shows."""


def is_half_precision_alone(
    original: onnx.ModelProto, result: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]]
) -> bool:
    """Whether a result that differs in float16 is as near to what float32 gives as the original is.

    A float16 graph rounds at each step, so fewer steps give other numbers. The measure is that of the end check: its noise,
    which moving the inputs by one ulp does not show here, is how far the original is from float32; the bound is
    ``noise_factor`` times that, at most ``noise_limit`` tolerances. Never where there is a Cast.
    """
    wide = _wide(original)
    if wide is None:
        return False
    limits = Tolerances()
    try:
        exact, before, after = Session(wide), Session(original), Session(result)
        noise: dict[str, float] = {}
        for scaled in (_scaled(f, factor) for f in feeds for factor in _FACTORS):
            for name, error in _errors(exact, before, scaled).items():
                noise[name] = max(noise.get(name, 0.0), error)
        for given in feeds:
            for name, error in _errors(exact, after, given).items():
                allowed = min(limits.noise_factor * noise[name], limits.noise_limit * limits.half)
                if not error <= max(limits.half, allowed):
                    return False
    except RuntimeFailure:
        return False
    return True


def _scaled(feeds: Mapping[str, Array], factor: float) -> dict[str, Array]:
    return {n: (a * factor).astype(a.dtype) if a.dtype == np.float16 else a for n, a in feeds.items()}


def _errors(exact: Session, half: Session, feeds: Mapping[str, Array]) -> dict[str, float]:
    """By output, what ``half`` is off, over the output's scale."""
    reference, found = exact.run({n: _widened(a) for n, a in feeds.items()}), half.run(feeds)
    return {n: output_gap(_widened(v), _widened(found[n])).error for n, v in reference.items()}


def _widened(value: object) -> Array:
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _wide(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The graph in float32; None for one that is not in float16 throughout."""
    if any(node.op_type in ("Cast", "CastLike") for node in model.graph.node):
        return None
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    found = False
    for value in (*wide.graph.input, *wide.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT16:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
            found = True
    for tensor in wide.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT16:
            tensor.CopyFrom(numpy_helper.from_array(_widened(numpy_helper.to_array(tensor)), tensor.name))
    del wide.graph.value_info[:]
    return wide if found else None

"""What rounding does to a model: its inputs and weights moved by one ulp, and other kernels of ONNX Runtime."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from surgeon_passes.compare.runtimes import OnnxRuntime
from surgeon_passes.compare.side import Side
from surgeon_passes.compare.stream import Stream
from surgeon_passes.errors import RuntimeFailure
from surgeon_passes.runtime import Value
from surgeon_passes.verify.inputs import one_ulp

MOVES = 2
_MOVED = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE})


def perturbed_runs(stream: Stream, names: Sequence[str]) -> list[list[dict[str, Value]]]:
    """Values of ``names`` in all runs, once for each way to round otherwise; ways that do not run are left out."""
    found = []
    for other in _perturbed(stream):
        try:
            found.append(other.values(names))
        except RuntimeFailure as failure:
            if failure.is_fatal:
                raise
    return found


def _perturbed(stream: Stream) -> Iterator[Stream]:
    for seed in range(MOVES):
        feeds = [moved(run, seed) for run in stream.feeds]
        yield Stream(_with_moved_weights(stream.side, seed), stream.runtime, feeds)
    for level in ("off", "all"):
        yield Stream(stream.side, OnnxRuntime(level), stream.feeds)


def moved(feeds: Mapping[str, Value], seed: int) -> dict[str, Value]:
    """``feeds`` with every float moved by one ulp, each its own way."""
    return {n: one_ulp(x, 17 * seed + k) if isinstance(x, np.ndarray) else x for k, (n, x) in enumerate(feeds.items())}


def _with_moved_weights(side: Side, seed: int) -> Side:
    found = copy.copy(side)
    found.proto = ModelProto()
    found.proto.CopyFrom(side.proto)
    for k, tensor in enumerate(found.proto.graph.initializer):
        if tensor.data_type in _MOVED and len(tensor.dims) >= 2:  # of vectors some are sizes, such as a Resize's scales
            array = one_ulp(side.weights.array(tensor), 17 * seed + 5 + k)
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))
    return found

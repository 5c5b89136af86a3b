"""Dims of the model's outputs, as the result states them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_graphsurgeon as gs

from surgeon_passes.region import TensorType

Never = Callable[[Any, Any], bool]
"""whether two dims (ints or names) can never be equal"""


def refine_outputs(graph: gs.Graph, type_of: Callable[[gs.Tensor], TensorType], differ: Never) -> list[str]:
    """Write what is known of the outputs' dims over what the file leaves open; gives notes on what was wrong in it.

    Names, order, dtypes and ranks stay. A fixed dim stays, and so does the name of an input's dim; either gives way only
    to a computed dim that it can never equal. A fixed dim that is computed replaces any name. Names that no input has say
    nothing to a caller: the expression over the inputs' dims takes their place, where there is one.
    """
    names = {d for t in graph.inputs if isinstance(t.shape, (list, tuple)) for d in t.shape if isinstance(d, str)}
    inputs = {id(t) for t in graph.inputs}
    notes = []
    for tensor in graph.outputs:
        if not isinstance(tensor, gs.Variable) or id(tensor) in inputs or not isinstance(tensor.shape, (list, tuple)):
            continue
        found = type_of(tensor)
        if found.kind != "tensor" or found.shape is None or len(found.shape) != len(tensor.shape):
            continue
        dims = [_refined(old, new, names, differ) for old, new in zip(tensor.shape, found.shape, strict=True)]
        notes += [
            f"output '{tensor.name}' is declared with '{old}' at dim {place}, which is {now}; corrected"
            for place, (old, now) in enumerate(zip(tensor.shape, dims, strict=True))
            if old in names and now != old and isinstance(now, str)
        ]
        tensor.shape = dims
    return notes


def _refined(declared: Any, computed: Any, names: set[str], differ: Never) -> Any:
    if computed is None:
        return declared
    if isinstance(computed, int):
        return computed
    is_bound = isinstance(declared, int) or declared in names
    return declared if is_bound and not differ(declared, computed) else str(computed)

"""What the shape evaluator knows of one tensor, and from where."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from surgeon_passes.dynamics.finder import Finder
from surgeon_passes.errors import UsageError, did_you_mean
from surgeon_passes.index import GraphIndex, node_label
from surgeon_passes.values import Evaluator, TypeMap, Value
from surgeon_passes.values.dims import show, type_shape

FULL, PARTIAL, UNKNOWN = "full", "partial", "unknown"
ELEMENTS = 64
"""Elements of a value that are written out."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """``known``: full, partial or unknown; ``why`` it is not full; ``cone``: labels of the nodes that give the value."""

    tensor: str
    made_by: str
    dtype: str
    shape: str
    known: str
    value: str
    why: str
    cone: tuple[str, ...]


def knowledge(index: GraphIndex, types: TypeMap, evaluator: Evaluator, name: str) -> Knowledge:
    """Raises UsageError for a name that no tensor has."""
    try:
        tensor = evaluator.tensor(name)
    except KeyError:
        names = {str(t.name) for t in index.tensors() if t.name}
        raise UsageError(f"the model has no tensor '{name}'{did_you_mean(name, names)}") from None
    entry = types.type_of(tensor)
    value = evaluator.value(tensor)
    known = FULL if isinstance(value, np.ndarray) else PARTIAL if value is not None else UNKNOWN
    dtype = "unknown" if not entry.dtype else onnx.TensorProto.DataType.Name(entry.dtype).lower()
    return Knowledge(
        tensor=str(tensor.name),
        made_by=_made_by(index, tensor),
        dtype=dtype if entry.kind == "tensor" else f"{entry.kind} of {dtype}",
        shape=show(None if (shape := type_shape(entry)) is None else tuple(types.names.told(d) for d in shape)),
        known=known,
        value=_shown(value, types),
        why="" if known == FULL else _why(Finder(index, types, evaluator), tensor, value),
        cone=tuple(node_label(n) for n in evaluator.cone(tensor)),
    )


def _made_by(index: GraphIndex, tensor: gs.Tensor) -> str:
    node = index.producer(tensor)
    if node is not None:
        path = index.scope(node).path
        return node_label(node) + (f" in {path}" if path else "")
    if isinstance(tensor, gs.Constant):
        return "initializer" + (" that callers may override" if index.is_graph_input(tensor) else "")
    return "input"


def _shown(value: Value, types: TypeMap) -> str:
    if value is None:
        return ""
    if isinstance(value, np.ndarray):
        return np.array2string(value, threshold=ELEMENTS, separator=", ")
    elements = [show((types.names.told(d),))[1:-1] for d in value.dims()]
    more = [f"… {len(elements) - ELEMENTS} more"] if len(elements) > ELEMENTS else []
    text = ", ".join(elements[:ELEMENTS] + more)
    return text if value.shape == () else f"[{text}]" + (f" of shape {value.shape}" if len(value.shape) > 1 else "")


def _why(finder: Finder, tensor: gs.Tensor, value: object) -> str:
    """What keeps the value from being known."""
    node = finder.index.producer(tensor)
    if node is None:
        return "it is given when the model runs"
    if value is None or finder.is_unknown(tensor):
        origin = finder.data_behind([tensor])
        if origin:
            return f"it comes from {origin}"
    needs = [need for need in finder.needs_of_value(tensor) if need != f"the value of '{tensor.name}'"]
    if needs:
        return f"it depends on {', '.join(dict.fromkeys(needs))}"
    return f"{node.op} is not evaluated here"

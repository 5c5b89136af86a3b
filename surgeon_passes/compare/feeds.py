"""What both models are fed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper

from surgeon_passes.compare.side import Side
from surgeon_passes.errors import RuntimeFailure, UsageError
from surgeon_passes.runtime import Value
from surgeon_passes.verify.compare import is_float
from surgeon_passes.verify.feeds import InputType, fit_feeds, generate_feeds, load_data
from surgeon_passes.verify.segments import open_model

Feeds = dict[str, Value]


def feeds_of(a: Side, inputs: Mapping[str, str], b: Side, data: Any, shapes: Mapping[str, Any]) -> list[Feeds]:
    """Feeds of A, one mapping a run: from ``data``, or made up so that A runs, at the sizes that B asks for. ``shapes`` are
    of A's inputs. Raises UsageError, and RuntimeFailure where none can be made up."""
    _check_shapes(a, shapes)
    if data is not None:
        return fit_feeds(load_data(data), a.proto)
    wanted = {**_fixed(a, inputs, b), **shapes}
    try:
        return generate_feeds((a.proto, a.weights), wanted, runner=open_model((a.proto, a.weights)))
    except RuntimeFailure as failure:
        raise RuntimeFailure(f"{a.source}: no inputs could be made up: {failure}", failure.code) from failure


def _check_shapes(a: Side, shapes: Mapping[str, Any]) -> None:
    names = {i.name for i in a.inputs}
    for name in shapes:
        if name not in names:
            raise UsageError(f"{a.source} has no input '{name}' (its inputs: {', '.join(sorted(names)) or 'none'})")


def _fixed(a: Side, inputs: Mapping[str, str], b: Side) -> dict[str, list[Any]]:
    """Shapes of A's inputs, with B's sizes where A's are open. Raises UsageError where both are fixed and differ."""
    others = {i.name: i for i in b.inputs}
    found: dict[str, list[Any]] = {}
    for mine in a.inputs:
        dims = _merged(a, mine, b, others[inputs[mine.name]])
        if dims is not None:
            found[mine.name] = dims
    return found


def _merged(a: Side, mine: InputType, b: Side, other: InputType) -> list[Any] | None:
    if mine.dims is None or other.dims is None:
        return list(mine.dims or other.dims or ()) or None
    for x, y in zip(mine.dims, other.dims, strict=True):
        if isinstance(x, int) and isinstance(y, int) and x != y:
            text = f"{a.source} reads {list(mine.dims)} as '{mine.name}', {b.source} reads {list(other.dims)}"
            raise UsageError(f"the models' inputs differ: {text}")
    return [y if isinstance(y, int) else x for x, y in zip(mine.dims, other.dims, strict=True)]


def fed_to(b: Side, inputs: Mapping[str, str], feeds: Sequence[Feeds]) -> list[Feeds]:
    """The same as B's inputs; floats in the type that B reads. Raises UsageError where types differ otherwise."""
    types = {i.name: i for i in b.inputs}
    return [{y: _cast(run[x], types[y]) for x, y in inputs.items()} for run in feeds]


def _cast(value: Value, found: InputType) -> Value:
    if found.kind != "tensor" or not isinstance(value, np.ndarray) or not found.dtype:
        return value
    wanted = helper.tensor_dtype_to_np_dtype(found.dtype)
    if value.dtype == wanted or (wanted == np.dtype(object) and value.dtype.kind in "OU"):
        return value
    if is_float(value) and (wanted.kind == "f" or "float" in wanted.name):
        return value.astype(wanted)
    raise UsageError(
        f"the models' inputs differ: '{found.name}' is {wanted} in one of them, {value.dtype} in the other"
    )

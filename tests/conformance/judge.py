"""Running a model, in ONNX Runtime or where that cannot in onnx's reference, and comparing what two runs give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from surgeon_passes.runtime import RuntimeFailure, Session

Values = dict[str, Any]

OPAQUE = {
    **dict.fromkeys((TensorProto.BFLOAT16,), TensorProto.FLOAT),
    **{
        getattr(TensorProto, name): TensorProto.FLOAT
        for name in ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0", "FLOAT4E2M1")
    },
    **{getattr(TensorProto, name): TensorProto.INT8 for name in ("INT4", "INT2")},
    **{getattr(TensorProto, name): TensorProto.UINT8 for name in ("UINT4", "UINT2")},
}
"""Element types that ONNX Runtime's Python face cannot take or give, and the wider ones that hold each of their values."""

STEPS = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
"""What rounding may change, of an output's scale; every other type is compared exactly."""


class NotRun(Exception):
    """Neither ONNX Runtime nor the reference runs the model."""


class Runtime:
    """ONNX Runtime, optimisations off; opaque inputs and outputs go through Casts to a type that holds their values."""

    name = "ONNX Runtime"

    def run(self, model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Values:
        whole, opaque = with_casts(model)
        wide = {
            name: value.astype(helper.tensor_dtype_to_np_dtype(OPAQUE[opaque[name]])) if name in opaque else value
            for name, value in feeds.items()
        }
        try:
            return Session(whole).run(wide)
        except RuntimeFailure as failure:
            raise NotRun(f"{failure.code}: {failure}") from failure


class Reference:
    """onnx's own evaluator."""

    name = "the reference"

    def run(self, model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Values:
        try:
            with np.errstate(all="ignore"):
                values = ReferenceEvaluator(model).run(None, dict(feeds))
        except Exception as error:  # whatever an operator's Python raises
            raise NotRun(f"{type(error).__name__}: {error}") from error
        return dict(zip([output.name for output in model.graph.output], values, strict=True))


def with_casts(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, int]]:
    """A copy in which Casts stand at inputs and outputs of opaque types, and the element types of these by name."""
    opaque = {v.name: _element(v) for v in (*model.graph.input, *model.graph.output) if _element(v) in OPAQUE}
    if not opaque:
        return model, {}
    found = onnx.ModelProto()
    found.CopyFrom(model)
    del found.graph.value_info[:]
    inner = {name: f"{name}__opaque" for name in opaque}
    _rename(found.graph, inner)
    before = [
        helper.make_node("Cast", [v.name], [inner[v.name]], to=opaque[v.name])
        for v in found.graph.input
        if v.name in opaque
    ]
    after = [
        helper.make_node("Cast", [inner[v.name]], [v.name], to=OPAQUE[opaque[v.name]])
        for v in found.graph.output
        if v.name in opaque and all(v.name != i.name for i in found.graph.input)
    ]
    nodes = [*before, *found.graph.node, *after]
    del found.graph.node[:]
    found.graph.node.extend(nodes)
    for value in (*found.graph.input, *found.graph.output):
        if value.name in opaque:
            value.type.tensor_type.elem_type = OPAQUE[opaque[value.name]]
    return found, opaque


def _element(value: onnx.ValueInfoProto) -> int:
    return int(value.type.tensor_type.elem_type) if value.type.HasField("tensor_type") else 0


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in graph.node:
        for side in (node.input, node.output):
            side[:] = [names.get(name, name) for name in side]
        for attribute in node.attribute:
            for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                _rename(body, names)
                for value in (*body.input, *body.output):
                    value.name = names.get(value.name, value.name)


def differences(wanted: Values, found: Values, random: bool = False) -> list[str]:
    """What differs between two runs, in words; of ``random`` models only kinds, dtypes and shapes are compared."""
    if list(wanted) != list(found):
        return [f"outputs {list(found)} instead of {list(wanted)}"]
    return [line for name in wanted for line in _compare(name, wanted[name], found[name], random)]


def _compare(name: str, want: Any, got: Any, random: bool) -> Iterable[str]:
    if isinstance(want, list | dict):
        pairs = zip(want, got, strict=False) if isinstance(want, list) else ((want[k], got.get(k)) for k in want)
        if type(want) is not type(got) or len(want) != len(got):
            yield f"{name}: {got!r:.80} instead of {want!r:.80}"
            return
        for k, (one, other) in enumerate(pairs):
            yield from _compare(f"{name}[{k}]", one, other, random)
        return
    if want is None or got is None:
        if want is not got:
            yield f"{name}: {got!r:.80} instead of {want!r:.80}"
        return
    want, got = np.asarray(want), np.asarray(got)
    if (want.dtype, want.shape) != (got.dtype, got.shape):
        yield f"{name}: {got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    elif not random and not _close(want, got):
        yield f"{name}: {got.ravel()[:6]} instead of {want.ravel()[:6]}"


def _close(want: np.ndarray, got: np.ndarray) -> bool:
    if want.dtype == object:
        return bool(want.tolist() == got.tolist())
    step = STEPS.get(want.dtype.name)
    if step is None or want.tobytes() == got.tobytes():
        return want.tobytes() == got.tobytes()
    a, b = want.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    scale = float(np.abs(a[finite]).max(initial=0.0))
    return bool(np.all(np.abs(a[finite] - b[finite]) <= step * scale))

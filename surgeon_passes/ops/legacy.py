"""Old opset forms, read as the newest form and written back: one entry an operator.

``normalise`` turns an old node into (inputs, attributes) of the newest form; ``emit`` is its inverse for the rewriter.
Attributes that have become inputs show as constants that are in no graph until a rewrite uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_graphsurgeon as gs

if TYPE_CHECKING:
    from surgeon_passes.ops.view import NodeView

Tensors = Sequence[gs.Tensor | None]


class CannotEmit(Exception):
    """The node cannot be written at the model's opset."""


@dataclass
class Form:
    inputs: Tensors
    attrs: dict[str, Any]
    regular: bool = True


@dataclass(frozen=True)
class Legacy:
    """Valid below opset ``until``. ``emit`` gets (inputs, attrs, opset) of the newest form."""

    until: int
    normalise: Callable[[NodeView], Form]
    emit: Callable[[Tensors, dict[str, Any], int], Form] = field(
        default=lambda inputs, attrs, opset: Form(inputs, attrs)
    )


def virtual(view: NodeView, attr: str, values: Any) -> gs.Constant:
    """A constant for what is an attribute in the file."""
    base = view.node.name or (view.node.outputs[0].name if view.node.outputs else view.op)
    return gs.Constant(f"{base}.{attr}", np.ascontiguousarray(values) if np.ndim(values) else np.asarray(values))


def constant_ints(tensor: gs.Tensor | None) -> list[int] | None:
    """Values of a constant integer operand; None where it is missing."""
    if tensor is None:
        return None
    if not isinstance(tensor, gs.Constant):
        raise CannotEmit(f"'{tensor.name}' must be constant below this opset")
    return [int(v) for v in np.asarray(tensor.values).ravel()]


def _float_dtype(view: NodeView) -> Any:
    dtype = getattr(view.input(0), "dtype", None)
    return dtype if isinstance(dtype, np.dtype) or (isinstance(dtype, type) and dtype is not None) else np.float32


# --- integer lists that moved from attributes to inputs ------------------------------------------------------------------


def _moved(until: int, names: Mapping[str, int]) -> Legacy:
    """Attributes ``names`` (to their later input position)."""

    def normalise(view: NodeView) -> Form:
        inputs = list(view.inputs)
        attrs = dict(view.attrs)
        for name, position in names.items():
            if name in attrs and not isinstance(attrs[name], gs.Node.AttributeRef):
                inputs += [None] * (position + 1 - len(inputs))
                inputs[position] = virtual(view, name, np.array(attrs.pop(name), np.int64))
        return Form(inputs, attrs)

    def emit(inputs: Tensors, attrs: dict[str, Any], opset: int) -> Form:
        attrs = dict(attrs)
        for name, position in names.items():
            if position < len(inputs):
                values = constant_ints(inputs[position])
                if values is not None:
                    attrs[name] = values
        return Form(list(inputs)[: min(names.values())], attrs)

    return Legacy(until, normalise, emit)


def _reduce(until: int) -> Legacy:
    base = _moved(until, {"axes": 1})

    def emit(inputs: Tensors, attrs: dict[str, Any], opset: int) -> Form:
        attrs = {k: v for k, v in attrs.items() if k != "noop_with_empty_axes"}
        return base.emit(inputs, attrs, opset)

    return Legacy(until, base.normalise, emit)


# --- operators with a story of their own ---------------------------------------------------------------------------------


def _clip(view: NodeView) -> Form:
    inputs: list[gs.Tensor | None] = [view.input(0), None, None]
    attrs = dict(view.attrs)
    for position, name in ((1, "min"), (2, "max")):
        if name in attrs:
            inputs[position] = virtual(view, name, np.array(attrs.pop(name), _float_dtype(view)))
    return Form(inputs, attrs)


def _emit_clip(inputs: Tensors, attrs: dict[str, Any], opset: int) -> Form:
    attrs = dict(attrs)
    for position, name in ((1, "min"), (2, "max")):
        bound = inputs[position] if position < len(inputs) else None
        if bound is not None:
            if not isinstance(bound, gs.Constant):
                raise CannotEmit("Clip bounds must be constant below opset 11")
            attrs[name] = float(np.asarray(bound.values).reshape(()))
    return Form(inputs[:1], attrs)


def _flattening(view: NodeView) -> Form:
    """Softmax < 13 flattens from ``axis`` on: the newest form only where that is the last axis."""
    shape = getattr(view.input(0), "shape", None)
    axis = int(view.attrs.get("axis", 1))
    regular = axis == -1 or (shape is not None and axis % len(shape) == len(shape) - 1)
    return Form(view.inputs, {**view.attrs, "axis": axis}, regular)


def _batch_normalization(view: NodeView) -> Form:
    attrs = dict(view.attrs)
    extra = any(t is not None for t in view.outputs[1:])
    training = (not attrs.pop("is_test", 0)) if view.opset < 7 else extra
    regular = bool(attrs.pop("spatial", 1))
    attrs["training_mode"] = int(bool(training))
    return Form(view.inputs, attrs, regular)


def _emit_batch_normalization(inputs: Tensors, attrs: dict[str, Any], opset: int) -> Form:
    attrs = dict(attrs)
    if attrs.pop("training_mode", 0):
        raise CannotEmit("a training BatchNormalization cannot be written below opset 14")
    if opset < 7:
        attrs["is_test"] = 1
    return Form(inputs, attrs)


def _dropout(view: NodeView) -> Form:
    attrs = dict(view.attrs)
    inputs: list[gs.Tensor | None] = [view.input(0)]
    training = view.opset < 7 and not attrs.pop("is_test", 0)
    if "ratio" in attrs:
        inputs.append(virtual(view, "ratio", np.array(attrs.pop("ratio"), np.float32)))
    if training:
        inputs = [*inputs, *[None] * (2 - len(inputs)), virtual(view, "training_mode", np.array(True))]
    return Form(inputs, attrs)


def _emit_dropout(inputs: Tensors, attrs: dict[str, Any], opset: int) -> Form:
    raise CannotEmit("Dropout is not emitted below opset 12")


def _pad(view: NodeView) -> Form:
    attrs = dict(view.attrs)
    pads = attrs.pop("pads", attrs.pop("paddings", None))
    if pads is None:
        return Form(view.inputs, attrs, regular=len(view.inputs) > 1)
    value = attrs.pop("value", 0.0)
    inputs = [
        view.input(0),
        virtual(view, "pads", np.array(pads, np.int64)),
        virtual(view, "value", np.array(value, _float_dtype(view))),
    ]
    return Form(inputs, attrs)


def _emit_pad(inputs: Tensors, attrs: dict[str, Any], opset: int) -> Form:
    if opset >= 11:
        if len(inputs) > 3 and inputs[3] is not None:
            raise CannotEmit("Pad has no axes below opset 18")
        return Form(inputs, attrs)
    attrs = dict(attrs, pads=constant_ints(inputs[1]))
    if len(inputs) > 2 and inputs[2] is not None:
        if not isinstance(inputs[2], gs.Constant):
            raise CannotEmit("Pad's value must be constant below opset 11")
        attrs["value"] = float(np.asarray(inputs[2].values).reshape(()))
    return Form(inputs[:1], attrs)


def _reshape(view: NodeView) -> Form:
    return _moved(5, {"shape": 1}).normalise(view)


def _resize(view: NodeView) -> Form:
    """Resize-10 and Upsample: scales only, asymmetric coordinates."""
    attrs = dict(view.attrs)
    attrs["coordinate_transformation_mode"] = "asymmetric"
    attrs["nearest_mode"] = "floor"
    if view.op == "Upsample" and "scales" in attrs:
        return Form([view.input(0), None, virtual(view, "scales", np.array(attrs.pop("scales"), np.float32))], attrs)
    return Form([view.input(0), None, view.input(1)], attrs)


def _emit_resize(inputs: Tensors, attrs: dict[str, Any], opset: int) -> Form:
    raise CannotEmit("Resize is not emitted below opset 11")


def _topk(view: NodeView) -> Form:
    return _moved(10, {"k": 1}).normalise(view) if view.opset < 10 else Form(view.inputs, dict(view.attrs))


def _broadcasting(view: NodeView) -> Form:
    """Before opset 7 the second operand broadcasts only where ``broadcast`` says so, aligned by ``axis``."""
    return Form(view.inputs, dict(view.attrs), regular=not view.attrs.get("broadcast", 0))


def _slice(view: NodeView) -> Form:
    return _moved(10, {"starts": 1, "ends": 2, "axes": 3}).normalise(view)


_SPLIT = _moved(13, {"split": 1})


def _emit_split(inputs: Tensors, attrs: dict[str, Any], opset: int) -> Form:
    attrs = {k: v for k, v in attrs.items() if k != "num_outputs"}
    return Form(inputs, attrs) if opset >= 13 else _SPLIT.emit(inputs, attrs, opset)


def _plain(view: NodeView) -> Form:
    return Form(view.inputs, dict(view.attrs))


def _split(view: NodeView) -> Form:
    return _SPLIT.normalise(view) if view.opset < 13 else _plain(view)


def _table() -> dict[str, Legacy]:
    found = {
        "Squeeze": _moved(13, {"axes": 1}),
        "Unsqueeze": _moved(13, {"axes": 1}),
        "ReduceSum": _reduce(13),
        "Clip": Legacy(11, _clip, _emit_clip),
        "BatchNormalization": Legacy(14, _batch_normalization, _emit_batch_normalization),
        "Dropout": Legacy(12, _dropout, _emit_dropout),
        "Pad": Legacy(18, lambda v: _pad(v) if v.opset < 11 else _plain(v), _emit_pad),
        "Reshape": Legacy(5, _reshape, _moved(5, {"shape": 1}).emit),
        "Resize": Legacy(11, _resize, _emit_resize),
        "Upsample": Legacy(10, _resize, _emit_resize),
        "TopK": Legacy(10, _topk, _moved(10, {"k": 1}).emit),
        "Slice": Legacy(10, _slice, _moved(10, {"starts": 1, "ends": 2, "axes": 3}).emit),
        "Split": Legacy(18, _split, _emit_split),
    }
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        found[op] = Legacy(13, _flattening)
    for op in ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less", "Gemm", "PRelu"):
        found[op] = Legacy(7, _broadcasting)
    for op in ("Max", "Mean", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"):
        found[f"Reduce{op}"] = _reduce(18)
    return found


LEGACY: dict[str, Legacy] = _table()

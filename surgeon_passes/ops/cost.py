"""Multiply-accumulates and weights of a node, for the gate that keeps rewrites from making a model dearer.

A multiply-accumulate counts once. Biases (rank 1) are left out of the weights: moving a scalar into one is no growth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

import onnx_graphsurgeon as gs

from surgeon_passes.ops.custom import find
from surgeon_passes.ops.view import NodeView
from surgeon_passes.region import TensorType

TypeOf = Callable[[gs.Tensor], TensorType]
ShapeOf = Callable[[gs.Tensor], "tuple[int, ...] | None"]


@dataclass(frozen=True)
class Cost:
    """``macs`` are per output position where some size is unknown (``per_position``)."""

    macs: int
    weights: int
    per_position: bool = False


def initializer_shape(tensor: gs.Tensor) -> tuple[int, ...] | None:
    return tuple(tensor.shape) if isinstance(tensor, gs.Constant) else None


def cost(views: Iterable[NodeView], type_of: TypeOf, constant_shape: ShapeOf = initializer_shape) -> Cost:
    """Sum over nodes; sizes are used only where all of them are known.

    ``constant_shape`` gives the shape of a weight, None for an activation.
    """
    items = list(views)
    positions = [_positions(v, type_of) for v in items]
    known = all(p is not None for p in positions)
    macs = sum(
        _macs_per_position(v, type_of, constant_shape) * (p if known and p else 1)
        for v, p in zip(items, positions, strict=True)
    )
    return Cost(macs, sum(_weights(v, constant_shape) for v in items), not known)


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of several; per position where one of them is."""
    items = list(costs)
    return Cost(sum(c.macs for c in items), sum(c.weights for c in items), any(c.per_position for c in items))


def _static(tensor_type: TensorType) -> tuple[int, ...] | None:
    shape = tensor_type.shape
    if shape is None or not all(isinstance(d, int) for d in shape):
        return None
    return tuple(int(d) for d in shape if isinstance(d, int))


def _has_macs(view: NodeView) -> bool:
    known = find(view.domain, view.op)
    return known is not None and known.macs is not None


def _positions(view: NodeView, type_of: TypeOf) -> int | None:
    """Places at which the kernel is applied: batch times spatial size (of the input for ConvTranspose)."""
    tensor = view.input(0) if view.op == "ConvTranspose" else view.output(0)
    shape = _static(type_of(tensor)) if tensor is not None else None
    if shape is None:
        return None
    if view.domain and _has_macs(view):
        sized = (t for t in view.inputs if t is not None)
        return 1 if all(_static(type_of(t)) is not None for t in sized) else None
    if view.op in ("Conv", "ConvTranspose", "BatchNormalization"):
        return prod(shape[:1]) * prod(shape[2:])
    return prod(shape[:-1])


def _macs_per_position(view: NodeView, type_of: TypeOf, constant_shape: ShapeOf) -> int:
    if view.domain:
        known = find(view.domain, view.op)
        every = all(_static(type_of(t)) is not None for t in (*view.inputs, view.output(0)) if t is not None)
        return known.macs(view, type_of) if known is not None and known.macs is not None and every else 0
    if view.op not in ("Conv", "ConvTranspose", "Gemm", "MatMul", "BatchNormalization"):
        return 0
    tensor = view.input(1)
    if tensor is None:
        return 1
    return prod(constant_shape(tensor) or _static(type_of(tensor)) or ())


def _weights(view: NodeView, constant_shape: ShapeOf) -> int:
    shapes = [constant_shape(t) for t in view.inputs if t is not None]
    return sum(prod(s) for s in shapes if s is not None and len(s) > 1)

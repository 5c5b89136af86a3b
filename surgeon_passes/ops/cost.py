"""Multiply-accumulates and weights of a node, for the gate that keeps rewrites from making a model dearer.

A multiply-accumulate counts once. Biases (rank 1) are left out of the weights: moving a scalar into one is no growth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

import onnx_graphsurgeon as gs

from surgeon_passes.ops.view import NodeView
from surgeon_passes.region import TensorType

TypeOf = Callable[[gs.Tensor], TensorType]


@dataclass(frozen=True)
class Cost:
    """``macs`` are per output position where some size is unknown (``per_position``)."""

    macs: int
    weights: int
    per_position: bool = False


def cost(views: Iterable[NodeView], type_of: TypeOf) -> Cost:
    """Sum over nodes; sizes are used only where all of them are known."""
    items = list(views)
    positions = [_positions(v, type_of) for v in items]
    known = all(p is not None for p in positions)
    macs = sum(
        _macs_per_position(v, type_of) * (p if known and p else 1) for v, p in zip(items, positions, strict=True)
    )
    return Cost(macs, sum(_weights(v) for v in items), not known)


def _static(tensor_type: TensorType) -> tuple[int, ...] | None:
    shape = tensor_type.shape
    if shape is None or not all(isinstance(d, int) for d in shape):
        return None
    return tuple(int(d) for d in shape if isinstance(d, int))


def _constant_shape(tensor: gs.Tensor | None, type_of: TypeOf) -> tuple[int, ...]:
    if tensor is None:
        return ()
    if isinstance(tensor, gs.Constant):
        return tuple(tensor.shape)
    return _static(type_of(tensor)) or ()


def _positions(view: NodeView, type_of: TypeOf) -> int | None:
    """Places at which the kernel is applied: batch times spatial size (of the input for ConvTranspose)."""
    tensor = view.input(0) if view.op == "ConvTranspose" else view.output(0)
    shape = _static(type_of(tensor)) if tensor is not None else None
    if shape is None:
        return None
    if view.op in ("Conv", "ConvTranspose", "BatchNormalization"):
        return prod(shape[:1]) * prod(shape[2:])
    return prod(shape[:-1])


def _macs_per_position(view: NodeView, type_of: TypeOf) -> int:
    if view.op in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
        return prod(_constant_shape(view.input(1), type_of))
    if view.op == "BatchNormalization":
        return prod(_constant_shape(view.input(1), type_of))
    return 0


def _weights(view: NodeView) -> int:
    return sum(prod(t.shape) for t in view.inputs if isinstance(t, gs.Constant) and len(t.shape) > 1)

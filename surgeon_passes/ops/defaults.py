"""Attribute defaults that no schema states: they depend on the operator's other inputs, some on rank.

A function gets the node view and gives the value, or None where the rank is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surgeon_passes.ops.view import NodeView

Default = Callable[["NodeView"], Any]


def tensor_rank(tensor: Any) -> int | None:
    """Rank that a graphsurgeon tensor states, None where it states none."""
    shape = getattr(tensor, "shape", None)
    return None if shape is None else len(shape)


def _kernel(view: NodeView) -> tuple[int, ...] | None:
    """Spatial kernel: written out, or the weight's trailing dims."""
    if view.has_attr("kernel_shape"):
        return tuple(view.attr("kernel_shape"))
    weight = view.input(3 if view.op == "QLinearConv" else 1)
    shape = getattr(weight, "shape", None)
    if shape is None or not all(isinstance(d, int) for d in shape):
        return None
    return tuple(shape[2:])


def _spatial_rank(view: NodeView) -> int | None:
    kernel = _kernel(view)
    if kernel is not None:
        return len(kernel)
    rank = tensor_rank(view.input(0))
    return None if rank is None else rank - 2


def _repeat(value: int, times: int = 1) -> Default:
    def default(view: NodeView) -> tuple[int, ...] | None:
        rank = _spatial_rank(view)
        return None if rank is None else (value,) * (rank * times)

    return default


def _reversed_perm(view: NodeView) -> tuple[int, ...] | None:
    rank = tensor_rank(view.input(0))
    return None if rank is None else tuple(reversed(range(rank)))


def _table() -> dict[tuple[str, str], Default]:
    found: dict[tuple[str, str], Default] = {("Transpose", "perm"): _reversed_perm}
    for op in ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv"):
        found[op, "kernel_shape"] = _kernel
    for op in ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "LpPool", "DeformConv"):
        found[op, "strides"] = _repeat(1)
        found[op, "dilations"] = _repeat(1)
        found[op, "pads"] = _repeat(0, 2)
    found["MaxUnpool", "strides"] = _repeat(1)
    found["MaxUnpool", "pads"] = _repeat(0, 2)
    found["ConvTranspose", "output_padding"] = _repeat(0)
    return found


COMPUTED: dict[tuple[str, str], Default] = _table()

"""Attributes that an operator takes, drawn once its first operand is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnx import TensorProto, helper

from surgeon_passes.authoring.slots import ODD, Slot, Unfit

Drawer = Callable[[Slot], Any]
OMIT = object()
"""The operator's default."""


def draw(name: str, slot: Slot) -> Any:
    """A value for attribute ``name``; OMIT where no choice is known."""
    drawer = BY_OPERATOR.get((slot.op, name)) or BY_NAME.get(name)
    try:
        return OMIT if drawer is None else drawer(slot)
    except ODD as error:
        raise Unfit from error


def wanted(op: str) -> tuple[str, ...]:
    """Attributes that are drawn though a pattern does not name them, in this order."""
    return ALWAYS.get(op, ())


def _window(slot: Slot) -> list[int]:
    spatial = slot.rank(3) - 2
    return [slot.one_of(1, 3, 3) if slot.keeps else slot.one_of(1, 2, 3)] * spatial


def _pads(slot: Slot) -> Any:
    kernel = slot.attrs.get("kernel_shape")
    if not kernel:
        return OMIT
    if slot.keeps:
        return [k // 2 for k in kernel] * 2
    return [slot.size(0, max(0, k // 2)) for k in kernel] * 2


def _strides(slot: Slot) -> Any:
    return OMIT if slot.keeps or slot.chance(0.5) else [2] * (slot.rank(3) - 2)


def _group(slot: Slot) -> Any:
    channels = slot.at(0).shape[1] if slot.rank(3) else 1
    return OMIT if slot.chance(0.7) else slot.one_of(*[g for g in range(1, channels + 1) if channels % g == 0])


def _axis(slot: Slot) -> int:
    rank = slot.rank()
    return slot.size(-rank, rank - 1) if slot.chance(0.5) else slot.one_of(-1, min(1, rank - 1))


def _perm(slot: Slot) -> list[int]:
    rank = slot.at(0).rank
    if slot.chance(0.15):
        return list(range(rank))
    if rank > 1 and slot.chance(0.35):
        return [*range(rank - 2), rank - 1, rank - 2]
    if rank == 6 and slot.chance(0.8):
        return list(slot.one_of([0, 1, 4, 2, 5, 3], [0, 3, 4, 1, 5, 2], [0, 1, 3, 5, 2, 4], [0, 3, 5, 1, 2, 4]))
    if rank == 4 and slot.chance(0.5):
        return list(slot.one_of([0, 2, 1, 3], [0, 2, 3, 1], [0, 3, 1, 2], [0, 1, 3, 2]))
    return [int(i) for i in slot.rng.permutation(rank)]


def _to(slot: Slot) -> int:
    kinds = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.INT32)
    if slot.first is not None and slot.chance(0.4):
        return int(helper.np_dtype_to_tensor_dtype(slot.first))
    return int(slot.one_of(TensorProto.FLOAT, *kinds))


def _groups(slot: Slot) -> int:
    channels = slot.at(0).shape[1] if slot.rank(2) else 1
    return int(slot.one_of(*[g for g in range(1, channels + 1) if channels % g == 0]))


_EQUATIONS = ("ij->ji", "ijk->ik", "ij,jk->ik", "bij,bjk->bik", "ij,kj->ik", "i,j->ij", "ijk,ij->ij", "bhqd,bhkd->bhqk",
              "ij,ij->ij", "ij,jk,kl->il", "ii->i", "bij,bjk,bkl->bil")  # fmt: skip


def _equation(slot: Slot) -> str:
    count = len(slot.given)
    fitting = [e for e in _EQUATIONS if e.partition("->")[0].count(",") + 1 == count]
    return str(slot.one_of(*fitting or _EQUATIONS))


def _one_of(*options: Any) -> Drawer:
    return lambda slot: slot.one_of(*options)


BY_NAME: dict[str, Drawer] = {
    "axis": _axis,
    "perm": _perm,
    "to": _to,
    "kernel_shape": _window,
    "pads": _pads,
    "strides": _strides,
    "dilations": lambda _: OMIT,
    "group": _group,
    "keepdims": _one_of(1, 1, 0),
    "transA": lambda slot: 0 if slot.keeps else slot.one_of(0, 1),
    "transB": _one_of(0, 1),
    "alpha": _one_of(OMIT, 1.0, 0.5, 1.702),
    "beta": _one_of(OMIT, 1.0, 0.5),
    "epsilon": _one_of(1e-5, 1e-3, OMIT),
    "approximate": _one_of("none", "tanh"),
    "blocksize": _one_of(2),
    "num_groups": _groups,
    "equation": _equation,
    "hidden_size": _one_of(3, 2),
    "direction": _one_of(OMIT, "forward", "bidirectional"),
    "count_include_pad": _one_of(1, 1, 0),
    "num_outputs": lambda slot: slot.outputs,
    "reduction": _one_of(OMIT, "none"),
    "batch_dims": lambda _: 0,
    "interleaved": _one_of(0, 1),
    "scale": _one_of(OMIT, 0.5),
    "p": _one_of(1, 2),
    "detect_negative": lambda _: 1,
    "select_last_index": _one_of(OMIT, 0, 1),
}
BY_OPERATOR: dict[tuple[str, str], Drawer] = {
    ("Pad", "mode"): _one_of("constant", "constant", "constant", "reflect", "edge"),
    ("Resize", "mode"): _one_of("nearest", "linear"),
    ("DepthToSpace", "mode"): _one_of("DCR", "CRD"),
    ("Flatten", "axis"): lambda slot: slot.one_of(1, 1, slot.size(0, slot.at(0).rank)),
    ("HardSigmoid", "alpha"): _one_of(OMIT, 0.2, 1 / 6),
    ("LayerNormalization", "axis"): _one_of(-1, -1, -2),
    ("RMSNormalization", "axis"): _one_of(-1, -1, -2),
    ("Softmax", "axis"): _axis,
    ("Concat", "axis"): lambda slot: _axis(slot) if slot.chance(0.4) else slot.one_of(1, -1, 0),
    ("Gather", "axis"): lambda slot: 0 if slot.chance(0.5) else _axis(slot),
}

_CONV = ("kernel_shape", "pads", "strides", "group")
_POOL = ("kernel_shape", "pads", "strides")
ALWAYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "com.microsoft.FusedConv"), _CONV),
    "MaxPool": _POOL,
    "AveragePool": (*_POOL, "count_include_pad"),
    "Gemm": ("transA", "transB"),
    "Transpose": ("perm",),
    "Cast": ("to",),
    "Concat": ("axis",),
    "Gather": ("axis",),
    "Flatten": ("axis",),
    "Split": ("axis",),
    "Pad": ("mode",),
    "Resize": ("mode",),
    "Softmax": ("axis",),
    "LayerNormalization": ("axis", "epsilon"),
    "RMSNormalization": ("axis", "epsilon"),
    "GroupNormalization": ("num_groups", "epsilon"),
    "BatchNormalization": ("epsilon",),
    "DepthToSpace": ("blocksize", "mode"),
    "SpaceToDepth": ("blocksize",),
    "Einsum": ("equation",),
    "Gelu": ("approximate",),
    "LpNormalization": ("axis", "p"),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), ("hidden_size", "direction")),
    **dict.fromkeys(("ArgMax", "ArgMin"), ("axis", "keepdims", "select_last_index")),
    **{f"Reduce{kind}": ("keepdims",) for kind in ("Sum", "Mean", "Max", "Min", "L1", "L2", "SumSquare")},
}
BEFORE_OPERANDS = frozenset({"DepthToSpace", "SpaceToDepth", "Einsum", "LSTM", "GRU", "RNN"})
"""Operators whose first operand follows from their attributes."""

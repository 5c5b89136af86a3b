"""What an attention mask may hold."""

from __future__ import annotations

import numpy as np

from surgeon_passes import Decline, Operand

from ._arrays import Floats

MOVES = {"Expand", "Unsqueeze", "Squeeze", "Reshape", "Slice", "Transpose", "Identity", "Tile", "Gather"}
"""Operators whose result holds nothing but elements of their first operand."""


def require_open_rows(mask: Operand) -> None:
    """That no row of a mask is all -infinity: there Softmax is NaN, and ONNX Runtime's Attention 0. Raises Decline."""
    known = mask.value
    if isinstance(known, np.ndarray):
        if not np.isfinite(known.max(axis=-1, initial=-np.inf)).all():
            raise Decline(f"a row of the mask '{mask.name}' is all -infinity, or holds NaN")
    elif not _is_finite(mask):
        raise Decline(
            f"the mask '{mask.name}' may hold -infinity: a row that is all masked is 0 in Attention, else NaN"
        )


def _is_finite(mask: Operand) -> bool:
    """Whether all that a mask may hold is finite: constants, chosen from and moved."""
    found = leaves(mask)
    return found is not None and all(np.isfinite(value).all() for value in found)


def leaves(mask: Operand) -> list[Floats] | None:
    """The constants that a mask is chosen from and moved; None where it is made in another way."""
    todo, found = [mask], []
    while todo:
        tensor = todo.pop()
        value = tensor.value
        if isinstance(value, np.ndarray):
            found.append(value.astype(np.float64))
        elif tensor.is_made and tensor.op == "Where":
            todo += [operand for operand in tensor.operands[1:] if operand is not None]
        elif tensor.is_made and tensor.op in MOVES:
            todo += [operand for operand in tensor.operands[:1] if operand is not None]
        else:
            return None
    return found

"""How shapes follow from shapes: one module per operator family, registered on import."""

from surgeon_passes.values.shapes import (
    broadcast,
    control,
    create,
    index,
    matmul,
    microsoft,
    recurrent,
    reduce,
    reshape,
    window,
)

__all__ = ["broadcast", "control", "create", "index", "matmul", "microsoft", "recurrent", "reduce", "reshape", "window"]

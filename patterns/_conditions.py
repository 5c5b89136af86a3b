"""What the rules that put an operator together again ask of the tensors around it."""

from __future__ import annotations

from onnx import TensorProto

from surgeon_passes import Decline, Operand

from ._arrays import Floats, finite


def require_same_rank(x: Operand, y: Operand) -> None:
    """That ``y`` has the rank of ``x``: a constant of one element may still have many dims. Raises Decline."""
    if x.rank is None or x.rank != y.rank:
        raise Decline(f"'{x.name}' and '{y.name}' are not known to have the same rank")


def require_single_or_half(x: Operand, op: str) -> None:
    """That ``x`` is float or float16: ONNX Runtime has no ``op`` in double, or one that is less precise. Raises Decline."""
    if x.dtype not in (TensorProto.FLOAT, TensorProto.FLOAT16):
        raise Decline(f"'{x.name}' is double, or of unknown type: {op} is computed in single precision")


def number(operand: Operand) -> float:
    """The one number that a constant holds. Raises Decline where it holds several, or one that is not finite."""
    values: Floats = finite(operand)
    if values.size != 1:
        raise Decline(f"'{operand.name}' of shape {list(values.shape)} is not one number")
    return float(values.reshape(()))


def require_nonnegative(y: Operand) -> None:
    """That an Abs is of floats or unsigned integers: |-128| is -128 in int8. Raises Decline."""
    if y.op == "Abs" and y.dtype not in (
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
        TensorProto.BFLOAT16,
        TensorProto.DOUBLE,
        TensorProto.UINT8,
        TensorProto.UINT16,
        TensorProto.UINT32,
        TensorProto.UINT64,
    ):
        raise Decline(
            f"'{y.name}' is not known to be of floats or unsigned integers: the lowest integer stays negative"
        )

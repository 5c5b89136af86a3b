"""Linear layers as matrices."""

from __future__ import annotations

import numpy as np

from surgeon_passes import Operand

from ._arrays import Floats, channel_vector, finite


def gemm_weight(y: Operand, weight: Operand) -> Floats:
    """What a Gemm multiplies with, alpha and transB worked in: float64 [K, N]."""
    held = finite(weight) * float(y.attr("alpha"))
    return held.T if y.attr("transB") else held


def gemm_bias(y: Operand, bias: Operand | None, columns: int) -> Floats:
    """What a Gemm adds to each of its columns: float64 [columns]. Raises Decline where it differs from row to row."""
    if bias is None or y.attr("beta") == 0:
        return np.zeros(columns)
    return channel_vector(bias, columns, axis=1, rank=2) * float(y.attr("beta"))

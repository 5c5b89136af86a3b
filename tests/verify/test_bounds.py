from __future__ import annotations

import numpy as np
import pytest

from surgeon_passes.region import Exactness, Tolerances
from surgeon_passes.verify.bounds import bound_of, reduction_length

from .regions import FLOAT, nodes_of, typed

TYPES = typed(x=(FLOAT, [1, 8, 14, 14]), q=(FLOAT, [2, 5, 64]))


@pytest.mark.parametrize(
    ("text", "weight", "length"),
    [
        ("y = Conv(x, w)", (16, 8, 3, 3), 72),
        ("y = Conv<group: int = 4>(x, w)", (16, 2, 3, 3), 18),
        ("y = ConvTranspose<group: int = 2>(x, w)", (8, 4, 2, 2), 16),
        ("y = MatMul(q, w)", (64, 32), 64),
        ("y = Gemm<transB: int = 1>(p, w)", (32, 100), 100),
        ("y = GlobalAveragePool(x)", (), 196),
        ("y = Sum(x, x, x)", (), 3),
        ("a = Conv(x, w)\nb = Relu(a)\ny = Conv(b, w)", (8, 8, 5, 5), 200),
        ("y = Relu(x)", (), 1),
    ],
)
def test_reduction_length(text: str, weight: tuple[int, ...], length: int) -> None:
    import onnx_graphsurgeon as gs

    tensors = {"w": gs.Constant("w", np.zeros(weight, np.float32))}
    assert reduction_length(nodes_of(text, tensors), TYPES) == length


def test_bounds() -> None:
    limits = Tolerances()
    assert bound_of(Exactness.ROUNDING, 100, {1}, limits) == 3e-6
    assert bound_of(Exactness.ROUNDING, 1024, {1}, limits) == pytest.approx(6e-6)
    assert bound_of(Exactness.ROUNDING, 4, {11}, limits) < 1e-11
    assert bound_of(Exactness.ROUNDING, 4, {11, 1}, limits) == 3e-6
    assert bound_of(Exactness.ROUNDING, 4, {10}, limits) == 2e-3
    assert bound_of(Exactness.EXACT, 4, {10}, limits) == 0

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from surgeon_passes.verify import inputs
from surgeon_passes.verify.inputs import KINDS, make, one_ulp

FLOAT = TensorProto.FLOAT


def test_the_same_call_gives_the_same_values_and_streams_differ() -> None:
    shape = (2, 3, 40, 40)
    assert np.array_equal(make("normal", FLOAT, shape, 1), make("normal", FLOAT, shape, 1))
    assert not np.array_equal(make("normal", FLOAT, shape, 1), make("normal", FLOAT, shape, 9))
    assert make("normal", FLOAT, (4,), 1)[0] == pytest.approx(make("normal", FLOAT, (7, 5), 1)[0, 0])


def test_large_ones_are_shared_for_as_long_as_somebody_holds_them() -> None:
    held = make("sparse", FLOAT, (700, 1000), 1)
    assert make("sparse", FLOAT, (700, 1000), 1) is held
    assert make("sparse", FLOAT, (700, 1000), 9) is not held
    alive = len(inputs._LARGE_ALIVE)
    del held
    assert len(inputs._LARGE_ALIVE) == alive - 1


def test_normal_is_normal_also_beyond_the_pool() -> None:
    values = make("normal", FLOAT, (700, 1000), 1)
    assert abs(float(values.mean())) < 0.01 and float(values.std()) == pytest.approx(1, abs=0.01)


def test_sparse_fills_borders_and_little_else() -> None:
    values = make("sparse", FLOAT, (1, 3, 20, 30), 1)
    for border in (values[..., 0, :], values[..., -1, :], values[..., 0], values[..., -1]):
        assert np.count_nonzero(border) == border.size
    inner = values[..., 1:-1, 1:-1]
    assert 0 < np.count_nonzero(inner) < 0.2 * inner.size
    assert not np.signbit(values[values == 0]).any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3, 4)])
def test_dtype_and_shape_are_what_was_asked_for(kind: str, dtype: int, shape: tuple[int, ...]) -> None:
    values = make(kind, dtype, shape, 1)
    assert isinstance(values, np.ndarray)
    assert (values.dtype, values.shape) == (helper.tensor_dtype_to_np_dtype(dtype), shape)


def test_indices_stay_small_unless_the_region_is_arithmetic() -> None:
    small = make("large", TensorProto.INT64, (500,), 1)
    wide = make("large", TensorProto.INT64, (500,), 1, integers="wide")
    assert (small.min(), small.max()) == (0, 3)
    assert wide.min() < -900 and wide.max() > 900
    assert make("normal", TensorProto.INT64, (3,), 1, integers="count").tolist() == [0, 1, 2]
    assert make("normal", TensorProto.UINT8, (5000,), 1).max() == 255


def test_one_ulp_moves_every_number_but_zero() -> None:
    values = np.float32([0, 1, -1, 1e30, 3e-30, np.inf, np.nan])
    moved = one_ulp(values, 0)
    assert moved[0] == 0 and np.isinf(moved[5]) and np.isnan(moved[6])
    assert (np.abs(moved[1:5] - values[1:5]) == np.spacing(np.abs(values[1:5]))).sum() >= 2
    assert (moved[1:5] != values[1:5]).all()
    assert one_ulp(np.array([3]), 0).tolist() == [3]

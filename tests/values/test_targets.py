"""Constant Reshape targets that say what partly known ones say."""

from __future__ import annotations

import numpy as np
import pytest

from surgeon_passes.values import Partial, Poly, dims, static_target
from surgeon_passes.values.lattice import object_array

N, T, M = Poly.symbol("N"), Poly.symbol("T"), Poly.symbol("M")
UNKNOWN = None


def target(*elements):
    if all(isinstance(e, int) for e in elements):
        return np.array(elements, np.int64)
    return Partial(object_array(elements, (len(elements),)), np.dtype(np.int64))


CASES = [
    # (input shape, target, allowzero, output shape, expected)
    ((N, 3, 4, 4), (N, -1), False, None, [0, 48]),  # right at N = 0 too
    ((N, 3, 4, 4), (0, -1), False, None, [0, -1]),  # already constant
    ((N, 3, 4, 4), (N, 48), False, None, [0, 48]),
    ((N, 3, 4, 4), (N, 3, UNKNOWN), False, None, [0, 3, 16]),
    ((N, T, 64), (N, T, 8, 8), False, None, [0, 0, 8, 8]),
    ((N, T, 64), (N * T, 64), False, None, [-1, 64]),
    ((N, T, 64), (N, T * 8, 8), False, None, [0, -1, 8]),
    ((N * T, 64), (N, T, 64), False, None, None),  # two dims that only the input's name
    ((N * T, 64), (N, -1, 64), False, None, None),
    ((N, 6, 4), (T, 24), False, None, None),  # illegal where T is not N: -1 would hide it
    ((3, N, 8), (0, N, -1), False, None, [3, 0, 8]),
    (None, (N, 48), False, None, None),
    (None, (N, -1), False, None, None),
    (None, (N, -1), False, (N, 48), None),
    ((N, 3, 4, 4), (N, -1), True, None, [0, 48]),  # the answer is read without allowzero
    ((N, T), (N, T), True, None, [0, 0]),
    ((N, T), (T, N), True, None, None),
    ((N, 0), (N, 0), True, None, [0, 0]),  # what is copied is the same 0
    ((N, 4), (N, 0), True, None, None),
    ((N - 1, 4), (N - 1, 2, 2), False, None, [0, 2, 2]),  # may be 0: then it copies the same 0
    ((4, N - 1), (N - 1, 4), False, None, [-1, 4]),  # at N = 1 the 0 would copy a 4: not legal there
    ((N - 1, 4, T), (0, 2, 2 * T), False, None, None),  # -1 beside a dim that may be 0
    ((UNKNOWN, 4), (UNKNOWN, 2, 2), False, None, None),
    ((UNKNOWN, 4, T), (0, 2, 2 * T), False, None, None),
    ((N, 4), (UNKNOWN, UNKNOWN), False, None, None),
    ((N, 4), (UNKNOWN, UNKNOWN), False, (N, 4), [0, 4]),
    ((N, 2), (N, 0, -1), False, None, [0, 2, 1]),
    ((N,), (N, 1, 1), False, None, [0, 1, 1]),
    ((2 * N,), (N, 2), False, None, [-1, 2]),
    ((N, 12), (dims.floor_div(N, 2), 24), False, None, None),  # illegal where N is odd
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_static_target(case):
    shape, elements, allowzero, output, expected = case
    assert static_target(shape, target(*elements), allowzero, output) == expected


def test_nothing_is_known_of_an_unknown_target():
    assert static_target((N, 4), None, False) is None


@pytest.mark.parametrize("case", [c for c in CASES if c[4] is not None and c[0] is not None], ids=str)
@pytest.mark.parametrize("sizes", [{"N": 2, "T": 3, "M": 1}, {"N": 4, "T": 1, "M": 5}])
def test_both_targets_reshape_alike(case, sizes):
    shape, elements, allowzero, _, expected = case

    def number(dim):
        return dim.evaluate(sizes) if isinstance(dim, Poly) else dim

    concrete, wanted = [number(d) for d in shape], [number(e) for e in elements]
    if None in concrete or None in wanted:
        return
    if min(wanted) > 0 and np.prod(wanted) != np.prod(concrete):
        return  # not a legal size
    data = np.arange(int(np.prod(concrete))).reshape(concrete)

    def reshaped(dims_, allowzero=False):
        copied = [data.shape[k] if d == 0 and not allowzero else d for k, d in enumerate(dims_)]
        return data.reshape(copied)

    np.testing.assert_array_equal(reshaped(wanted, allowzero), reshaped(expected))

"""Keys of constants: equal for equal contents, and read only as far as it takes."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from surgeon_passes.model import keys
from surgeon_passes.model.keys import Keys

LONG = np.arange(1 << 15, dtype=np.float32)


def changed(place: int) -> np.ndarray:
    array = LONG.copy()
    array[place] += 1
    return array


@pytest.mark.parametrize("place", [0, 1 << 14, -1])
def test_large_constants_differ_wherever_they_do(place: int) -> None:
    found = Keys()
    first, again, other = (gs.Constant("k", v) for v in (LONG, LONG.copy(), changed(place)))
    assert found.constant(first) == found.constant(again)
    assert hash(found.constant(first)) == hash(found.constant(again))
    assert found.constant(first) != found.constant(other)
    assert len({found.constant(c) for c in (first, again, other)}) == 2


def test_shapes_and_types_tell_apart() -> None:
    found = Keys()
    made = [LONG, LONG.reshape(2, -1), LONG.view(np.int32), LONG[:-1]]
    assert len({found.constant(gs.Constant("k", v)) for v in made}) == 4


def test_what_differs_at_its_ends_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Keys()
    made = [found.constant(gs.Constant("k", v)) for v in (LONG, changed(0), changed(-1))]
    monkeypatch.setattr(keys, "bytes_of", lambda constant: pytest.fail("read in full"))
    assert len(set(made)) == 3

"""Cast: what changes no type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .harness import Builder
from .moves import after, assert_becomes, assert_stays


@pytest.mark.parametrize(("dtype", "to"), [(np.float32, 1), (np.int64, 7), (np.float16, 10)])
def test_cast_to_its_own_type(dtype: Any, to: int) -> None:
    b = Builder(dtype)
    assert_becomes(after(b, b.node("Cast", b.input("x", [9]), to=to)), Neg=1)


def test_cast_there_and_back_stays() -> None:
    b = Builder()
    assert_stays(after(b, b.node("Cast", b.node("Cast", b.input("x", [9]), to=11), to=1)))

"""When a literal of a pattern equals a value of the model."""

from __future__ import annotations

from typing import Any

import numpy as np

RELATIVE = 1e-6


def equals(literal: Any, value: Any) -> bool:
    """Whether ``value`` (attribute, scalar, sequence or array) is the literal.

    Floats agree to a relative 1e-6, or to the resolution of the value's own dtype where that is coarser (fp16 1.414 is
    the literal 1.41421356); a literal number also equals a constant of one element in any rank.
    """
    if isinstance(literal, str) or isinstance(value, str):
        return bool(literal == value)
    if isinstance(literal, tuple):
        return _sequence_equals(literal, value)
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind in "OSU":
        return False
    return _scalar_equals(literal, array.reshape(()))


def _sequence_equals(literal: tuple[Any, ...], value: Any) -> bool:
    array = np.asarray(value)
    if array.ndim != 1 or len(array) != len(literal):
        return bool(array.ndim > 1 and len(array) == len(literal) and all(map(equals, literal, array)))
    return all(equals(a, b) for a, b in zip(literal, array, strict=True))


def _scalar_equals(literal: Any, value: Any) -> bool:
    if isinstance(literal, bool) or value.dtype.kind == "b":
        return isinstance(literal, bool) and value.dtype.kind == "b" and bool(value) is literal
    if value.dtype.kind in "iu":
        return float(literal).is_integer() and int(value) == int(literal)
    if value.dtype.kind == "c":
        return bool(value == literal)
    found, wanted = float(value), float(literal)
    if found == wanted or (np.isnan(found) and np.isnan(wanted)):
        return bool(np.signbit(found) == np.signbit(wanted))
    if not (np.isfinite(found) and np.isfinite(wanted)):
        return False
    return abs(found - wanted) <= max(RELATIVE, _resolution(value.dtype)) * abs(wanted)


def _resolution(dtype: np.dtype[Any]) -> float:
    return {2: 1e-3, 4: 2e-7}.get(dtype.itemsize, 0.0) if dtype.name != "bfloat16" else 8e-3

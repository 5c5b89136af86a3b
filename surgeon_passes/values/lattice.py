"""What can be known of a tensor before it runs: everything (an ndarray), some elements (:class:`Partial`), nothing (None)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surgeon_passes.model import onnx_dtype
from surgeon_passes.values.dims import Dim, collapse, stays_small
from surgeon_passes.values.symbols import Poly

Array = NDArray[Any]

MAX_ELEMENTS = 1 << 16
"""Elements of the largest array that is computed."""
MAX_PARTIAL = 1 << 12
"""Elements of the largest array with unknown or symbolic elements."""


@dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """An integer (or bool) tensor of known shape whose elements are known, symbolic or unknown.

    ``elements``: object array of ``int | Poly | None`` (a bool element is 0 or 1); ``dtype``: the tensor's own.
    At least one element is not an int, and at least one is not None.
    """

    elements: Array
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.elements.shape

    @property
    def elem_type(self) -> int:
        """The onnx element type."""
        return onnx_dtype(self.dtype)

    def dims(self) -> list[Dim]:
        """The elements in row-major order."""
        return list(self.elements.ravel())

    def evaluate(self, sizes: Mapping[str, int]) -> Array:
        """The elements at concrete sizes, as an object array (None where unknown)."""
        found = np.empty(self.shape, object)
        for place, element in enumerate(self.elements.ravel()):
            found.flat[place] = element.evaluate(sizes) if isinstance(element, Poly) else element
        return found

    def __repr__(self) -> str:
        body = ", ".join("?" if e is None else str(e) for e in self.elements.ravel())
        return f"Partial([{body}], shape={self.shape}, dtype={self.dtype})"


Value = Array | Partial | None


def identical(a: Value, b: Value) -> bool:
    """Whether two values say the same of every element; arrays of objects only where they are one."""
    if a is b:
        return True
    if a is None or b is None or type(a) is not type(b) or a.dtype != b.dtype or a.shape != b.shape:
        return False
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype != object and a.tobytes() == b.tobytes()
    return list(elements_of(a).ravel()) == list(elements_of(b).ravel())


def is_integer(dtype: np.dtype[Any] | None) -> bool:
    """Whether elements of ``dtype`` may be symbolic: integers and bools."""
    return dtype is not None and dtype.kind in "iub"


def pack(elements: Array, dtype: np.dtype[Any]) -> Value:
    """A value from an object array of elements: fully known ones become an ndarray, all-unknown ones None.

    An int outside ``dtype`` is unknown (the operator would have wrapped it), as is a polynomial that 32 bits may not hold.
    """
    flat = [_fit(e, dtype) for e in elements.ravel()]
    if all(isinstance(e, int) for e in flat):
        return np.array(flat, dtype).reshape(elements.shape)
    if all(e is None for e in flat) or len(flat) > MAX_PARTIAL:
        return None
    return Partial(object_array(flat, elements.shape), dtype)


def _fit(element: Any, dtype: np.dtype[Any]) -> Dim:
    if element is None:
        return None
    value = collapse(element if isinstance(element, Poly) else int(element))
    if not isinstance(value, int):
        return (
            value if dtype.kind == "b" or dtype.itemsize >= 8 or (dtype.itemsize == 4 and stays_small(value)) else None
        )
    if dtype.kind == "b":
        return int(bool(value))
    info = np.iinfo(dtype)
    return value if info.min <= value <= info.max else None


def object_array(elements: Iterable[Any], shape: tuple[int, ...]) -> Array:
    """An object array of these elements; never interprets them."""
    flat = list(elements)
    found = np.empty(len(flat), object)
    found[:] = flat
    return found.reshape(shape)


def elements_of(value: Array | Partial) -> Array:
    """Elements as an object array of Python ints, polys and Nones."""
    if isinstance(value, Partial):
        return value.elements
    return object_array((int(e) for e in value.ravel()), value.shape)


def dims_of(value: Value) -> list[Dim] | None:
    """Elements of an integer vector or scalar as dims; None where nothing is known."""
    if value is None:
        return None
    if isinstance(value, Partial):
        return value.dims()
    return [int(e) for e in value.ravel()] if is_integer(value.dtype) else None

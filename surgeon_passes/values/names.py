"""Names for sizes that have none, so that equal ones stay comparable. They are ours alone: no file ever shows them."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_graphsurgeon as gs

from surgeon_passes.region import ANONYMOUS, TensorType
from surgeon_passes.values.dims import Dim, type_shape
from surgeon_passes.values.symbols import Poly


class SizeNames:
    """Symbols for unnamed dims of the main graph: ``x.1`` for axis 1 of input x, ``~y.0`` for axis 0 of a result y.

    Each is one number in one run of the model. An input's is at least 1, as named dims are; a result's may be 0. Bodies and
    functions get none: they may run often, with another size each time. Names follow tensor names and never meet a name
    that the file declares.
    """

    def __init__(self, graph: gs.Graph) -> None:
        self.declared = {d for t in graph.inputs if t.shape is not None for d in t.shape if isinstance(d, str) and d}
        self._taken = set(self.declared)
        self._made: dict[tuple[int, int], tuple[gs.Tensor, Poly]] = {}
        self._invented: set[str] = set()
        self._origins: dict[str, tuple[gs.Tensor, int]] = {}

    def of_input(self, tensor: gs.Tensor, entry: TensorType) -> TensorType:
        """The type of an input of the main graph with a name for every dim."""
        return self._named(tensor, entry, "")

    def of_result(self, tensor: gs.Tensor, entry: TensorType) -> TensorType:
        """The type of what a node of the main graph makes, with a name for every dim that nothing tells."""
        return self._named(tensor, entry, ANONYMOUS)

    def symbols(self) -> Mapping[str, Poly]:
        """Every name so far, declared or invented."""
        return {name: Poly.symbol(name) for name in self.declared | self._invented}

    def origin(self, name: str) -> tuple[gs.Tensor, int] | None:
        """The tensor and axis that an invented name was made for; None for a declared one."""
        return self._origins.get(name)

    def _named(self, tensor: gs.Tensor, entry: TensorType, prefix: str) -> TensorType:
        shape = type_shape(entry)
        if shape is None or entry.kind != "tensor" or None not in shape:
            return entry
        dims = (self._symbol(tensor, axis, prefix) if d is None else d for axis, d in enumerate(shape))
        return TensorType(entry.dtype, tuple(dims), entry.kind)

    def _symbol(self, tensor: gs.Tensor, axis: int, prefix: str) -> Poly:
        held = self._made.get((id(tensor), axis))
        if held is None:
            base = name = f"{prefix}{tensor.name}.{axis}"
            number = 0
            while name in self._taken:
                number += 1
                name = f"{base}_{number}"
            self._taken.add(name)
            self._invented.add(name)
            self._origins[name] = (tensor, axis)
            held = self._made[id(tensor), axis] = (tensor, Poly.symbol(name))
        return held[1]

    def told(self, dim: Dim) -> Dim:
        """``dim``, or None where it is said with invented names, or reads like the name of another dim."""
        if not isinstance(dim, Poly):
            return dim
        if not self._invented.isdisjoint(dim.symbols()) or (str(dim) in self.declared and dim != Poly.symbol(str(dim))):
            return None
        return dim

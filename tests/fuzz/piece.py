"""A fragment in a few lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .choices import flip
from .fragment import Array, Fragment, Tensor
from .grow import Grower


class Piece:
    """``p.node("Relu", p.read(tensor))`` gives the name of the result."""

    def __init__(self, grower: Grower, source: str) -> None:
        self.grower = grower
        self.source = source
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, Tensor] = {}
        self.constants: dict[str, Array] = {}

    def choose(self, *options: Any) -> Any:
        return self.grower.choices.pick(options)

    def number(self, low: int, high: int) -> int:
        return self.grower.choices.number(low, high)

    def maybe(self) -> bool:
        return flip(self.grower.choices)

    def read(self, tensor: Tensor) -> str:
        for name, held in self.inputs.items():
            if held.name == tensor.name:
                return name
        name = f"x{len(self.inputs)}"
        self.inputs[name] = tensor
        return name

    def constant(self, value: Any, dtype: Any = None) -> str:
        array = np.asarray(value, dtype)
        if array.dtype == np.float64 and dtype is None:
            array = array.astype(np.float32)
        name = f"k{len(self.constants)}"
        self.constants[name] = array
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def weights(self, *shape: int) -> str:
        return self.constant(self.grower.random.standard_normal(shape))

    def positive(self, *shape: int) -> str:
        return self.constant(self.grower.random.uniform(0.4, 2, shape))

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        return self.several(op, *inputs, count=1, **attrs)[0]

    def several(self, op: str, *inputs: str, count: int, **attrs: Any) -> list[str]:
        names = [f"t{len(self.nodes)}" + (f"_{k}" if k else "") for k in range(count)]
        label = f"{op.lower()}_{len(self.nodes)}" if self.maybe() else ""
        self.nodes.append(helper.make_node(op, list(inputs), names, label, **attrs))
        return names

    def done(self, *outputs: str) -> Fragment:
        return Fragment(self.nodes, self.inputs, list(outputs), self.constants, source=self.source)

    # --- what is read ------------------------------------------------------------------------------------------------

    def ranked(self, *ranks: int, channels: Sequence[int] = (), axis: int = 1) -> Tensor:
        """A float32 tensor of one of these ranks, the dim at ``axis`` fixed (one of ``channels`` where it is new)."""
        grower = self.grower

        def fits(t: Tensor) -> bool:
            if t.rank not in ranks:
                return False
            return not channels or (t.fixed(axis) or 0) in range(1, 13)

        def dims() -> tuple[Any, ...]:
            rank = self.choose(*ranks)
            found = [grower.some_dim() for _ in range(rank)]
            if channels:
                found[axis] = grower.whole(self.choose(*channels))
            return tuple(found)

        return grower.tensor(fits, dims, np.float32)

    def any_float(self) -> Tensor:
        return self.ranked(2, 3, 4, 1)

    def anything(self) -> Tensor:
        """A scalar, too."""
        return self.ranked(2, 3, 4, 1, 0)

    def like(self, tensor: Tensor) -> Tensor:
        """A tensor of the same type and dims."""
        return self.grower.tensor(lambda t: t.dims == tensor.dims, lambda: tensor.dims, tensor.dtype)

"""What the rewriter hands to verification: a piece of the graph before and after, with the same boundary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import onnx_graphsurgeon as gs

from surgeon_passes.index import Scope

ANONYMOUS = "~"
"""How the name of a size begins that only the data tells: it may be 0. Named dims are at least 1."""


class Exactness(Enum):
    """What a rule promises of its result."""

    EXACT = "exact"
    """bit-equal"""
    ROUNDING = "rounding"
    """equal in real arithmetic; floating point may round otherwise"""
    APPROXIMATE = "approximate"
    """close only; off unless asked for"""


class Dim(Protocol):
    """A symbolic dim: an integer polynomial over named dims."""

    def __hash__(self) -> int: ...

    def symbols(self) -> frozenset[str]: ...

    def evaluate(self, sizes: Mapping[str, int]) -> int: ...


@dataclass(frozen=True, slots=True)
class TensorType:
    """``dtype`` is an onnx.TensorProto.DataType; ``shape`` None where the rank is unknown; a dim None where unknown.

    ``kind`` tells tensors from sequence, optional, map and sparse types, which have no shape here.
    """

    dtype: int | None = None
    shape: tuple[int | Dim | None, ...] | None = None
    kind: str = "tensor"

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def is_static(self) -> bool:
        return self.shape is not None and all([isinstance(d, int) for d in self.shape])


@dataclass(frozen=True, slots=True, eq=False)
class NodeImage:
    """A node as it was at one moment: attributes never change in place, edges do."""

    node: gs.Node
    inputs: tuple[gs.Tensor, ...]
    outputs: tuple[gs.Tensor, ...]

    @classmethod
    def of(cls, node: gs.Node) -> NodeImage:
        return cls(node, tuple(node.inputs), tuple(node.outputs))


@dataclass(eq=False, slots=True)
class Region:
    """``before`` and ``after`` compute ``outputs`` (pairs) from the same boundary tensors.

    Boundary inputs are the tensors that are read and not made inside; constants among them carry their values. A pair's
    second tensor may itself be a boundary input or a constant (``y = x``, folding). ``cone`` are nodes outside the change
    that compute what a rule read from the evaluator: they stand on both sides, cut where a tensor of known type enters.
    """

    scope: Scope
    before: tuple[NodeImage, ...]
    after: tuple[NodeImage, ...]
    outputs: tuple[tuple[gs.Tensor, gs.Tensor], ...]
    exactness: Exactness = Exactness.EXACT
    cone: tuple[NodeImage, ...] = ()
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """``status``: "verified", "refuted" or "unverified" (with the reason). ``error`` is relative to its channel's scale,
    ``mean``, of all elements where the error is largest, to the largest of them."""

    status: str
    error: float | None = None
    tensor: str = ""
    reason: str = ""
    mean: float | None = None


class Types(Protocol):
    """Where verification asks for the type of a tensor."""

    def type_of(self, tensor: gs.Tensor) -> TensorType: ...


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Bounds of the checks, relative to the scale of an output channel (regions) or of an output (end check)."""

    rounding: float = 3e-6
    """times max(1, sqrt(K / 256)), K the reduction length"""
    half: float = 2e-3
    """fp16 and bf16 at their real dtype"""
    approximate: float = 1e-2
    end: float = 1e-4
    noise_factor: float = 4.0
    noise_limit: float = 10.0
    absolute: float = field(default=1e-12)
    """floor for channels that are zero everywhere"""

    def step_of(self, dtype: str) -> float:
        """Up to where outputs of a half-precision type cannot be told apart: their step alone is 5e-4 of the scale (bfloat16,
        which has 3 bits less: 4e-3). 0 of any other type."""
        return {"float16": self.half, "bfloat16": 8 * self.half}.get(dtype, 0.0)

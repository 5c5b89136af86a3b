"""What is kept of a run for its record: steps, and of each rewrite what stood there before and after, without the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from surgeon_passes.region import TensorType


class TensorTrace(NamedTuple):
    """``constant``: an initializer, or what a Constant node makes. ``key`` tells tensors of one region apart."""

    name: str
    type: TensorType
    constant: bool
    key: int


class NodeTrace(NamedTuple):
    """A node as it was. Operands that are left out are None; bodies and large tensors among ``attrs`` are told in words."""

    label: str
    op: str
    domain: str
    opset: int
    attrs: Mapping[str, Any]
    inputs: tuple[TensorTrace | None, ...]
    outputs: tuple[TensorTrace | None, ...]


@dataclass(frozen=True, slots=True)
class WeightChange:
    """``tensor``, a weight that came with ``node``, against ``old``, of the same shape: ``distance`` is the L2 norm of their
    difference, ``norm`` that of the old one. Where nothing of its shape went, ``old`` is "" and there are no numbers."""

    node: str
    tensor: str
    old: str = ""
    distance: float | None = None
    norm: float | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """One rewrite: nodes that went and came, pairs of results that stand for each other, weights that changed."""

    before: tuple[NodeTrace, ...] = ()
    after: tuple[NodeTrace, ...] = ()
    outputs: tuple[tuple[TensorTrace, TensorTrace], ...] = ()
    weights: tuple[WeightChange, ...] = ()


@dataclass(frozen=True, slots=True)
class StepTrace:
    """One pass, run once. ``iteration`` counts the rounds of the fixpoint from 1 on; 0 is before it and behind it."""

    name: str
    iteration: int
    changed: bool
    seconds: float
    nodes_before: int
    nodes_after: int


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run was told to go, and how it went. ``pipeline``: the passes and ``max_iterations`` as they were given.

    ``rules`` are the names of those that were looked for; ``known`` all that there were, with their sets.
    """

    pipeline: Any = None
    skip: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    only: str = ""
    steps: tuple[StepTrace, ...] = ()
    rules: frozenset[str] = frozenset()
    known: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

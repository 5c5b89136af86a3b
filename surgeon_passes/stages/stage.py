"""What is asked of stages, and what is told of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import onnx

from surgeon_passes.errors import UsageError

Metric = Callable[[onnx.ModelProto], float]


@dataclass(frozen=True)
class Stages:
    """``evaluate`` gives the metric of a model (a ModelProto), higher is better, such as an accuracy.

    A pass, or a rule of it, that lowers the metric by more than ``max_drop`` is left out. ``latency`` times every stage, on
    ``threads`` threads.
    """

    evaluate: Metric | None = None
    max_drop: float | None = None
    latency: bool = True
    threads: int = 1

    def __post_init__(self) -> None:
        if self.max_drop is not None and self.evaluate is None:
            raise UsageError("max_drop bounds a metric; give evaluate, too")
        if self.max_drop is not None and not self.max_drop >= 0:
            raise UsageError(f"max_drop is {self.max_drop}; give how much the metric may fall, 0 or more")


@dataclass(frozen=True)
class Stage:
    """The model after a pass, or as it was given (``name`` "original").

    ``round`` is the turn of the pipeline, 0 for passes that run once. ``bytes`` are those of all constants, ``macs``
    multiply-accumulates of one run: an int, a polynomial of symbolic dims, or None where not known; ``macs_at`` are those at
    the sizes at which the stage was run. ``latency`` is the median of a run in milliseconds. ``drift`` is the largest
    difference, relative to its largest element, of a float tensor of the main graph that the original has, too:
    ``drift_at``. ``undone`` says why the stage, or ``guilty`` rules of it, were left out; "" where they were not.
    """

    name: str
    round: int
    nodes: int
    bytes: int
    parameters: int
    macs: Any
    macs_at: int | None = None
    latency: float | None = None
    drift: float | None = None
    drift_at: str = ""
    metric: float | None = None
    undone: str = ""
    guilty: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.name} (round {self.round})" if self.round > 1 else self.name

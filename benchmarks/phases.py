"""What each part of a run costs: seconds of its own, less those of the parts inside it."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

RUNTIME = "ONNX Runtime"
OTHER = "other"


@dataclass(eq=False)
class Phases:
    """CPU and wall seconds by name of the part; what is in none of them is :data:`OTHER`."""

    cpu: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    wall: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _open: list[str] = field(default_factory=lambda: [OTHER])
    _since: tuple[float, float] = field(default_factory=lambda: (time.process_time(), time.perf_counter()))

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._close()
        self._open.append(name)
        try:
            yield
        finally:
            self._close()
            self._open.pop()

    def _close(self) -> None:
        """Give the time that has gone by to the part that is open."""
        now = (time.process_time(), time.perf_counter())
        self.cpu[self._open[-1]] += now[0] - self._since[0]
        self.wall[self._open[-1]] += now[1] - self._since[1]
        self._since = now


@contextmanager
def watched() -> Iterator[Phases]:
    """Measure the runs of a pipeline in this process. ONNX Runtime's part is what :mod:`surgeon_passes.runtime` takes."""
    import surgeon_passes.passes.rewrite as rewriting
    from surgeon_passes import pipeline, run, runtime
    from surgeon_passes.passes.state import State

    phases = Phases()
    places: list[tuple[Any, str, str | Callable[..., str]]] = [
        (pipeline, "load", "import"),
        (run, "export_light", "export"),
        (run, "find_dynamic", "dynamics"),
        (run.Run, "blocks", "blocks"),
        (run.Run, "end_check", "end check"),
        (run.Run, "step", lambda _, step, *__: step.name),
        (State, "rebuild", "types"),
        (rewriting, "settle", "settle"),
        (rewriting, "remove_dead", "remove dead"),
        (runtime.Session, "__init__", RUNTIME),
        (runtime.Session, "run", RUNTIME),
    ]
    held = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    for (owner, name, function), (_, _, part) in zip(held, places, strict=True):
        setattr(owner, name, _measured(function, part, phases))
    try:
        yield phases
    finally:
        for owner, name, function in held:
            setattr(owner, name, function)


def _measured(function: Callable[..., Any], part: str | Callable[..., str], phases: Phases) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with phases.part(part if isinstance(part, str) else part(*args)):
            return function(*args, **kwargs)

    return call

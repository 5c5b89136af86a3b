"""ONNX Runtime in a process of its own. What kills, hangs or exhausts that process is a RuntimeFailure here."""

from __future__ import annotations

import itertools
import logging
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from surgeon_passes import memory
from surgeon_passes.child import Child, Stopped
from surgeon_passes.engines.plan import External, Plan, Value
from surgeon_passes.errors import RuntimeFailure, UsageError
from surgeon_passes.watch import SECONDS

log = logging.getLogger(__name__)

WORKER = "surgeon_passes.engines.worker"
STARTS_WITHIN = 120.0
"""Seconds that a worker may take to begin."""
MAX_LOST = 64
"""Workers that may die in one run before ONNX Runtime is not asked any more."""
MAX_HUNG = 8
"""As :data:`MAX_LOST`, of those that were ended since they took too long."""


@dataclass(frozen=True)
class Isolate:
    """``timeout``: seconds that one call may take. ``memory``: bytes that the process may allocate (text such as "4GiB"
    is understood); None is what the machine has free when the process starts."""

    timeout: float = SECONDS
    memory: int | str | None = None


class Isolation:
    """One worker process, replaced by a new one after it has died."""

    def __init__(self, options: Isolate) -> None:
        if not options.timeout > 0:
            raise UsageError(f"a timeout of {options.timeout:g} seconds leaves no time")
        self.options = options
        self.limit = None if options.memory is None else memory.parse_bytes(options.memory, "the limit of memory")
        self.generation = 0
        """of the worker; a session of an older one is gone"""
        self._child: Child | None = None
        self._dropped: list[int] = []
        self._lost = self._hung = 0

    def open(self, plan: Plan) -> RemoteEngine:
        return RemoteEngine(plan, self)

    def ask(self, **command: Any) -> dict[str, Any]:
        """Raises RuntimeFailure, with code CRASHED or TIMED_OUT where the worker did not survive."""
        child = self._child or self._start()
        drop, self._dropped = self._dropped, []
        try:
            reply = child.ask(self.options.timeout, **command, drop=drop)
        except Stopped as stopped:
            raise self._failed(stopped) from None
        if "misused" in reply:
            raise UsageError(reply["misused"])
        if "refused" in reply:
            raise RuntimeFailure(reply["refused"], reply["code"])
        return reply

    def _start(self) -> Child:
        if self._hung >= MAX_HUNG or self._lost >= MAX_LOST:
            times = self._lost + self._hung
            raise RuntimeFailure(f"ONNX Runtime crashed or timed out {times} times: it is not asked again", "CRASHED")
        limit = self.limit if self.limit is not None else memory.available()
        self._child = child = Child(WORKER, {"memory": limit})
        self.generation += 1
        self._dropped = []
        try:
            child.begin(STARTS_WITHIN)
        except Stopped as stopped:
            raise self._failed(stopped) from None
        return child

    def _failed(self, stopped: Stopped) -> RuntimeFailure:
        """What is said of a worker that gave no answer. One that could say why lives on."""
        if stopped.status == "failed":
            return RuntimeFailure(str(stopped))
        self.close()
        log.warning("ONNX Runtime's process is lost (%s): a new one is made", stopped.signal or stopped)
        if stopped.status == "timeout":
            self._hung += 1
            return RuntimeFailure(f"ONNX Runtime timed out after {self.options.timeout:g} s", "TIMED_OUT")
        self._lost += 1
        return RuntimeFailure(f"ONNX Runtime crashed ({stopped.signal or stopped})", "CRASHED")

    def drop(self, number: int, generation: int) -> None:
        """A session is not needed any more; the worker hears of it with the next command."""
        if generation == self.generation:
            self._dropped.append(number)

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


class RemoteEngine:
    """A session in the worker; opened again where the worker has been replaced."""

    _numbers = itertools.count()

    def __init__(self, plan: Plan, isolation: Isolation) -> None:
        self._plan, self._isolation = plan, isolation
        self._number = next(self._numbers)
        self._open()

    def _open(self) -> None:
        plan = self._plan
        reply = self._isolation.ask(
            do="open",
            number=self._number,
            source=plan.source,
            level=plan.level,
            threads=plan.threads,
            external={name: [given.array, given.elem_type] for name, given in plan.external.items()},
            fed=dict(plan.fed),
            libraries=list(plan.libraries),
        )
        self._generation = self._isolation.generation
        self.inputs = {name: (str(kind), list(dims)) for name, (kind, dims) in reply["inputs"].items()}
        self.outputs: dict[str, str] = reply["outputs"]
        weakref.finalize(self, self._isolation.drop, self._number, self._generation).atexit = False

    def run(self, names: Sequence[str], feeds: Mapping[str, Value]) -> list[Value]:
        if self._generation != self._isolation.generation or self._isolation._child is None:
            self._open()
        reply = self._isolation.ask(do="run", number=self._number, names=list(names), feeds=dict(feeds))
        return list(reply["values"])


_current: ContextVar[Isolation | None] = ContextVar("isolation", default=None)


def current() -> Isolation | None:
    """The process in which sessions are to be made; None is this one."""
    return _current.get()


@contextmanager
def isolated(options: bool | Isolate) -> Iterator[None]:
    """Sessions that are made inside live in a process of their own, which ends with the block; ``False``: in this one."""
    if options is False:
        yield
        return
    isolation = Isolation(Isolate() if options is True else options)
    token = _current.set(isolation)
    try:
        yield
    finally:
        _current.reset(token)
        isolation.close()


def plan_of(command: Mapping[str, Any]) -> Plan:
    """The plan that an "open" command describes."""
    external = {name: External(array, kind) for name, (array, kind) in command["external"].items()}
    libraries = tuple(command["libraries"])
    return Plan(command["source"], command["level"], command["threads"], external, command["fed"], libraries)

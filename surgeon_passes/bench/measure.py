"""Every tool on one model: each in a process of its own, their calls in turn."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from surgeon_passes import memory
from surgeon_passes.bench.judge import ORIGINAL
from surgeon_passes.bench.records import Measured, Row
from surgeon_passes.bench.tools import OURS, Tool
from surgeon_passes.bench.worker import counts
from surgeon_passes.child import Child, Stopped
from surgeon_passes.errors import UsageError
from surgeon_passes.model.files import read_proto
from surgeon_passes.timing.interleaved import Ratio

WORKER, JUDGE = "surgeon_passes.bench.worker", "surgeon_passes.bench.judge"
TOGETHER = 64 << 20
"""Bytes of a model up to which the tools' processes stand side by side, so that their calls can take turns."""
ENOUGH = 30.0
"""Seconds of calls after which a tool is not called again."""
STARTED_IN = 180.0
"""Seconds that a process may take to import what it needs."""
SIDE_BY_SIDE = 4 << 30
"""Bytes of models that are held at once for latency."""


@dataclass(frozen=True)
class Options:
    """``calls`` of each tool; ``timeout`` of one, in seconds; ``data``, real inputs for the judge and for ours.

    ``also``: files with other forms of the model, such as its authors' deploy form, that are held beside the results.
    ``legal`` are inputs for the judge alone. ``span``: "call", or "file" (load and save count too). ``latency``: seconds a
    model and result, 0 for none. ``runtime``: also measure ONNX Runtime's own part.
    """

    calls: int = 3
    timeout: float = 300.0
    data: str | None = None
    legal: str | None = None
    also: tuple[str, ...] = ()
    span: str = "call"
    latency: float = 1.0
    threads: int = 1
    runtime: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises UsageError where the timeout is no positive number; infinity waits for ever."""
        if not self.timeout > 0:
            raise UsageError(f"the timeout must be a positive number of seconds, not {self.timeout:g}")

    @property
    def judged_on(self) -> str | None:
        return self.legal or self.data


Progress = Callable[[str, int, int], None]


def measure(
    path: Path, name: str, tools: Sequence[Tool], options: Options, progress: Progress | None = None
) -> Measured:
    """Raises ModelError where the file is no model, UsageError where the inputs that were given do not fit it."""
    before = counts(read_proto(path))
    measured = Measured(name, before["nodes"], before["bytes"])
    _check_data(path, options)
    with tempfile.TemporaryDirectory(prefix="surgeon-bench-") as folder:
        bench = _Bench(path, Path(folder), options, measured, progress or (lambda *_: None))
        groups = [tools] if measured.bytes <= TOGETHER else [[tool] for tool in tools]
        for group in groups:
            bench.run(group)
        for other in options.also:
            bench.add(other)
        bench.judge()
    return measured


def about(options: Options) -> dict[str, Any]:
    """The machine and the options, for the JSON."""
    return {
        "machine": {"cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "versions": {name: version(name) for name in ("onnx", "onnxruntime", "numpy")},
        "options": {
            "calls": options.calls,
            "span": options.span,
            "threads": options.threads,
            "timeout": options.timeout,
        },
    }


def _check_data(path: Path, options: Options) -> None:
    if options.judged_on is not None:
        from surgeon_passes.verify import load_data

        load_data(options.judged_on, path)


class _Bench:
    def __init__(self, path: Path, folder: Path, options: Options, measured: Measured, progress: Progress) -> None:
        self.path, self.folder, self.options = path, folder, options
        self.measured, self.progress = measured, progress
        self.files: dict[str, str] = {}
        """results by tool"""

    # --- the tools ---------------------------------------------------------------------------------------------------

    def run(self, tools: Sequence[Tool]) -> None:
        """Start the tools, let their calls take turns, keep their results."""
        alive: list[tuple[Row, Child]] = []
        self.progress(f"{self.measured.name}: start the tools", 0, self.options.calls)
        try:
            for tool in tools:
                row = Row(tool.name, tool.version or "")
                self.measured.rows.append(row)
                alive.append((row, self.start(tool)))
            for row, child in alive:
                _kept(row, child, child.begin, STARTED_IN)
            for number in range(self.options.calls):
                for row, child in _turned(alive, number):
                    if row.status == "ok" and (not number or sum(row.seconds) < ENOUGH):
                        self.progress(f"{self.measured.name}: {row.tool}", number, self.options.calls)
                        _kept(row, child, self.call, row, child)
            for row, child in alive:
                if row.status == "ok":
                    _kept(row, child, self.save, row, child)
        finally:
            for _, child in alive:
                child.close()

    def start(self, tool: Tool) -> Child:
        place = self.folder / f"{len(self.measured.rows)}"
        place.mkdir()
        result = str(place / "result.onnx")
        self.files[tool.name] = result
        job = {
            "tool": tool.name,
            "model": str(self.path.resolve()),
            "result": result,
            "data": self.options.data,
            "span": self.options.span,
        }
        return Child(WORKER, job)

    def call(self, row: Row, child: Child) -> None:
        samples: list[tuple[float, int]] = []

        def sample(now: float, status: dict[str, int]) -> None:
            if memory.ANON in status:
                samples.append((now, status[memory.ANON]))

        reply = child.ask(self.options.timeout, None if row.seconds else sample, do="call")
        row.cpu.append(reply["cpu"])
        row.seconds.append(reply["ended"] - reply["began"])
        if len(row.seconds) == 1 and reply["before"]:
            before, after = reply["before"], reply["after"]
            during = [anon for now, anon in samples if reply["began"] <= now <= reply["ended"]]
            row.anon = max(0, max([*during, after[memory.ANON]]) - before[memory.ANON])
            row.peak = max(0, after[memory.PEAK] - before[memory.RESIDENT])

    def save(self, row: Row, child: Child) -> None:
        reply = child.ask(self.options.timeout, do="save")
        row.nodes, row.bytes = reply["nodes"], reply["bytes"]
        row.is_too_big = not self.measured.budget(row.bytes)

    def add(self, path: str) -> None:
        """A file that stands beside the results."""
        held = counts(read_proto(path))
        name = path if Path(path).name in self.files else Path(path).name
        row = Row(
            name, "", nodes=held["nodes"], bytes=held["bytes"], is_too_big=not self.measured.budget(held["bytes"])
        )
        self.measured.rows.append(row)
        self.files[name] = str(Path(path).resolve())

    # --- what the results are worth ----------------------------------------------------------------------------------

    def judge(self) -> None:
        court = _Court(self.path, self.options)
        try:
            for row in self.measured.rows:
                if row.status == "ok":
                    self.progress(f"{self.measured.name}: outputs of {row.tool}", 0, 1)
                    self.check(court, row)
            if self.options.runtime:
                self.runtime(court)
            if self.options.latency:
                self.progress(f"{self.measured.name}: latency", 0, 1)
                self.latency(court)
        finally:
            court.close()

    def check(self, court: _Court, row: Row) -> None:
        try:
            reply = court.ask(do="check", result=self.files[row.tool])
        except Stopped as stopped:
            row.check, row.check_reason = stopped.status, str(stopped)
            return
        row.check, row.error, row.check_reason = reply["status"], reply["error"], reply["reason"]

    def runtime(self, court: _Court) -> None:
        ours = self.measured.row(OURS)
        if ours is None or not ours.counts:
            return
        try:
            reply = court.ask(do="runtime", result=self.files[OURS], calls=self.options.calls)
        except Stopped:
            return
        self.measured.runtime, self.measured.runtime_cpu = reply["seconds"], reply["cpu"]

    def latency(self, court: _Court) -> None:
        rows = [row for row in self.measured.rows if row.counts]
        if not rows:
            self.measured.latency_reason = "no result counts"
        elif sum(row.bytes or 0 for row in rows) + self.measured.bytes > SIDE_BY_SIDE:
            self.measured.latency_reason = "the results are too large to stand side by side in memory"
        else:
            self.run_in_turn(court, rows)

    def run_in_turn(self, court: _Court, rows: Sequence[Row]) -> None:
        files = {row.tool: self.files[row.tool] for row in rows}
        try:
            seconds, threads = self.options.latency, self.options.threads
            reply = court.ask(do="latency", results=files, seconds=seconds, threads=threads, ours=OURS)
        except Stopped as stopped:
            self.measured.latency_reason = str(stopped)
            return
        self.measured.ms = reply[ORIGINAL]["ms"]
        for row in rows:
            told = reply[row.tool]
            row.ms, row.ratio = told["ms"], Ratio(*told["ratio"])
            row.ours = Ratio(*told["ours"]) if told["ours"] else None


class _Court:
    """A judge, replaced by a new one after it has crashed or hung."""

    def __init__(self, path: Path, options: Options) -> None:
        self._job = {"model": str(path.resolve()), "data": options.judged_on, "seed": options.seed}
        self._timeout = options.timeout
        self._child: Child | None = None

    def ask(self, **command: Any) -> dict[str, Any]:
        """Raises Stopped."""
        try:
            if self._child is None:
                self._child = Child(JUDGE, self._job)
                self._child.begin(STARTED_IN)
            return self._child.ask(self._timeout, **command)
        except Stopped as stopped:
            if stopped.status != "failed":
                self.close()
            raise

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def _kept(row: Row, child: Child, action: Callable[..., None], *arguments: Any) -> None:
    """Where the tool gives up, the row says so, and its process ends."""
    try:
        action(*arguments)
    except Stopped as stopped:
        row.status, row.reason = stopped.status, str(stopped)
        child.close()


def _turned(items: list[tuple[Row, Child]], number: int) -> list[tuple[Row, Child]]:
    """Begun elsewhere in each round, so that no tool is always the first."""
    start = number % len(items) if items else 0
    return [*items[start:], *items[:start]]

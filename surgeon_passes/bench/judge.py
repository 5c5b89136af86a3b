"""What results are worth: a process apart, since ONNX Runtime may crash on a model.

It makes up inputs that are legal for the original (or takes the ones given), runs the original without optimisations against
each result on them, times ONNX Runtime, and measures latency.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import astuple
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from surgeon_passes.child import Reply, serve
from surgeon_passes.runtime import RuntimeFailure, Session
from surgeon_passes.timing.interleaved import Blocks, Runs, interleaved, ratio
from surgeon_passes.verify import end_check, generate_feeds, load_data, open_model
from surgeon_passes.verify.feeds import Feeds
from surgeon_passes.verify.segments import SEGMENTED_FROM, Runner, node_count, read_model

ORIGINAL = "original"


class Judge:
    """``job``: ``model`` (a file), ``data`` (real inputs, or None), ``seed``."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._path, self._data, self._seed = job["model"], job["data"], job["seed"]
        self._original = read_model(self._path)

    def answer(self, command: dict[str, Any]) -> Reply:
        tasks: dict[str, Callable[..., Reply]] = {
            "check": self.check,
            "runtime": self.runtime,
            "latency": self.latency,
        }
        return tasks[command.pop("do")](**command)

    @cached_property
    def feeds(self) -> list[Feeds]:
        """Raises RuntimeFailure where none can be made up."""
        if self._data is not None:
            return load_data(self._data, self._original)
        return generate_feeds(self._original, None, self._seed)

    def check(self, result: str) -> Reply:
        """The end check of the file ``result``: ``status``, ``error``, ``reason``."""
        try:
            found = end_check(self._original, read_model(result), self.feeds)
        except RuntimeFailure as failure:
            return {"status": "not run", "error": None, "reason": str(failure)}
        return {"status": found.status, "error": found.error, "reason": found.reason}

    def runtime(self, result: str, calls: int) -> Reply:
        """``seconds`` that ONNX Runtime needs to load original and result and to run each once, the best of ``calls``.

        Models beyond what is run in one session are loaded and run in segments, as the end check does.
        """
        feeds = self.feeds[0]
        seconds, cpu = [], []
        for _ in range(calls):
            began, cpu_began = time.perf_counter(), time.process_time()
            for path in (self._path, result):
                self._open(path).run(feeds)
            seconds.append(time.perf_counter() - began)
            cpu.append(time.process_time() - cpu_began)
        return {"seconds": min(seconds), "cpu": min(cpu)}

    def _open(self, path: str) -> Runner:
        return Session(path) if not self._is_large else open_model(path)

    @cached_property
    def _is_large(self) -> bool:
        return node_count(self._original[0].graph) >= SEGMENTED_FROM

    def latency(self, results: dict[str, str], seconds: float, threads: int, ours: str) -> Reply:
        """By name of result the median ``ms`` of a run and the ``ratio`` to the original (median, low, high).

        Also ``ours``, the ratio of the result of that name to this one, where it is among them.
        """
        if self._is_large:
            raise RuntimeFailure(f"the model has {SEGMENTED_FROM} nodes or more")
        feeds = self.feeds[0]
        paths = {ORIGINAL: self._path, **results}

        def make() -> Runs:
            return {name: _run_of(path, feeds, threads) for name, path in paths.items()}

        times = interleaved(make, seconds * len(paths), self._seed)
        return {name: _latency(blocks, times[ORIGINAL], times.get(ours)) for name, blocks in times.items()}


def _latency(blocks: Blocks, original: Blocks, ours: Blocks | None) -> Reply:
    return {
        "ms": 1e3 * median(seconds for block in blocks for seconds in block),
        "ratio": astuple(ratio(blocks, original)),
        "ours": None if ours is None else astuple(ratio(ours, blocks)),
    }


def _run_of(path: str | Path, feeds: Feeds, threads: int) -> Callable[[], Any]:
    session = Session(path, level="all", threads=threads)
    return lambda: session.run(feeds)


if __name__ == "__main__":
    serve(lambda: Judge(json.loads(sys.argv[1])).answer)

"""What runs in a tool's own process: one call after another on a fresh copy of the model, timed."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

from surgeon_passes import demo, memory
from surgeon_passes.bench.tools import BY_NAME, Call, save
from surgeon_passes.child import Reply, serve
from surgeon_passes.model.files import all_tensors
from surgeon_passes.model.nested import count_nodes
from surgeon_passes.model.weights import external_number

LATE = ("onnxruntime", "onnx.reference", "onnx.version_converter", "onnx.inliner")
"""Modules that some tools import only when they come to need them."""


class Worker:
    """Answers "call" (one timed call) and "save" (write the last result, count what it holds).

    ``job``: ``tool``, ``model`` and ``result`` (files), ``data`` (real inputs for ours, or None), and ``span``: "call", where
    reading the file is not counted, or "file", from file to file.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        self._model, self._result = Path(job["model"]), Path(job["result"])
        self._from_file = job["span"] == "file"
        tool = BY_NAME[job["tool"]]
        warm = tool.prepare(None)
        self._call: Call = tool.prepare(job["data"])
        self._file_call = tool.file_call(job["data"])
        self._made: onnx.ModelProto | None = None
        _warm_up(warm)

    def answer(self, command: dict[str, Any]) -> Reply:
        return self._save() if command["do"] == "save" else self._measured()

    def _measured(self) -> Reply:
        """Monotonic seconds of begin and end, CPU seconds, bytes before, peak of VmHWM, anonymous bytes at the end."""
        self._made = None
        action = self._action()
        before = memory.settle()
        cpu, began = time.process_time(), time.monotonic()
        self._made = action()
        ended, cpu = time.monotonic(), time.process_time() - cpu
        after = memory.status()
        return {"began": began, "ended": ended, "cpu": cpu, "before": before, "after": after}

    def _action(self) -> Callable[[], onnx.ModelProto | None]:
        if self._from_file:
            return lambda: self._file_call(self._model, self._result)
        proto = onnx.load(self._model)
        return lambda: self._call(proto, self._result)

    def _save(self) -> Reply:
        if self._made is not None:
            save(self._made, self._result)
        return counts(onnx.load(self._result, load_external_data=False))


def counts(proto: onnx.ModelProto) -> Reply:
    """``nodes`` of graph, bodies and functions, Constants not counted; ``bytes`` with external data."""
    outside = sum(external_number(t, "length", 0) for t in all_tensors(proto) if t.external_data)
    return {"nodes": count_nodes(proto), "bytes": proto.ByteSize() + outside}


def _warm_up(call: Call) -> None:
    """Imports that tools put off, and one call on a small model: first-time work is no part of what is measured."""
    for module in LATE:
        importlib.import_module(module)
    with tempfile.TemporaryDirectory() as folder:
        try:
            call(demo.build(), Path(folder) / "demo.onnx")
        except Exception:
            return  # a tool that cannot do this model may well do the other


if __name__ == "__main__":
    serve(lambda: Worker(json.loads(sys.argv[1])).answer)

"""Tools that do wrong, for the worker: ``python -m tests.bench.fakes JOB`` is the worker with these added."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from surgeon_passes.bench.tools import BY_NAME, Tool
from surgeon_passes.bench.worker import Worker
from surgeon_passes.child import serve


def same(model: onnx.ModelProto, _: Path) -> onnx.ModelProto:
    return model


def wrong(model: onnx.ModelProto, _: Path) -> onnx.ModelProto:
    """The last bias is another."""
    bias = next(t for t in model.graph.initializer if t.name == "fc.bias")
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + np.float32(0.5), bias.name))
    return model


def big(model: onnx.ModelProto, _: Path) -> onnx.ModelProto:
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(200_000, np.float32), "ballast"))
    return model


def raises(model: onnx.ModelProto, _: Path) -> onnx.ModelProto:
    raise ValueError("no such\noperator")


def dies(model: onnx.ModelProto, _: Path) -> onnx.ModelProto:
    if len(model.graph.node) != 3:  # let the warm-up through
        os.abort()
    return model


def _tool(call: Callable[[onnx.ModelProto, Path], onnx.ModelProto]) -> Tool:
    return Tool(call.__name__, "onnx", lambda data: call)


FAKES = [_tool(call) for call in (same, wrong, big, raises, dies)]

if __name__ == "__main__":
    BY_NAME.update({tool.name: tool for tool in FAKES})
    serve(lambda: Worker(json.loads(sys.argv[1])).answer)

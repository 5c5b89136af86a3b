"""Small models from ONNX text, and running them."""

from __future__ import annotations

import gc
import re
import textwrap
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
from numpy.typing import NDArray

from surgeon_passes.runtime import Session

Array = NDArray[Any]
_LABEL = re.compile(r"(?<=[\s{])\[([^\]]+)\](?=\s*\w+(?:\s*,\s*\w+)* =)")


def model(text: str, opset: int = 17, ir: int = 8, **constants: Any) -> onnx.ModelProto:
    """A model whose graph is ``text`` in ONNX syntax; ``constants`` become initializers.

    Names of nodes (``[/encoder/layer.0/q] y = …``) may hold what the syntax does not allow.
    """
    names: dict[str, str] = {}

    def stand_in(found: re.Match[str]) -> str:
        label = f"label_{len(names)}"
        names[label] = found[1]
        return f"[{label}]"

    text = _LABEL.sub(stand_in, text)
    header = f'<ir_version: {ir}, opset_import: ["" : {opset}]>\n'
    found = onnx.parser.parse_model(header + textwrap.dedent(text))
    _name_nodes(found.graph, names)
    for name, value in constants.items():
        array = np.asarray(value)
        found.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return found


def _name_nodes(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        if node.name in names:
            node.name = names[node.name]
        for attribute in node.attribute:
            for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                _name_nodes(body, names)


def run(proto: onnx.ModelProto, **feeds: Any) -> dict[str, Array]:
    """Outputs by name, ONNX Runtime's optimisations off."""
    return Session(proto).run({name: np.asarray(value) for name, value in feeds.items()})


def operators(proto: onnx.ModelProto) -> list[str]:
    """Operators of the main graph in order, Constants left out."""
    return [n.op_type for n in proto.graph.node if n.op_type != "Constant"]


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def seconds(action: Callable[[], object], times: int = 2) -> float:
    """The least processor time of some runs, without the garbage collector."""
    found = []
    for _ in range(times):
        gc.collect()
        gc.disable()
        began = time.process_time()
        action()
        found.append(time.process_time() - began)
        gc.enable()
    return min(found)


def same(a: Mapping[str, Array], b: Mapping[str, Array]) -> None:
    """Assert bit-equality of two runs."""
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)

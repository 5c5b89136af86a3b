"""Nothing is lost of real models: what no pass changes comes back field by field, in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

import surgeon_passes as sp
from benchmarks.entries import Wheels, exported, packaged

from .holds import graphs

OLD = "mobilenet_v1_inits_as_inputs_ir3"
"""IR version 3: it is raised to 4, where weights are no inputs"""
EMPTY = sp.Pipeline(sp.Cleanup())


def returned(path: Path) -> Iterator[str]:
    """What of a file is not as it was after a run without any pass, by fields. Left out is what is worked out anew:
    value_info, dims of outputs, types of what bodies give."""
    given = onnx.load(path, load_external_data=False)
    result = EMPTY.run(path, verify="off", skip=["cleanup"])
    found = onnx.ModelProto()
    found.CopyFrom(result.proto)
    for model in (given, found):
        for graph in graphs(model):
            graph.ClearField("value_info")
            if graph is not model.graph and isinstance(graph, onnx.GraphProto):
                for value in graph.output:
                    value.ClearField("type")
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")
    yield from differing(given, found, "model", ("graph",))
    yield from differing(given.graph, found.graph, "graph", ("node", "initializer"))
    for field in ("node", "initializer"):
        pairs = zip(getattr(given.graph, field), getattr(found.graph, field), strict=True)
        yield from (f"{field} '{a.name}'" for a, b in pairs if a != b)


def differing(given: object, found: object, where: str, but: tuple[str, ...]) -> Iterator[str]:
    for field in given.DESCRIPTOR.fields:  # type: ignore[attr-defined]
        if field.name not in but and getattr(given, field.name) != getattr(found, field.name):
            yield f"{where}.{field.name}"


@pytest.mark.parametrize("name", [entry["name"] for entry in exported()])
def test_exported_models_come_back(name: str, models: Path) -> None:
    (entry,) = (entry for entry in exported() if entry["name"] == name)
    assert list(returned(models / entry["file"])) == (["model.ir_version", "graph.input"] if name == OLD else [])


@pytest.mark.parametrize("entry", packaged(), ids=lambda entry: entry["name"])
def test_packaged_models_come_back(entry: dict, wheels: Wheels) -> None:
    assert list(returned(wheels.read(entry["package"], entry["path"]))) == []

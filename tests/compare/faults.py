"""Models whose names are gone, and whose layers are off: what a comparison must find."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, external_data_helper, numpy_helper

import surgeon_passes as sp
from surgeon_passes.compare import Comparison

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def renamed(model: ModelProto) -> ModelProto:
    """A copy in which no node and no tensor, inputs and outputs included, has its name."""
    found = copy_of(model)
    names: dict[str, str] = {}

    def new(name: str) -> str:
        return names.setdefault(name, f"t{len(names)}") if name else name

    def rename(graph: GraphProto) -> None:
        for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            value.name = new(value.name)
        for number, node in enumerate(graph.node):
            node.name = f"n{len(names)}_{number}"
            for field in (node.input, node.output):
                field[:] = [new(name) for name in field]
            for attribute in node.attribute:
                if attribute.type == AttributeProto.GRAPH:
                    rename(attribute.g)

    rename(found.graph)
    return found


def copy_of(model: ModelProto) -> ModelProto:
    found = ModelProto()
    found.CopyFrom(model)
    return found


def layers(model: ModelProto, operators: tuple[str, ...] = ("Conv",)) -> list[str]:
    """Names of the main graph's nodes of these operators whose weights are stored, in order."""
    held = {t.name for t in model.graph.initializer if len(t.dims) >= 2}
    return [n.name for n in model.graph.node if n.op_type in operators and held & set(n.input)]


def first_middle_last(names: list[str]) -> list[str]:
    return [names[0], names[len(names) // 2], names[-1]]


def scaled(model: ModelProto, layer: str, factor: float = 1.01) -> ModelProto:
    """A copy in which the weights of the node called ``layer``, and only they, are ``factor`` times what they were."""
    found = copy_of(model)
    node = next(n for n in found.graph.node if n.name == layer)
    weights = {t.name: t for t in found.graph.initializer}
    place = next(k for k, name in enumerate(node.input) if name in weights and len(weights[name].dims) >= 2)
    array = numpy_helper.to_array(weights[node.input[place]])
    node.input[place] += ".off"
    found.graph.initializer.append(numpy_helper.from_array(array * array.dtype.type(factor), node.input[place]))
    return found


def node_of(model: ModelProto, name: str) -> NodeProto:
    return next(n for n in model.graph.node if n.name == name)


def faults(model: ModelProto, names: list[str]) -> Iterator[tuple[str, ModelProto]]:
    for name in names:
        yield name, scaled(model, name)


def optimised(path: Path | ModelProto, **options: Any) -> ModelProto:
    """The result, weights inside, all names gone."""
    result = sp.optimize(path, **options)
    external_data_helper.load_external_data_for_model(result.proto, result.folder)
    return renamed(result.proto)


def assert_names(found: Comparison, model: ModelProto, layer: str) -> None:
    """That drift begins in ``layer`` of ``model``, there alone, and is named first."""
    assert found.exit_code == 5
    first = found.first
    assert first is not None
    assert (first.layers[1], first.b) == (layer, node_of(model, layer).output[0]), found.report()
    assert [pair.b for pair in found.pairs if pair.begins] == [first.b], found.report()
    assert first.own is not None and 1e-3 < first.own < 0.1
    assert first.operators[1] == found.operators[0].operator == node_of(model, layer).op_type


def dummy(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def saved(model: ModelProto, path: Path) -> Path:
    onnx.save(model, path)
    return path

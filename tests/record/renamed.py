"""The same model with every tensor, node and graph called otherwise, its interface too."""

from __future__ import annotations

import onnx

from ..fuzz.dress import graphs_of


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which no tensor of the main graph or a body keeps its name, nor any node."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    names: dict[str, str] = {"": ""}
    for graph in graphs_of(made):
        graph.name = "g"
        for entry in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
            entry.name = names.setdefault(entry.name, f"t.{len(names)}")
        for sparse in graph.sparse_initializer:
            sparse.values.name = names.setdefault(sparse.values.name, f"t.{len(names)}")
        for number, node in enumerate(graph.node):
            node.name = f"{id(graph)}/{number}"
            for side in (node.input, node.output):
                side[:] = [names.setdefault(name, f"t.{len(names)}") for name in side]
    for annotation in made.graph.quantization_annotation:
        annotation.tensor_name = names[annotation.tensor_name]
        for entry in annotation.quant_parameter_tensor_names:
            entry.value = names[entry.value]
    return made

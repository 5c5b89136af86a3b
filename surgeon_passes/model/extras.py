"""What a model holds that gs.Graph has no place for, kept beside it by identity and written back on export."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx
import onnx_graphsurgeon as gs

from surgeon_passes.model.weights import Weights


@dataclass(eq=False)
class GraphExtras:
    """Of one graph or body: ``shell`` is the GraphProto (or FunctionProto) without nodes, values and interface."""

    shell: onnx.GraphProto | onnx.FunctionProto
    interface: dict[int, onnx.ValueInfoProto] = field(default_factory=dict)
    """inputs and outputs by id(tensor): types that gs cannot say, doc strings, denotations"""
    as_output: dict[int, onnx.ValueInfoProto] = field(default_factory=dict)
    """how an input, or a constant, that is an output too is declared as one"""
    defaults: dict[str, onnx.TensorProto] = field(default_factory=dict)
    """initializers that callers may override (IR >= 4, listed as inputs)"""
    constants: list[gs.Constant] = field(default_factory=list)
    """initializers in the file's order"""
    unread: set[int] = field(default_factory=set)
    """initializers, by id, that nothing reads in the file: they stay until a pass takes them out"""
    hints: dict[int, onnx.ValueInfoProto] = field(default_factory=dict)
    """value_info by id(tensor): a hint only"""


@dataclass(eq=False)
class Extras:
    """``shell`` is the ModelProto without graph and functions."""

    shell: onnx.ModelProto = field(default_factory=onnx.ModelProto)
    graphs: dict[int, GraphExtras] = field(default_factory=dict)
    nodes: dict[int, onnx.NodeProto] = field(default_factory=dict)
    """doc_string, metadata_props and the like by id(node), only where there are any"""
    resized: bool = False
    """whether dims of inputs have changed since the import: value_info of the file is of other sizes"""

    def of(self, graph: gs.Graph) -> GraphExtras:
        return self.graphs.setdefault(id(graph), GraphExtras(onnx.GraphProto()))


@dataclass(eq=False)
class Model:
    """A loaded model. ``source`` names it in messages; ``weights`` finds what its tensors refer to."""

    graph: gs.Graph
    extras: Extras = field(default_factory=Extras)
    source: str = "the model"
    weights: Weights = field(default_factory=Weights)
    external: bool = False
    """whether weights lie in other files than the model"""
    proto: onnx.ModelProto | None = None
    """what it was imported from, unchanged"""
    is_ours: bool = False
    """whether ``proto`` was read from a file: nobody else holds it, and may change it"""
    stamp: tuple[int, int, int] | None = None
    """what :func:`surgeon_passes.model.files.stamp_of` said of the file when it was read"""

"""Running models too large for one session: in segments that hand their activations over.

Creating a session is superlinear in nodes, and a model of 2 GB cannot be handed over in one piece. A segment is a
model of its own over a stretch of the main graph; it reads large weights in place, and an activation lives until the
last segment that reads it has run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

import onnx
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from surgeon_passes.errors import ModelError
from surgeon_passes.model.elements import element_bits
from surgeon_passes.model.files import with_inner_weights
from surgeon_passes.model.nested import bodies
from surgeon_passes.model.order import captures, sorted_nodes
from surgeon_passes.model.weights import Weights
from surgeon_passes.ops.schema import opsets_of
from surgeon_passes.runtime import Array, RuntimeFailure, Session, Value, external_stub, is_too_large
from surgeon_passes.verify.packing import Pack, packs_of

SEGMENT_NODES = 1500
SEGMENTED_FROM = 5000
"""Nodes, bodies included, from which a model is run in segments."""

_VIA = "~carried"
_IN_PLACE_BYTES = 1 << 12


def node_count(graph: GraphProto) -> int:
    """Nodes of ``graph`` and its bodies; Constant nodes are not counted."""
    total, todo = 0, [graph]
    while todo:
        for node in todo.pop().node:
            total += node.op_type != "Constant"
            todo.extend(bodies(node))
    return total


def _nodes_of(node: NodeProto) -> int:
    return 1 + sum(node_count(body) for body in bodies(node))


def reads_of(node: NodeProto) -> list[str]:
    """Names that ``node`` and its bodies read from the graph around it, each once."""
    names = dict.fromkeys(n for n in node.input if n)
    for body in bodies(node):
        names.update(dict.fromkeys(captures(body)))
    return list(names)


@dataclass(eq=False, slots=True)
class _Segment:
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    """activations and model inputs"""
    gives: list[str] = field(default_factory=list)
    session: Session | None = None
    packs: list[Pack] = field(default_factory=list)
    """reads that the session takes together"""
    casts: dict[str, TypeProto] = field(default_factory=dict)
    """outputs whose type numpy lacks: they leave in a wider one"""

    def packed(self) -> set[str]:
        return {name for pack in self.packs for name in pack.members}


class SegmentedSession:
    """Looks like :class:`surgeon_passes.runtime.Session`. ``folder`` is where external data lies, or what finds it.

    ``keep`` keeps the segments' sessions for further runs. Raises RuntimeFailure.
    """

    def __init__(
        self,
        model: ModelProto,
        folder: str | Path | Weights = "",
        *,
        level: str = "off",
        extra_outputs: Sequence[str] = (),
        segment_nodes: int = SEGMENT_NODES,
        keep: bool = True,
        shapes_first: bool = False,
    ) -> None:
        self._shapes_first = shapes_first
        self._model, self._files, self._level, self._keep = model, Weights.of(folder), level, keep
        graph = model.graph
        self._weights = {t.name: t for t in graph.initializer}
        self._sparse = {t.values.name: t for t in graph.sparse_initializer}
        self._arrays: dict[str, Array] = {}
        held = self._weights.keys() | self._sparse.keys()
        self.input_names = [v.name for v in graph.input if v.name not in held]
        self._declared = {v.name: v.type for v in graph.input}
        self.outputs = dict.fromkeys([*(o.name for o in graph.output), *extra_outputs], "")
        self._segments = self._cut(segment_nodes, [*held, *self._declared])
        self._last_use = {n: k for k, s in enumerate(self._segments) for n in s.reads}

    # --- cutting -----------------------------------------------------------------------------------------------------

    def _cut(self, size: int, known: list[str]) -> list[_Segment]:
        try:
            nodes = sorted_nodes(list(self._model.graph.node), set(known), "the model")
        except Exception as error:
            raise RuntimeFailure(f"its nodes cannot be sorted: {error}") from error
        segments = [_Segment()]
        count = 0
        for node in nodes:
            weight = _nodes_of(node)
            if count and count + weight > size:
                segments.append(_Segment())
                count = 0
            segments[-1].nodes.append(node)
            count += weight
        made_in: dict[str, int] = {}
        gives: list[dict[str, None]] = [{} for _ in segments]
        for number, segment in enumerate(segments):
            self._connect(segment, number, made_in, gives)
        for name in self.outputs:
            if name in made_in:
                gives[made_in[name]][name] = None
        for segment, names in zip(segments, gives, strict=True):
            segment.gives = list(names)
        return segments

    def _connect(self, segment: _Segment, number: int, made_in: dict[str, int], gives: list[dict[str, None]]) -> None:
        weights: dict[str, None] = {}
        reads: dict[str, None] = {}
        for node in segment.nodes:
            for name in reads_of(node):
                source = made_in.get(name)
                if source is None and (name in self._weights or name in self._sparse):
                    weights[name] = None
                elif source != number:
                    reads[name] = None
                    if source is not None:
                        gives[source][name] = None
            made_in.update((n, number) for n in node.output if n)
        segment.weights, segment.reads = list(weights), list(reads)

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self, feeds: Mapping[str, Value], outputs: Iterable[str] | None = None) -> dict[str, Value]:
        """Values of ``outputs`` (all of them by default)."""
        wanted = list(self.outputs if outputs is None else outputs)
        alive = {n: (_carried(x, self._declared[n]), self._declared[n]) for n, x in feeds.items()}
        kept = {n: feeds[n] for n in wanted if n in alive}
        for number, segment in enumerate(self._segments):
            for name, made in self._run_segment(segment, alive).items():
                alive[name] = made
                if name in wanted:
                    kept[name] = made[0]
            for name in [*segment.reads, *segment.gives]:
                if self._last_use.get(name, -1) <= number:
                    alive.pop(name, None)
        for name in wanted:
            if name not in kept and (name in self._weights or name in self._sparse):
                kept[name] = self._array(name)
        return {n: kept[n] for n in wanted}

    def _run_segment(
        self, segment: _Segment, alive: Mapping[str, tuple[Value, TypeProto]]
    ) -> dict[str, tuple[Value, TypeProto]]:
        if not segment.gives:
            return {}
        values = {n: alive[n][0] for n in segment.packed()}
        if not all(pack.fits(values) for pack in segment.packs):
            segment.session = None
        session = segment.session or self._load(segment, alive)
        if self._keep:
            segment.session = session
        packed = segment.packed()
        values = {n: alive[n][0] for n in packed}
        fed = {_fed_name(n, alive[n][1]): alive[n][0] for n in segment.reads if n not in packed}
        fed.update((pack.name, pack.array(values)) for pack in segment.packs)
        names = {n: (n + _VIA if n in segment.casts else n) for n in segment.gives}
        made = session.run(fed, list(names.values()))
        return {n: (made[via], segment.casts.get(n) or type_from_text(session.outputs[n])) for n, via in names.items()}

    def _load(self, segment: _Segment, alive: Mapping[str, tuple[Value, TypeProto]]) -> Session:
        model = ModelProto(ir_version=max(self._model.ir_version, 4))
        model.opset_import.extend(self._model.opset_import)
        model.functions.extend(self._model.functions)
        graph = model.graph
        graph.name = "segment"
        graph.node.extend(segment.nodes)
        missing = next((name for name in segment.reads if name not in alive), None)
        if missing is not None:
            raise RuntimeFailure(f"'{missing}' is read, but nothing makes it")
        self._add_packs(segment, graph, alive)
        packed = segment.packed()
        for name in segment.reads:
            if name not in packed:
                _add_input(graph, name, alive[name][1])
        graph.output.extend(ValueInfoProto(name=n) for n in segment.gives)
        external: dict[str, Array] = {}
        for name in segment.weights:
            self._add_weight(name, graph, external)
        session = Session(model, level=self._level, external=external, shapes_first=self._shapes_first)
        opaque = session.opaque_outputs()
        if not opaque:
            return session
        segment.casts = {n: type_from_text(session.outputs[n]) for n in opaque}
        for name in opaque:
            graph.node.append(helper.make_node("Cast", [name], [name + _VIA], to=_carrier(segment.casts[name])))
            graph.output.add(name=name + _VIA)
        return Session(model, level=self._level, external=external, shapes_first=self._shapes_first)

    def _add_packs(self, segment: _Segment, graph: GraphProto, alive: Mapping[str, tuple[Value, TypeProto]]) -> None:
        opset = opsets_of(self._model.opset_import).get("", 0)
        tensors = [n for n in segment.reads if alive[n][1].WhichOneof("value") == "tensor_type"]
        plain = {n: alive[n][0] for n in tensors if not _carrier(alive[n][1])}
        segment.packs = packs_of(plain) if opset else []
        for pack in segment.packs:
            pack.add_to(graph, opset)

    def _add_weight(self, name: str, graph: GraphProto, external: dict[str, Array]) -> None:
        if name in self._sparse:
            graph.sparse_initializer.append(self._sparse[name])
            return
        tensor = self._weights[name]
        as_it_is = tensor.data_type == TensorProto.STRING or element_bits(tensor.data_type) < 8
        if as_it_is or math.prod(tensor.dims) * 8 <= _IN_PLACE_BYTES:
            if tensor.data_location == TensorProto.EXTERNAL:
                graph.initializer.append(numpy_helper.from_array(self._array(name), name))
            else:
                graph.initializer.append(tensor)
            return
        external[name] = self._array(name)
        graph.initializer.append(external_stub(name, tensor.dims, tensor.data_type))

    def _array(self, name: str) -> Array:
        """A weight's values; made once, and shared by every segment that reads it."""
        if name not in self._arrays:
            if name in self._sparse:
                raise RuntimeFailure(f"the sparse initializer '{name}' is an output")
            self._arrays[name] = self._files.aligned(self._weights[name])
        return self._arrays[name]


def _carrier(kind: TypeProto) -> int:
    """The element type in which values leave and enter: float32 and int8 stand in for what numpy lacks; 0 where none does."""
    dtype = kind.tensor_type.elem_type
    name = TensorProto.DataType.Name(dtype) if dtype else ""
    if name.startswith(("BFLOAT", "FLOAT8", "FLOAT4")):
        return int(TensorProto.FLOAT)
    return {"INT4": int(TensorProto.INT8), "UINT4": int(TensorProto.UINT8)}.get(name, 0)


def _carried(value: Value, kind: TypeProto) -> Value:
    """A feed in the type in which it enters."""
    carrier = _carrier(kind)
    return value.astype(helper.tensor_dtype_to_np_dtype(carrier)) if carrier else value


def _fed_name(name: str, kind: TypeProto) -> str:
    return name + _VIA if _carrier(kind) else name


def _add_input(graph: GraphProto, name: str, kind: TypeProto) -> None:
    carrier = _carrier(kind)
    value = _open_value(_fed_name(name, kind), kind)
    if carrier:
        value.type.tensor_type.elem_type = carrier
        graph.node.insert(0, helper.make_node("Cast", [value.name], [name], to=kind.tensor_type.elem_type))
    graph.input.append(value)


def _open_value(name: str, kind: TypeProto) -> ValueInfoProto:
    """An input of the same type and rank with every dim open."""
    value = ValueInfoProto(name=name)
    value.type.CopyFrom(kind)
    if kind.WhichOneof("value") == "tensor_type":
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    return value


_TEXT_TYPES = {
    "float": TensorProto.FLOAT, "double": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16, "bool": TensorProto.BOOL,
    "string": TensorProto.STRING, "bfloat16": TensorProto.BFLOAT16,
    **{k.lower(): v for k, v in TensorProto.DataType.items() if k.startswith("FLOAT8")},
    **{f"{u}int{b}": TensorProto.DataType.Value(f"{u.upper()}INT{b}") for u in ("", "u") for b in (4, 8, 16, 32, 64)},
}  # fmt: skip


def type_from_text(text: str) -> TypeProto:
    """The TypeProto behind ONNX Runtime's ``tensor(float)``, ``seq(tensor(int64))``. Raises RuntimeFailure."""
    if text.startswith("seq(") and text.endswith(")"):
        return helper.make_sequence_type_proto(type_from_text(text[4:-1]))
    if text.startswith("optional(") and text.endswith(")"):
        return helper.make_optional_type_proto(type_from_text(text[9:-1]))
    inner = text[7:-1] if text.startswith("tensor(") else ""
    if inner not in _TEXT_TYPES:
        raise RuntimeFailure(f"a value of type {text} cannot be handed from one segment to the next")
    return helper.make_tensor_type_proto(_TEXT_TYPES[inner], None)


# --- one session or many -------------------------------------------------------------------------------------------------

Model: TypeAlias = ModelProto | tuple[ModelProto, str | Weights] | str | Path
"""A proto, one with the folder of its external data or what finds it, or a file."""
Runner: TypeAlias = Session | SegmentedSession


def read_model(model: Model) -> tuple[ModelProto, Weights]:
    """(proto, what finds its external data); external data is not read. Raises RuntimeFailure."""
    if isinstance(model, ModelProto):
        return model, Weights()
    if isinstance(model, tuple):
        return model[0], Weights.of(model[1])
    try:
        return onnx.load(str(model), load_external_data=False), Weights(Path(model).parent)
    except Exception as error:
        raise RuntimeFailure(f"{model} cannot be read: {error}") from error


def open_model(
    model: Model,
    *,
    level: str = "off",
    extra_outputs: Sequence[str] = (),
    threads: int = 1,
    shapes_first: bool = False,
) -> Runner:
    """A runner for ``model``: one session on ``threads`` threads, or segments above :data:`SEGMENTED_FROM` nodes.

    ``shapes_first`` runs a Shape as soon as it can. Inputs and outputs of types that numpy lacks (bfloat16, float8) come and
    go as float32. Raises RuntimeFailure.
    """
    proto, weights = read_model(model)
    proto = _readable(proto, weights)
    in_segments = partial(
        SegmentedSession, proto, weights, level=level, extra_outputs=extra_outputs, shapes_first=shapes_first
    )
    if node_count(proto.graph) > SEGMENTED_FROM or is_too_large(proto):
        return in_segments()
    if any(_carrier(v.type) for v in proto.graph.input):
        return in_segments()
    if extra_outputs or not isinstance(model, (str, Path)):
        session = _whole(proto, weights, level, extra_outputs, threads, shapes_first)
    else:
        session = Session(model, level=level, threads=threads)
    return in_segments() if session.opaque_outputs() else session


def _readable(proto: ModelProto, weights: Weights) -> ModelProto:
    """``proto`` without references that ONNX Runtime would look for in the working folder."""
    try:
        return with_inner_weights(proto, weights)
    except ModelError as error:
        raise RuntimeFailure(str(error)) from error


def _whole(
    proto: ModelProto, weights: Weights, level: str, extra_outputs: Sequence[str], threads: int, shapes_first: bool
) -> Session:
    """One session over a proto, its external data mapped and ``extra_outputs`` added."""
    outside = [t for t in proto.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    external = {t.name: weights.aligned(t) for t in outside}
    if extra_outputs:
        whole = ModelProto()
        whole.CopyFrom(proto)
        whole.graph.output.extend(ValueInfoProto(name=n) for n in extra_outputs)
        proto = whole
    return Session(proto, level=level, external=external, threads=threads, shapes_first=shapes_first)

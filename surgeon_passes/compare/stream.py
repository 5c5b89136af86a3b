"""Values of tensors inside a model, group by group: some are made outputs, the model is run, they are reduced and dropped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TypeProto, ValueInfoProto, helper

from surgeon_passes.compare.runtimes import Runtime
from surgeon_passes.compare.side import Side
from surgeon_passes.errors import RuntimeFailure
from surgeon_passes.runtime import Value

BUDGET = 1 << 28
"""Bytes of activations that are held at one time, unless somebody says otherwise."""
_UNKNOWN_SHARE = 8
"""A tensor whose size is not known takes this part of the budget."""
_SHAPE = "~shape"
OWN = "~own"
"""Behind the name of what is made where the name itself is fed."""

Feeds = Mapping[str, Value]


def part(side: Side, outputs: Sequence[str], fed: Mapping[str, TypeProto] | None = None) -> ModelProto:
    """The model that computes ``outputs``, tensors of the side's main graph, from its inputs and from ``fed``.

    What is fed is an input of its type; where a node makes it all the same, it is called as before with :data:`OWN` behind.
    Weights are referred to as the side's model refers to them.
    """
    cut = dict(fed or {})
    model = ModelProto(ir_version=max(side.proto.ir_version, 4))
    model.opset_import.extend(side.proto.opset_import)
    model.functions.extend(side.proto.functions)
    graph = model.graph
    graph.name = "part"
    needed = _needed(side, outputs, cut)
    names: set[str] = set()
    for number in needed:
        graph.node.append(_renamed(side.nodes[number], cut))
        names.update(side.read_all[number])
    graph.initializer.extend(t for t in side.proto.graph.initializer if t.name in names)
    graph.sparse_initializer.extend(t for t in side.proto.graph.sparse_initializer if t.values.name in names)
    for value in side.proto.graph.input:
        if value.name in names and value.name in side.input_names and value.name not in cut:
            graph.input.append(value)
    for name, kind in cut.items():
        if name in names:
            graph.input.append(ValueInfoProto(name=name, type=kind))
    graph.output.extend(ValueInfoProto(name=name + OWN if name in cut else name) for name in outputs)
    return model


def _needed(side: Side, outputs: Iterable[str], cut: Mapping[str, TypeProto]) -> list[int]:
    """Nodes behind ``outputs``, in order; tensors of ``cut`` are not followed, but outputs themselves are."""
    todo = [side.maker[name] for name in outputs if name in side.maker]
    found: set[int] = set()
    while todo:
        number = todo.pop()
        if number in found:
            continue
        found.add(number)
        todo += [side.maker[n] for n in side.read_all[number] if n in side.maker and n not in cut]
    return sorted(found)


def _renamed(node: NodeProto, cut: Mapping[str, TypeProto]) -> NodeProto:
    if not any(name in cut for name in node.output):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    for k, name in enumerate(node.output):
        if name in cut:
            copy.output[k] = name + OWN
    return copy


class Stream:
    """A side with what it is fed: ``feeds`` are one mapping of input names to arrays a run."""

    def __init__(self, side: Side, runtime: Runtime, feeds: Sequence[Feeds]) -> None:
        self.side, self.runtime, self.feeds = side, runtime, feeds

    def values(self, names: Sequence[str], feeds: Sequence[Feeds] | None = None) -> list[dict[str, Value]]:
        """Of each run the values of ``names``, inputs included. Raises RuntimeFailure."""
        runs = self.feeds if feeds is None else feeds
        made = [n for n in dict.fromkeys(names) if n in self.side.maker]
        given = [{n: run[n] for n in names if n in self.side.input_names} for run in runs]
        stored = {n: x for n in names if n not in self.side.maker and (x := self.side.stored(n)) is not None}
        given = [{**stored, **run} for run in given]
        if not made:
            return given
        values = run_part(self.runtime, self.side, part(self.side, made), runs)
        return [{**held, **found} for held, found in zip(given, values, strict=True)]

    def sizes(self, names: Sequence[str]) -> dict[str, int]:
        """Bytes of tensors over all runs, from one run that gives their shapes alone; {} where that cannot be told."""
        kinds = {name: self.side.kind(name) for name in names}
        for allowed in (("tensor", ""), ("tensor",)):
            asked = [n for n in names if kinds[n] in allowed]
            try:
                return self._sizes(asked) if asked else {}
            except RuntimeFailure as failure:
                if failure.is_fatal:
                    raise
        return {}

    def _sizes(self, names: Sequence[str]) -> dict[str, int]:
        model = part(self.side, names)
        del model.graph.output[:]
        for name in names:
            model.graph.node.append(helper.make_node("Shape", [name], [name + _SHAPE]))
            model.graph.output.add(name=name + _SHAPE)
        found = dict.fromkeys(names, 0)
        for run in run_part(self.runtime, self.side, model, self.feeds):
            for name in names:
                found[name] += math.prod(map(int, run[name + _SHAPE])) * self._itemsize(name)
        return found

    def _itemsize(self, name: str) -> int:
        kind = self.side.types.get(name)
        dtype = kind.tensor_type.elem_type if kind is not None else 0
        return helper.tensor_dtype_to_np_dtype(dtype).itemsize if dtype else 4


def run_part(runtime: Runtime, side: Side, model: ModelProto, runs: Sequence[Feeds]) -> list[dict[str, Value]]:
    """Every output of ``model``, a part of ``side``, on each of ``runs``. Raises RuntimeFailure."""
    names = [value.name for value in model.graph.output]
    inputs = [value.name for value in model.graph.input]
    try:
        runner = runtime.open(model, side.weights)
        found = [runner.run({n: run[n] for n in inputs}, names) for run in runs]
    except RuntimeFailure as failure:
        raise RuntimeFailure(f"{side.source} does not run: {failure}", failure.code) from failure
    return [{n: _array(run[n]) for n in names} for run in found]


def _array(value: Value) -> Value:
    return np.asarray(value) if isinstance(value, np.generic) else value


def groups(names: Iterable[str], sizes: Mapping[str, int], budget: int) -> Iterator[list[str]]:
    """``names`` in order, as many at a time as fit into ``budget`` bytes; at least one."""
    group: list[str] = []
    held = 0
    for name in names:
        size = sizes.get(name, budget // _UNKNOWN_SHARE)
        if group and held + size > budget:
            yield group
            group, held = [], 0
        group.append(name)
        held += size
    if group:
        yield group

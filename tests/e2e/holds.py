"""What must hold of every result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto

import surgeon_passes as sp

FEEDERS = ("Conv", "ConvTranspose", "Gemm")
"""operators that take in a BatchNormalization behind them"""


def optimize(path: Path, data: Any = None, shapes: Any = None, **options: Any) -> sp.Result:
    return sp.optimize(path, shapes, verify=sp.Verify(data=data), **options)


def assert_holds(path: Path, place: Path, data: Any, shapes: Any = None, check: str = "equal") -> sp.Result:
    """Optimise ``path`` into the folder ``place`` and again: every rule of a sound result. Gives the first result."""
    result = optimize(path, data, shapes)
    assert result.checker_error == ""
    assert result.check.status == check, result.report()
    assert result.undone == [], result.report()
    assert {d.verdict for d in result.applied} <= {"verified"}, result.report()
    first, second = place / "first" / "model.onnx", place / "second" / "model.onnx"
    first.parent.mkdir()
    second.parent.mkdir()
    result.save(first)
    onnx.checker.check_model(first)
    written = onnx.load(first, load_external_data=False)
    assert_same_interface(onnx.load(path, load_external_data=False), written, fixed=shapes or {})
    optimize(first, data).save(second)
    assert bytes_of(first) == bytes_of(second), "running on its own output changes it"
    return result


def bytes_of(path: Path) -> tuple[bytes, bytes]:
    """A model file and its external data."""
    data = path.with_name(path.name + ".data")
    return path.read_bytes(), data.read_bytes() if data.exists() else b""


def assert_same_interface(before: onnx.ModelProto, after: onnx.ModelProto, fixed: Any) -> None:
    """Names, order, dtypes and ranks are kept; apart from inputs that were given a shape, also dims of the inputs, and
    of the outputs' dims those that are fixed or called as an input's."""
    assert _required(before) == _required(after)
    for side in ("input", "output"):
        olds = {v.name: v for v in getattr(before.graph, side)}
        for new in getattr(after.graph, side):
            old = olds[new.name]
            assert new.type.WhichOneof("value") == old.type.WhichOneof("value")
            if new.type.HasField("tensor_type"):
                _assert_same_tensor(old, new, keep_dims=side == "input" and not fixed)
                if side == "output" and not fixed:
                    _assert_bound_dims_stay(old, new, {d for v in before.graph.input for d in _dims(v)})
    assert [v.name for v in before.graph.output] == [v.name for v in after.graph.output]


def _assert_same_tensor(old: onnx.ValueInfoProto, new: onnx.ValueInfoProto, keep_dims: bool) -> None:
    a, b = old.type.tensor_type, new.type.tensor_type
    assert a.elem_type == b.elem_type, new.name
    if a.HasField("shape"):
        assert len(a.shape.dim) == len(b.shape.dim), new.name
    if keep_dims:
        assert _dims(old) == _dims(new), new.name


def _assert_bound_dims_stay(old: onnx.ValueInfoProto, new: onnx.ValueInfoProto, inputs: set[Any]) -> None:
    for was, now in zip(_dims(old), _dims(new), strict=False):
        if isinstance(was, int):
            assert now == was, new.name
        elif was in inputs and was is not None:
            assert now == was or isinstance(now, int), new.name


def _required(model: onnx.ModelProto) -> list[str]:
    """Inputs without an initializer."""
    held = {t.name for t in model.graph.initializer} | {t.values.name for t in model.graph.sparse_initializer}
    return [v.name for v in model.graph.input if v.name not in held]


def _dims(value: onnx.ValueInfoProto) -> list[Any]:
    return [d.dim_param or (d.dim_value if d.HasField("dim_value") else None) for d in value.type.tensor_type.shape.dim]


def graphs(model: onnx.ModelProto) -> Iterator[Any]:
    """The graph, its subgraphs, functions: whatever has a ``node`` list."""
    todo: list[Any] = [model.graph, *model.functions]
    while todo:
        graph = todo.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                todo += [attribute.g] if attribute.type == AttributeProto.GRAPH else list(attribute.graphs)


def operators(model: onnx.ModelProto) -> Counter[str]:
    """Operators everywhere in a model; Constant nodes are not counted."""
    return Counter(n.op_type for g in graphs(model) for n in g.node if n.op_type != "Constant")


def norms_behind(model: onnx.ModelProto, feeders: tuple[str, ...] = FEEDERS) -> list[str]:
    """BatchNormalizations, in every graph, that read what one of ``feeders`` makes."""
    found = []
    for graph in graphs(model):
        made_by = {name: node.op_type for node in graph.node for name in node.output}
        norms = (n for n in graph.node if n.op_type == "BatchNormalization")
        found += [n.name or n.output[0] for n in norms if made_by.get(n.input[0]) in feeders]
    return found

"""What must hold of every result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto

import surgeon_passes as sp
from benchmarks.entries import Entry, Feeds, feeds
from surgeon_passes.report.dynamic import count_file
from surgeon_passes.runtime import RuntimeFailure, Session

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


def assert_as_lean(result: sp.Result, entry: Entry) -> None:
    """With fixed shapes: no more nodes than the leanest peer leaves, and sizes are computed only behind data."""
    assert result.after.nodes <= entry["nodes"].get("static", result.after.nodes), result.report()
    counts = count_file(result.proto)
    if not result.dynamic.data_dependent:
        assert counts.shape_nodes == 0 and not counts.computed and not result.dynamic.shape_dependent, result.report()
    for left in result.dynamic.shape_dependent:
        assert not any("of input" in need for need in left.needs), result.report()


def assert_equal_at_more_sizes(path: Path, result: sp.Result, entry: Entry) -> None:
    """At three sizes, batch 1 among them: equal to the original; where that fails, the result fails, too."""
    compared = 0
    for sizes in _sizes(entry):
        given = feeds({**entry, "static_inputs": sizes}, seed=7)
        want, got = _outcome(onnx.load(path), given), _outcome(result.proto, given)
        assert (want is None) == (got is None), f"at {sizes} only one of them runs"
        if want is None or got is None:
            continue
        compared += 1
        for name, value in want.items():
            _assert_close(value, got[name], f"{name} at {sizes}")
    assert compared


def _sizes(entry: Entry) -> list[dict[str, list[int]]]:
    """The shapes of the entry, its second ones, and the latter with 1 for the first open dim (usually the batch)."""
    first = entry["static_inputs"]
    second = entry.get("alt_static_inputs", first)
    opened = [d for given in entry["inputs"] for d in given["shape"] or [] if isinstance(d, str)]
    batch = opened[0] if opened else None
    places = {i["name"]: i["shape"] or [] for i in entry["inputs"]}
    one = {
        name: [1 if batch is not None and places[name][k : k + 1] == [batch] else d for k, d in enumerate(dims)]
        for name, dims in second.items()
    }
    return [first, second, one]


def _outcome(model: onnx.ModelProto, given: Feeds) -> dict[str, Any] | None:
    try:
        return Session(model).run(given)
    except RuntimeFailure:
        return None


def _assert_close(want: Any, got: Any, where: str) -> None:
    """Numbers within 1e-4 of the output's scale; NaN and infinities in the same places."""
    if not isinstance(want, np.ndarray) or not np.issubdtype(want.dtype, np.floating):
        assert np.array_equal(np.asarray(want, object), np.asarray(got, object)), where
        return
    scale = float(np.abs(want[np.isfinite(want)]).max(initial=1e-6))
    np.testing.assert_allclose(got, want, atol=1e-4 * scale, rtol=0, equal_nan=True, err_msg=where)

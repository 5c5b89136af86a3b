"""What a reader of the report should know about the model itself: facts read off the original's file and the result's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto

from surgeon_passes.model.nested import bodies
from surgeon_passes.model.order import reads
from surgeon_passes.model.weights import Array, Weights
from surgeon_passes.report.blocks import Block

WARNING, NOTE = "warning", "note"
BLOCKS = "multi-branch blocks"
"""The kind of finding of which the text report has a table of its own."""
FLOATS: dict[int, str] = {
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float64",
}
UNTYPED = frozenset({"DequantizeLinear", "QuantizeLinear", "Resize", "Upsample"})
"""Operators whose parameters have a dtype of their own, whatever the model's is."""
STATISTICS = 5
"""Operands of a BatchNormalization, its mean and variance among them."""

Constants = Mapping[str, TensorProto]


@dataclass(frozen=True, slots=True)
class Finding:
    """``severity``: "warning" where results may be wrong, "note" where something is left. ``where``: nodes or tensors."""

    kind: str
    severity: str
    text: str
    where: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Norm:
    label: str
    mean: Array
    variance: Array


def find_health(
    original: onnx.ModelProto, final: onnx.ModelProto, weights: Weights, blocks: Sequence[Block] = ()
) -> tuple[Finding, ...]:
    """Findings of both models, warnings first. Raises ModelError where statistics lie in a file that cannot be read."""
    norms = [norm for norm in _norms(original, weights) if norm.mean.size and norm.variance.size]
    found = [
        *_negative(norms),
        *_untrained(norms),
        *_mixed(original),
        *_unused(original, final),
        *_left(blocks),
    ]
    return tuple(sorted(found, key=lambda finding: finding.severity != WARNING))


# --- BatchNormalization ----------------------------------------------------------------------------------------------


def _norms(proto: onnx.ModelProto, weights: Weights) -> Iterator[_Norm]:
    for nodes, constants in _graphs(proto):
        for node in nodes:
            if node.op_type != "BatchNormalization" or node.domain or len(node.input) < STATISTICS:
                continue
            mean, variance = (constants.get(name) for name in node.input[3:STATISTICS])
            if mean is not None and variance is not None:
                yield _Norm(_label(node), weights.array(mean), weights.array(variance))


def _negative(norms: Sequence[_Norm]) -> Iterator[Finding]:
    bad = [norm for norm in norms if not (norm.variance >= 0).all()]  # NaN is not, either
    if bad:
        least = min(float(np.nan_to_num(norm.variance.astype(np.float64), nan=-np.inf).min()) for norm in bad)
        told = "is not a number" if np.isneginf(least) else f"goes down to {least:.3g}"
        text = f"the variance of {_of(len(bad), len(norms), 'BatchNormalization')} is negative: it {told}"
        yield Finding("negative variance", WARNING, text, tuple(norm.label for norm in bad))


def _untrained(norms: Sequence[_Norm]) -> Iterator[Finding]:
    fresh = [norm for norm in norms if (norm.mean == 0).all() and (norm.variance == 1).all()]
    if fresh:
        text = (
            f"{_of(len(fresh), len(norms), 'BatchNormalization')} with the statistics of an untrained model: mean 0, "
            "variance 1 everywhere"
        )
        yield Finding("untrained statistics", WARNING, text, tuple(norm.label for norm in fresh))


def _of(number: int, total: int, what: str) -> str:
    return f"{number} of {total} {what}{'s' * (total != 1)}"


# --- parameters ------------------------------------------------------------------------------------------------------


def _mixed(proto: onnx.ModelProto) -> Iterator[Finding]:
    """Parameters of two floating dtypes. Scalars, and operands that have a dtype of their own, do not count."""
    by_type: dict[int, dict[str, None]] = defaultdict(dict)
    for nodes, constants in _graphs(proto):
        for node in nodes:
            for name in () if node.op_type in UNTYPED else node.input:
                tensor = constants.get(name)
                if tensor is not None and tensor.data_type in FLOATS and np.prod(tensor.dims) > 1:
                    by_type[tensor.data_type][name] = None
    if len(by_type) < 2:
        return
    ordered = sorted(by_type.items(), key=lambda item: -len(item[1]))
    counts = ", ".join(f"{len(names)} {FLOATS[dtype]}" for dtype, names in ordered)
    fewest = tuple(ordered[-1][1])
    yield Finding("mixed precision", NOTE, f"parameters of several dtypes: {counts}", fewest)


# --- inputs and branches ---------------------------------------------------------------------------------------------


def _unused(original: onnx.ModelProto, final: onnx.ModelProto) -> Iterator[Finding]:
    before, after = _unread(original.graph), _unread(final.graph)
    for name in before:
        yield Finding("unused input", NOTE, f"input '{name}' is read by no node", (name,))
    for name in after:
        if name not in before:
            yield Finding(
                "unused input", NOTE, f"input '{name}' decides nothing: no node of the result reads it", (name,)
            )


def _unread(graph: onnx.GraphProto) -> list[str]:
    held = {t.name for t in graph.initializer}
    read = {name for node in graph.node for name in reads(node)} | {v.name for v in graph.output}
    return [v.name for v in graph.input if v.name not in read and v.name not in held]


def _left(blocks: Sequence[Block]) -> Iterator[Finding]:
    if blocks:
        text = f"{len(blocks)} multi-branch block{'s' * (len(blocks) > 1)} left: {blocks[0].reason}"
        yield Finding(BLOCKS, NOTE, text, tuple(block.node for block in blocks))


# --- files -----------------------------------------------------------------------------------------------------------


def _graphs(proto: onnx.ModelProto) -> Iterator[tuple[Sequence[onnx.NodeProto], Constants]]:
    """Nodes of every graph, body and function, with the constants that they can see."""
    todo: list[tuple[onnx.GraphProto | onnx.FunctionProto, Constants]] = [(proto.graph, {})]
    todo += [(function, {}) for function in proto.functions]
    while todo:
        graph, around = todo.pop()
        own = {t.name: t for t in getattr(graph, "initializer", ())}
        hidden = {v.name for v in graph.input} if isinstance(graph, onnx.GraphProto) else set(graph.input)
        seen = {**{name: t for name, t in around.items() if name not in hidden}, **own}
        for node in graph.node:
            if node.op_type == "Constant" and node.output:
                values = [a.t for a in node.attribute if a.name == "value"]
                seen.update({node.output[0]: values[0]} if values else {})
            elif node.op_type == "Identity" and node.input[0] in seen:  # exporters share equal weights like this
                seen[node.output[0]] = seen[node.input[0]]
        yield graph.node, seen
        for node in graph.node:
            todo += [(body, seen) for body in bodies(node)]


def _label(node: onnx.NodeProto) -> str:
    return f"{node.op_type} '{node.name}'" if node.name else f"{node.op_type} -> '{node.output[0]}'"

"""One decision as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx

from surgeon_passes.decisions import Decision
from surgeon_passes.record.places import Place
from surgeon_passes.record.standing import Standing
from surgeon_passes.record.structure import attributes, structure_of
from surgeon_passes.region import TensorType
from surgeon_passes.traces import NodeTrace, TensorTrace, Trace

TOLD = 256
"""Characters of an attribute's value."""


def match_record(decision: Decision, number: int, place: Place | None) -> dict[str, Any]:
    metrics = decision.metrics
    return {
        "number": number,
        "rule": decision.rule,
        "pass": decision.step,
        "graph": decision.graph,
        "root": decision.root,
        "nodes": list(decision.nodes),
        "status": decision.status,
        "verdict": decision.verdict,
        "reason": decision.reason,
        "pattern_line": decision.pattern_line,
        "max_error": plain(metrics.get("max_error")),
        "mean_error": plain(metrics.get("mean_error")),
        "tensor": str(metrics.get("tensor") or ""),
        "seconds": plain(metrics.get("seconds")),
        "place": None if place is None else {"above": place.above, "below": place.below, "depth": place.depth},
        "region": None if decision.trace is None else _region(decision.rule, decision.trace),
    }


def plain(value: Any) -> float | str | None:
    """A number as JSON holds it; infinite ones and NaN are text."""
    if value is None:
        return None
    found = float(value)
    return found if math.isfinite(found) else str(found)


def number(size: object) -> int | str | None:
    """A count or a size as JSON holds it: symbolic ones are text."""
    return size if size is None or isinstance(size, int) else str(size)


def _region(rule: str, trace: Trace) -> dict[str, Any]:
    before, after = Standing(trace.before), Standing(trace.after)
    return {
        "structure": structure_of(rule, trace),
        "removed": [_node(node, before, place) for place, node in enumerate(trace.before)],
        "added": [_node(node, after, place) for place, node in enumerate(trace.after)],
        "inputs": [_tensor(t) for t in _boundary(trace)],
        "outputs": [{"before": _tensor(a), "after": _tensor(b)} for a, b in trace.outputs],
        "macs_before": number(before.macs()),
        "macs_after": number(after.macs()),
        "parameters_before": before.parameters(),
        "parameters_after": after.parameters(),
        "weights": [
            {
                "node": w.node,
                "tensor": w.tensor,
                "old": w.old,
                "distance": plain(w.distance),
                "norm": plain(w.norm),
            }
            for w in trace.weights
        ],
        "epsilon": _attribute(before, "epsilon"),
        "group": _attribute(before, "group"),
    }


def _attribute(standing: Standing, name: str) -> float | int | None:
    """Of the first node that has it, written or by default: the epsilon of a normalization, the group of a convolution."""
    for view in standing.views:
        value = attributes(view).get(name)
        if isinstance(value, (int, float)):
            return value
    return None


def _boundary(trace: Trace) -> Iterable[TensorTrace]:
    """What either side reads that it does not make, constants left out, each once."""
    made = {t.key for node in (*trace.before, *trace.after) for t in node.outputs if t is not None}
    read = [t for node in (*trace.before, *trace.after) for t in node.inputs if t is not None]
    return {t.key: t for t in read if t.key not in made and not t.constant}.values()


def _node(node: NodeTrace, standing: Standing, place: int) -> dict[str, Any]:
    return {
        "label": node.label,
        "op": f"{node.domain}.{node.op}" if node.domain else node.op,
        "attributes": {name: _told(value) for name, value in sorted(attributes(standing.views[place]).items())},
        "inputs": [None if t is None else _tensor(t) for t in node.inputs],
        "outputs": [None if t is None else _tensor(t) for t in node.outputs],
    }


def _tensor(tensor: TensorTrace) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "dtype": _dtype(tensor.type),
        "shape": _shape(tensor.type),
        "constant": tensor.constant,
    }


def _dtype(found: TensorType) -> str | None:
    if found.kind != "tensor":
        return found.kind
    return None if found.dtype is None else onnx.TensorProto.DataType.Name(found.dtype).lower()


def _shape(found: TensorType) -> list[int | str | None] | None:
    if found.shape is None:
        return None
    return [number(d) for d in found.shape]


def _told(value: Any) -> Any:
    """An attribute's value as JSON holds it."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, (float, np.floating)):
        return plain(value)
    if isinstance(value, (list, tuple)) and len(value) <= TOLD:
        return [_told(v) for v in value]
    text = str(value.tolist() if isinstance(value, np.ndarray) else value)
    text = text.encode("utf-8", "backslashreplace").decode()  # attributes may hold any bytes
    return text if len(text) <= TOLD else text[: TOLD - 1] + "…"

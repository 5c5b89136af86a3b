"""Keys by structure: equal for equal pieces of graph, whatever their nodes and tensors are called.

What counts: operators, attributes (those left out as their defaults), element types and shapes of constants, element types
and ranks of what comes from outside. What does not: names, values of constants, sizes of activations, the order of nodes and
of the operands of commutative operators.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.ops.defaults import COMPUTED
from surgeon_passes.ops.schema import default_attributes
from surgeon_passes.ops.traits import is_commutative
from surgeon_passes.ops.view import CallerAttribute, NodeView
from surgeon_passes.record.standing import Standing
from surgeon_passes.traces import TensorTrace, Trace

LENGTH = 16
"""Hexadecimal digits of a key."""


def digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "surrogateescape")).hexdigest()[:LENGTH]


def structure_of(rule: str, trace: Trace) -> str:
    """Of what a rewrite took out."""
    standing = Standing(trace.before)
    made = {t.key: (place, slot) for place, n in enumerate(trace.before) for slot, t in enumerate(n.outputs) if t}
    keys: dict[int, str] = {}

    def key(place: int) -> str:
        if place not in keys:
            keys[place] = ""  # what a cycle through renamed tensors would ask for
            keys[place] = node_key(standing.views[place], [operand(t) for t in trace.before[place].inputs])
        return keys[place]

    def operand(tensor: TensorTrace | None) -> str:
        if tensor is None:
            return "-"
        if tensor.key in made and not tensor.constant:
            place, slot = made[tensor.key]
            return f"{key(place)}:{slot}"
        return constant(tensor.type) if tensor.constant else outside(tensor.type)

    return digest(rule, *sorted(key(place) for place in range(len(trace.before))))


def constant(found: Any) -> str:
    return f"constant {found.dtype} {found.shape}"


def outside(found: Any) -> str:
    return f"outside {found.dtype} {found.rank}"


def node_key(view: NodeView, operands: Iterable[str]) -> str:
    """Of a node by the keys of its operands."""
    given = list(operands)
    if is_commutative(view.domain, view.op):
        given.sort()
    return digest(view.domain, view.op, attribute_text(view), *given)


def attribute_text(view: NodeView) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in sorted(attributes(view).items()))


def attributes(view: NodeView) -> Mapping[str, Any]:
    """All attributes of a node with their defaults, as plain values."""
    names = {*view.attrs, *default_attributes(view.op, view.opset, view.domain)}
    names |= {name for op, name in COMPUTED if op == view.op and not view.domain}
    found = {}
    for name in names:
        try:
            found[name] = view.attr(name)
        except CallerAttribute:
            found[name] = "@"
    return found


def _text(value: Any) -> str:
    if isinstance(value, gs.Graph):
        return "graph " + " ".join(sorted(str(n.op) for n in value.nodes))
    if isinstance(value, (np.ndarray, gs.Constant)):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.6g}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_text, value)) + "]"
    return str(value)

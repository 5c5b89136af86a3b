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
    nodes, views = trace.before, Standing(trace.before).views
    made = {t.key: (place, slot) for place, n in enumerate(nodes) for slot, t in enumerate(n.outputs) if t}
    keys: dict[int, str] = {}

    def operand(tensor: TensorTrace | None) -> str:
        if tensor is None:
            return "-"
        if tensor.constant:
            return constant(tensor.type)
        if tensor.key not in made:
            return outside(tensor.type)
        place, slot = made[tensor.key]
        return f"{keys[place]}:{slot}"

    todo = list(reversed(range(len(nodes))))
    while todo:  # a sum may be thousands of nodes deep
        place = todo[-1]
        inner = (t for t in nodes[place].inputs if t is not None and t.key in made and not t.constant)
        waiting = [made[t.key][0] for t in inner if made[t.key][0] not in keys]
        if place in keys or not waiting:
            todo.pop()
            keys[place] = keys.get(place) or node_key(views[place], map(operand, nodes[place].inputs))
        else:
            todo += waiting
    return digest(rule, *sorted(keys.values()))


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

"""What is drawn of a rewrite: operators and the tensors between them, before and after, without weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MOST = 60
"""Nodes of one side that are drawn."""
WINDOWS = ("Conv", "ConvTranspose", "AveragePool", "MaxPool", "LpPool")
SHOWN = ("axis", "axes", "perm", "to", "equation")
"""Attributes that tell one node of an operator from another."""
LONGEST = 26
"""Characters of the line below an operator."""

Node = Mapping[str, Any]
Tensor = Mapping[str, Any]
Shape = Sequence[int | str | None]


class Names:
    """Tensors of all drawings, each (name, type) once: drawings hold their numbers."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self._places: dict[tuple[str, str], int] = {}

    def place(self, tensor: Tensor) -> int:
        key = (str(tensor["name"]), type_text(tensor))
        if key not in self._places:
            self._places[key] = len(self.found)
            self.found.append(key)
        return self._places[key]

    def forget(self, number: int) -> None:
        """All but the first ``number``."""
        for key in self.found[number:]:
            del self._places[key]
        del self.found[number:]


def drawing_of(region: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """{"before", "after", "inputs", "outputs"} of a record's region; numbers in it are places in ``names``.

    A node is [operator, label, reads, makes, what tells it from others]; a constant that stands for a result is a node
    "constant". Constant nodes are not drawn.
    """
    before = [_node(node, names) for node in region["removed"] if node["op"] != "Constant"]
    after = [_node(node, names) for node in region["added"] if node["op"] != "Constant"]
    for pair in region["outputs"]:
        tensor = pair["after"]
        if tensor["constant"]:
            after.append(["constant", tensor["name"], [], [names.place(tensor)], dims(tensor["shape"])])
    outputs = [[names.place(pair["before"]), names.place(pair["after"])] for pair in region["outputs"]]
    read = [names.place(tensor) for tensor in region["inputs"]]
    made = {place for node in after for place in node[3]}
    read += [b for _, b in outputs if b not in made]
    return {"before": before, "after": after, "inputs": list(dict.fromkeys(read)), "outputs": outputs}


def is_drawable(region: Mapping[str, Any] | None) -> bool:
    """Whether a rewrite is small enough to be looked at."""
    return region is not None and 0 < len(region["removed"]) <= MOST and len(region["added"]) <= MOST


def _node(node: Node, names: Names) -> list[Any]:
    reads = [names.place(t) for t in node["inputs"] if t is not None and not t["constant"]]
    makes = [names.place(t) for t in node["outputs"] if t is not None]
    return [node["op"], node["label"], list(dict.fromkeys(reads)), makes, _detail(node)]


def type_text(tensor: Tensor) -> str:
    """``float 1×64×N``; "" where nothing is known."""
    return " ".join(filter(None, (tensor["dtype"] or "", dims(tensor["shape"]))))


def dims(shape: Shape | None) -> str:
    """``1×64×N``; "" of a shape that is not known, "scalar" of none."""
    if shape is None:
        return ""
    return "×".join(map(_dim, shape)) or "scalar"


def _dim(dim: int | str | None) -> str:
    """A name or number as it is, what is computed in parentheses."""
    text = "?" if dim is None else str(dim)
    return f"({text})" if set(text) & set(" *+-(") else text


def _detail(node: Node) -> str:
    attributes = node["attributes"]
    if node["op"] in WINDOWS:
        return _window(node)
    for name in SHOWN:
        if attributes.get(name) is not None:
            value = _dtype(attributes[name]) if name == "to" else _value(attributes[name])
            return f"{name} {value}"[:LONGEST]
    constants = [t["shape"] or () for t in node["inputs"] if t is not None and t["constant"]]
    return dims(max(constants, key=len)) if constants else ""


def _window(node: Node) -> str:
    attributes = node["attributes"]
    kernel, strides = (list(attributes.get(name) or []) for name in ("kernel_shape", "strides"))
    parts = ["×".join(map(str, kernel))]
    if any(s != 1 for s in strides):
        parts.append(f"stride {strides[0]}" if len(set(strides)) == 1 else f"strides {'×'.join(map(str, strides))}")
    if (attributes.get("group") or 1) > 1:
        parts.append(f"{attributes['group']} groups")
    return ", ".join(filter(None, parts))


def _dtype(number: object) -> str:
    import onnx

    known = {kind: name.lower() for name, kind in onnx.TensorProto.DataType.items()}
    return known.get(number, str(number)) if isinstance(number, int) else str(number)


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "[" + ", ".join(map(_value, value)) + "]" if isinstance(value, list) else str(value)

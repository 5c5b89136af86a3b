"""A model at a newer opset, by onnx's own version converter; nothing that the converter drops is lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import onnx
from onnx import AttributeProto, defs, helper, numpy_helper, version_converter

from surgeon_passes.errors import UsageError
from surgeon_passes.model.light import without_weights
from surgeon_passes.model.nested import bodies
from surgeon_passes.ops.schema import domain_of, opsets_of
from surgeon_passes.passes.prepare import Draft, Preparation, reason_of

RULE = "convert_opset"


@dataclass(frozen=True)
class ConvertOpset(Preparation):
    """Upgrade the model to a newer opset of ai.onnx: once, before it is imported.

    Where onnx's converter fails, or is known to leave an operator with its old form and another meaning, or what it
    gives is not valid or not the same function, the model stays at its opset and the reason is recorded. Model-
    local functions keep the opsets that they import. ``version`` below the model's, or beyond what the installed
    onnx knows, is a UsageError.
    """

    name: ClassVar[str] = "opset"
    makes: ClassVar[tuple[str, ...]] = (RULE,)
    version: int = 0

    def prepare(self, draft: Draft) -> None:
        now, newest = opset_of(draft.proto), defs.onnx_opset_version()
        if not self.version:
            raise UsageError("opset: say which one, --opset N")
        if self.version > newest:
            raise UsageError(
                f"--opset {self.version}: onnx {onnx.__version__} knows opsets up to {newest}; update onnx"
            )
        if self.version < now:
            raise UsageError(f"--opset {self.version}: the model is at opset {now}, and models are only upgraded")
        root = f"opset {now} -> {self.version}"
        if not now or self.version == now:
            return
        if draft.confined:
            reason = (
                "it changes the whole model, and keep or only confine what may change: convert it in a run of its own"
            )
            draft.decline(RULE, root, reason)
            return
        held = misread(draft.proto, now, self.version)
        if held:
            draft.decline(RULE, root, f"the model stays at opset {now}: {held}")
            return
        try:
            found = converted(draft.proto, self.version)
        except Exception as error:  # the converter raises whatever comes to its mind
            draft.decline(RULE, root, f"the model stays at opset {now}: {reason_of(error)}")
            return
        before = draft.proto.ir_version
        if draft.propose(RULE, root, found) and found.ir_version != before:
            draft.notes.append(
                f"opset {self.version} asks for IR version {found.ir_version}: raised from {before}, "
                "so runtimes that only read older ones no longer load the model"
            )


def opset_of(proto: onnx.ModelProto) -> int:
    """The opset of ai.onnx that a model imports; 0 where it imports none."""
    return opsets_of(proto.opset_import).get("", 0)


def misread(proto: onnx.ModelProto, old: int, new: int) -> str:
    """Why the converter would change what a node means, in the graph or in a body at any depth; "" where it would not.

    The end check alone is not enough: it may never run the body of an If or a Loop. Functions keep their own opsets.
    """
    crossed = {op for op, since in MISREAD.items() if old < since <= new}
    if not any(node.op_type in crossed for node, _ in _everywhere(proto.graph)):
        return ""
    try:
        graph = onnx.shape_inference.infer_shapes(without_weights(proto)).graph
    except Exception:  # ranks stay unknown
        graph = proto.graph
    values = {t.name: numpy_helper.to_array(t) for t in _small(proto.graph)}
    for node, ranks in _everywhere(graph):
        if domain_of(node.domain) or node.op_type not in crossed or _means_the_same(node, ranks, values):
            continue
        since = MISREAD[node.op_type]
        named = f"{node.op_type} '{node.name or node.output[0]}'"
        return f"{named} means something else from opset {since} on, and the converter leaves it as it is"
    return ""


MISREAD = {"Selu": 6, "Scan": 9, "Resize": 11, "Upsample": 11, "Hardmax": 13}
"""Operators that the converter leaves as they are, by the opset from which on that means something else."""


def _means_the_same(node: onnx.NodeProto, ranks: Mapping[str, int], values: Mapping[str, Any]) -> bool:
    held = {a.name: helper.get_attribute_value(a) for a in node.attribute if not a.ref_attr_name}
    if node.op_type == "Selu":
        return {"alpha", "gamma"} <= held.keys()
    if node.op_type == "Hardmax":
        rank, axis = ranks.get(node.input[0]), held.get("axis")
        return axis == -1 or (rank is not None and (1 if axis is None else axis) == rank - 1)
    if node.op_type in ("Resize", "Upsample"):
        scales = held.get("scales", values.get(node.input[1]) if len(node.input) > 1 else None)
        # enlarged whole times, half_pixel with round_prefer_floor finds the places that asymmetric with floor finds
        whole = scales is not None and all(s >= 1 and float(s).is_integer() for s in scales)
        return whole and held.get("mode", b"nearest") == b"nearest"
    return False


def _everywhere(graph: onnx.GraphProto, outer: Mapping[str, int] | None = None) -> Iterator[tuple[onnx.NodeProto, Any]]:
    """Nodes of a graph and its bodies, each with the ranks that are known there by name."""
    ranks = dict(outer or {})
    ranks |= {t.name: len(t.dims) for t in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            ranks[value.name] = len(value.type.tensor_type.shape.dim)
        else:
            ranks.pop(value.name, None)
    for node in graph.node:
        yield node, ranks
        for body in bodies(node):
            yield from _everywhere(body, ranks)


def _small(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Constants of the main graph of a few elements, which callers cannot override; a body's own would need its scope."""
    given = {value.name for value in graph.input}
    held = [t for t in graph.initializer if t.name not in given]
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            held.append(onnx.TensorProto())
            held[-1].CopyFrom(node.attribute[0].t)
            held[-1].name = node.output[0]
    yield from (t for t in held if t.data_location != onnx.TensorProto.EXTERNAL and list(t.dims)[:1] <= [8])


def converted(proto: onnx.ModelProto, version: int) -> onnx.ModelProto:
    """``proto`` at ``version``; weights, metadata, names and functions are its own.

    Raises whatever the converter and the checker raise.
    """
    light = without_weights(proto)
    new = version_converter.convert_version(light, version)
    _check(new, proto)
    found = onnx.ModelProto()
    found.CopyFrom(proto)
    _graft(found.graph, new.graph, {value.name for value in light.graph.input})
    for entry in found.opset_import:
        if not domain_of(entry.domain):
            entry.version = version
    needed = helper.find_min_ir_version_for(
        [o for o in found.opset_import if not domain_of(o.domain)], ignore_unknown=True
    )
    if found.ir_version < 4:
        _take_weights_out_of_inputs(found.graph)
    found.ir_version = max(found.ir_version, needed)
    return found


def _check(new: onnx.ModelProto, proto: onnx.ModelProto) -> None:
    """The checker, functions included: their operators must mean the same at the model's new opset."""
    whole = onnx.ModelProto()
    whole.CopyFrom(new)
    whole.functions.extend(proto.functions)
    whole.ir_version = max(whole.ir_version, helper.find_min_ir_version_for(list(new.opset_import), True), 8)
    onnx.checker.check_model(whole)


def _graft(graph: onnx.GraphProto, new: onnx.GraphProto, weights: Iterable[str]) -> None:
    """Give ``graph`` the nodes of ``new``, which came back from the converter without what it has no place for."""
    held = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer} | set(weights)
    old = {_key(node): node for node in graph.node}
    nodes = [_merged(old.get(_key(node)), node) for node in new.node]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(t for t in new.initializer if t.name not in held)
    made = {name for node in nodes for name in node.output}
    stated = [value for value in graph.value_info if value.name in made]
    del graph.value_info[:]
    graph.value_info.extend(stated)


def _key(node: onnx.NodeProto) -> tuple[str, ...]:
    return (domain_of(node.domain), node.op_type, *node.output)


def _merged(old: onnx.NodeProto | None, new: onnx.NodeProto) -> onnx.NodeProto:
    """The node as the converter left it, with the old one's documentation; the old one itself where it is the same."""
    if old is None:
        return new
    held = {a.name: a for a in old.attribute}
    same = list(old.input) == list(new.input) and held.keys() == {a.name for a in new.attribute}
    found = onnx.NodeProto()
    found.CopyFrom(old)
    del found.input[:], found.attribute[:]
    found.input.extend(new.input)
    for attribute in new.attribute:
        before = held.get(attribute.name)
        found.attribute.append(attribute if before is None else _attribute(before, attribute))
    return old if same and list(found.attribute) == list(old.attribute) else found


def _attribute(old: AttributeProto, new: AttributeProto) -> AttributeProto:
    if new.type == AttributeProto.GRAPH and old.type == AttributeProto.GRAPH:
        found = AttributeProto()
        found.CopyFrom(old)
        _graft(found.g, new.g, [value.name for value in old.g.input])
        return found
    return old if _content(old) == _content(new) else new


def _content(attribute: AttributeProto) -> Any:
    """What an attribute says, however its bytes are laid out."""
    if attribute.ref_attr_name:
        return ("reference", attribute.ref_attr_name)
    if attribute.type == AttributeProto.TENSOR:
        tensor = attribute.t
        return tensor.data_type, list(tensor.dims), onnx.numpy_helper.to_array(tensor).tobytes()
    return helper.get_attribute_value(attribute)


def _take_weights_out_of_inputs(graph: onnx.GraphProto) -> None:
    """Below IR 4 weights are listed as inputs; from IR 4 on that would let callers override them."""
    held = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    kept = [value for value in graph.input if value.name not in held]
    del graph.input[:]
    graph.input.extend(kept)

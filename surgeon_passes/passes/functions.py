"""Model-local functions in the place of their calls, by onnx's own inliner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

import onnx
from onnx import inliner

from surgeon_passes.errors import UsageError, did_you_mean
from surgeon_passes.model.light import without_weights
from surgeon_passes.model.nested import every_node
from surgeon_passes.ops.schema import domain_of, opsets_of, schema
from surgeon_passes.passes.prepare import Draft, Preparation, reason_of

RULE = "inline_function"
Key = tuple[str, str]
"""(domain, name) of a function"""


@dataclass(frozen=True, init=False)
class InlineFunctions(Preparation):
    """Put the bodies of model-local functions in the place of their calls: once, before the model is imported.

    All of them, or those whose ``domain.name`` fits a pattern. Calls from other functions and from bodies are inlined too,
    nested ones from the inside out. A function whose operators mean something else at the model's opset stays, as does
    everything where the result is not the same function. Raises UsageError for a pattern that fits no function.
    """

    name: ClassVar[str] = "inline"
    makes: ClassVar[tuple[str, ...]] = (RULE,)
    patterns: tuple[str, ...] = ("*",)

    def __init__(self, *patterns: str) -> None:
        object.__setattr__(self, "patterns", patterns or ("*",))

    @classmethod
    def of(cls, **options: Any) -> Self:
        return cls(*options.pop("patterns", ()), **options)

    def prepare(self, draft: Draft) -> None:
        chosen = []
        for key in self.chosen(draft.proto):
            reason = _changed(draft.proto, key)
            if reason:
                draft.decline(RULE, ".".join(key), reason)
            else:
                chosen.append(key)
        calls = list(_calls(draft.proto))
        if not chosen:
            return
        labels = ", ".join(f"{domain}.{name}" for domain, name in chosen)
        if draft.confined:
            reason = (
                "keep or only confine what may change, and this changes what functions hold: inline in a run of its own"
            )
            draft.decline(RULE, labels, reason)
            return
        try:
            found = inlined(draft.proto, chosen)
        except Exception as error:  # the inliner raises RuntimeError for all that it cannot do
            draft.decline(RULE, labels, f"the functions stay: {reason_of(error)}")
            return
        left = {(f.domain, f.name) for f in found.functions}
        gone = [key for key in chosen if key not in left]
        for key in (key for key in chosen if key in left):
            draft.decline(RULE, ".".join(key), "onnx's inliner leaves it where it is")
        if gone:
            root = ", ".join(f"{domain}.{name}" for domain, name in gone)
            draft.propose(RULE, root, found, tuple(label for label, key in calls if key in gone))

    def chosen(self, proto: onnx.ModelProto) -> list[Key]:
        """Functions that a pattern fits. Raises UsageError for one that fits none."""
        names = {f"{f.domain}.{f.name}": (f.domain, f.name) for f in proto.functions}
        for pattern in self.patterns:
            if pattern != "*" and not any(_fits(pattern, name) for name in names):
                listed = f"its functions: {', '.join(names)}" if names else "it has none"
                raise UsageError(
                    f"no function of the model is called '{pattern}'{did_you_mean(pattern, set(names))} ({listed})"
                )
        return [key for name, key in names.items() if any(_fits(pattern, name) for pattern in self.patterns)]


def _fits(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern) or name == pattern


def inlined(proto: onnx.ModelProto, functions: Iterable[Key]) -> onnx.ModelProto:
    """``proto`` with these functions inlined; weights, metadata and interface are its own. Raises what onnx raises."""
    chosen = list(functions)
    light = without_weights(proto)
    light.functions.extend(proto.functions)
    light.ir_version = max(light.ir_version, 8)
    _write_defaults(light, chosen)
    _import_domains(light, chosen)
    new = inliner.inline_selected_functions(light, chosen, exclude=False)
    _restore_defaults(new, proto)
    onnx.checker.check_model(new)
    found = onnx.ModelProto()
    found.CopyFrom(proto)
    for field, source in ((found.graph.node, new.graph.node), (found.functions, new.functions)):
        del field[:]
        field.extend(source)  # type: ignore[arg-type]
    del found.opset_import[:]
    found.opset_import.extend(new.opset_import)
    known = {value.name for value in found.graph.value_info}
    found.graph.value_info.extend(v for v in new.graph.value_info if v.name not in known)
    return found


def _changed(proto: onnx.ModelProto, key: Key) -> str:
    """Why the operators of a function would mean something else at the model's opsets; "" where they would not."""
    model = opsets_of(proto.opset_import)
    for function in proto.functions:
        if (function.domain, function.name) != key:
            continue
        own = opsets_of(function.opset_import)
        for node in every_node(function.node):
            domain = domain_of(node.domain)
            now, then = own.get(domain, 0), model.get(domain, own.get(domain, 0))
            a, b = schema(node.op_type, now, domain), schema(node.op_type, then, domain)
            if a is not None and (b is None or a.since_version != b.since_version):
                return f"its {node.op_type} is that of opset {now}: at the model's opset {then} it is another operator"
    return ""


def _write_defaults(proto: onnx.ModelProto, chosen: list[Key]) -> None:
    """Write the defaults of functions' attributes at the calls: onnx's inliner forgets them."""
    defaults = {(f.domain, f.name): list(f.attribute_proto) for f in proto.functions if (f.domain, f.name) in chosen}
    for node in _nodes(proto):
        given = {a.name for a in node.attribute}
        node.attribute.extend(a for a in defaults.get((node.domain, node.op_type), ()) if a.name not in given)


def _restore_defaults(found: onnx.ModelProto, proto: onnx.ModelProto) -> None:
    """Functions that stay have their defaults still: onnx's inliner drops them from what it writes."""
    held = {(f.domain, f.name): list(f.attribute_proto) for f in proto.functions}
    for function in found.functions:
        del function.attribute_proto[:]
        function.attribute_proto.extend(held[function.domain, function.name])


def _import_domains(proto: onnx.ModelProto, chosen: list[Key]) -> None:
    """Import in the model, and in every function, the domains that inlined bodies use."""
    inside = [o for f in proto.functions if (f.domain, f.name) in chosen for o in f.opset_import]
    importers: list[onnx.ModelProto | onnx.FunctionProto] = [proto, *proto.functions]
    for importer in importers:
        known = set(opsets_of(importer.opset_import))
        for entry in inside:
            if domain_of(entry.domain) not in known:
                known.add(domain_of(entry.domain))
                importer.opset_import.add(domain=entry.domain, version=entry.version)


def _calls(proto: onnx.ModelProto) -> Iterator[tuple[str, Key]]:
    """(label, function) of every call."""
    functions = {(f.domain, f.name) for f in proto.functions}
    for node in _nodes(proto):
        key = (node.domain, node.op_type)
        if key in functions:
            yield node.name or next(iter(node.output), node.op_type), key


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of graph, bodies and functions."""
    yield from every_node([*proto.graph.node, *(node for f in proto.functions for node in f.node)])

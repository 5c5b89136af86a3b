"""A rewrite's lines as nodes that are legal at the model's opset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.errors import RuleError
from surgeon_passes.model.elements import numpy_dtype, onnx_dtype
from surgeon_passes.ops.legacy import LEGACY, CannotEmit
from surgeon_passes.ops.schema import schema
from surgeon_passes.rules.match import Match, Operand, is_floating
from surgeon_passes.rules.pattern import Attrs, Emit, Literal, NameRef, OpId, Rewrite, RewriteValue, SameOp
from surgeon_passes.rules.rule import Decline, Replacement, Rule

UNDERFLOW = 0.01
"""Loss, relative to a constant's largest value, from which casting it is no rounding: it falls among the subnormals."""
_BLOCK = 1 << 20
"""Elements that are looked at together."""


@dataclass
class Emitted:
    """``nodes`` in order; ``results``: pattern name -> tensor that now stands for it."""

    nodes: list[gs.Node] = field(default_factory=list)
    results: dict[str, gs.Tensor] = field(default_factory=dict)


class Emitter:
    """Emits one rewrite for one match."""

    def __init__(self, rule: Rule, match: Match, replacement: Replacement) -> None:
        self.rule = rule
        self.match = match
        self.index = match.context.index
        self.scope = self.index.scope(match.root)
        self.values = replacement.values
        self.leave = replacement.leave
        left = {id(n) for leaf in self.leave for n in leaf.matched}
        self.matched = tuple(n for n in match.matched if id(n) not in left)
        self.done = Emitted()
        self.constants: dict[str, gs.Constant] = {}
        self.node_names: set[str] = set()
        self.matched_names: dict[str, str] = {}
        """by operator: the name of the first node of it that matched"""
        for node in self.matched:
            if node.name:
                self.matched_names.setdefault(node.op, node.name)

    def run(self, rewrite: Rewrite) -> Emitted:
        """Raises Decline where the rewrite cannot be written, RuleError where a name it needs was not supplied."""
        for line in rewrite.lines:
            if isinstance(line.value, Emit):
                self.emit(line.value, [self.result(name) if name else gs.Variable.empty() for name in line.outputs])
            else:
                self.done.results[line.outputs[0]] = self.operand(line.value)
        return self.done

    # --- results -----------------------------------------------------------------------------------------------------

    def result(self, name: str) -> gs.Tensor:
        """The tensor a line makes: the pattern's own, so that its consumers need not change, or a new one."""
        held = self.match._names.get(name)
        waits = bool(self.leftovers) and held is self.match.root.outputs[0]
        if held is not None and not isinstance(held, tuple) and not waits:
            self.done.results[name] = held
            return held
        tensor = gs.Variable(self.index.unique_tensor_name(f"{self.base}_{name}"))
        self.done.results[name] = tensor
        return tensor

    @property
    def base(self) -> str:
        root = self.match.root
        return root.name or str(root.outputs[0].name)

    @property
    def leftovers(self) -> tuple[gs.Tensor, ...]:
        return self.match.leftovers + tuple(leaf.leaf for leaf in self.leave)

    def join(self, rest: Sequence[gs.Tensor]) -> None:
        """Join what the rewrite did not take to its result again."""
        if not rest:
            return
        name = next(n for n, t in self.match._names.items() if t is self.match.root.outputs[0])
        total = self.done.results[name]
        for number, tensor in enumerate(rest):
            last = number == len(rest) - 1
            out = (
                self.match.root.outputs[0] if last else gs.Variable(self.index.unique_tensor_name(f"{self.base}_join"))
            )
            self.add(OpId("", self.match.join), [total, tensor], {}, [out])
            total = out
        self.done.results[name] = total

    @property
    def joined(self) -> gs.Tensor:
        """The tensor that stands for the root's result before the rest is joined to it."""
        names = self.match._names
        return next(t for n, t in self.done.results.items() if names.get(n) is self.match.root.outputs[0])

    # --- nodes -------------------------------------------------------------------------------------------------------

    def emit(self, call: Emit, outputs: list[gs.Tensor]) -> None:
        op = self.operator(call.op)
        attrs = self.attributes(call.attrs)
        operands = self.operands(call, op)
        legacy = LEGACY.get(op.name) if op.domain == "" else None
        opset = self.scope.opset("")
        if legacy is not None and opset < legacy.until:
            try:
                form = legacy.emit(operands, attrs, opset)
            except CannotEmit as error:
                raise Decline(str(error)) from None
            operands, attrs = list(form.inputs), form.attrs
        self.add(op, operands, attrs, outputs)

    def add(self, op: OpId, operands: Sequence[Any], attrs: dict[str, Any], outputs: Sequence[gs.Tensor]) -> None:
        if op.domain:
            self.index.import_domain(self.scope, op.domain)
        version = self.scope.opset(op.domain)
        known = schema(op.name, version, "") if op.domain == "" else None
        if op.domain == "" and known is None:
            raise Decline(f"opset {version} has no {op.name}")
        tensors = [t if t is not None else gs.Variable.empty() for t in operands]
        while tensors and not tensors[-1].name:
            tensors.pop()
        for tensor, formal in zip(tensors, known.inputs if known is not None else (), strict=False):
            if not tensor.name and formal.option == formal.option.Single:
                raise Decline(f"at opset {version} {op.name} has to have its operand {formal.name}")
        node = gs.Node(op.name, self.node_name(op), attrs, domain=op.domain or None)
        list.extend(node.inputs, tensors)
        list.extend(node.outputs, outputs)
        self.done.nodes.append(node)

    def node_name(self, op: OpId) -> str:
        """The name of the matched node of this operator, or the root's; nameless models stay nameless."""
        base = self.matched_names.get(op.name) or self.match.root.name
        if not base:
            return ""
        name = base if base not in self.node_names else self.index.unique_node_name(f"{base}_{op.name}")
        self.node_names.add(name)
        return name

    def operator(self, op: OpId | SameOp) -> OpId:
        if isinstance(op, OpId):
            return op
        given = self.values.get(op.name)
        if isinstance(given, str):
            domain, _, name = given.rpartition(".")
            return OpId(domain, name)
        view = self.match.context.view(self.defining(op.name))
        return OpId(view.domain, view.op)

    def defining(self, name: str) -> gs.Node:
        """The matched node that ``@name`` stands for."""
        if name not in self.match._nodes:
            raise RuleError(f"{self.rule.name}: the rewrite needs @{name}, which the function did not return")
        return self.match._nodes[name]

    def attributes(self, attrs: Attrs) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if attrs.base is not None:
            given = self.values.get(attrs.base)
            if isinstance(given, Mapping):
                found.update({k: _plain(v) for k, v in given.items() if v is not None})
            else:
                found.update(self.match.context.view(self.defining(attrs.base)).attrs)
        for name, value in attrs.items:
            given = value.value if isinstance(value, Literal) else self.attribute(value.name)
            if given is None:
                found.pop(name, None)
            else:
                found[name] = _plain(given)
        return found

    def attribute(self, name: str) -> Any:
        if name in self.values:
            return self.values[name]
        if f"@{name}" in self.match._names:
            return self.match._names[f"@{name}"]
        raise RuleError(f"{self.rule.name}: the rewrite needs @{name}, which the function did not return")

    # --- operands ----------------------------------------------------------------------------------------------------

    def operands(self, call: Emit, op: OpId) -> list[Any]:
        found: list[Any] = []
        for arg in call.args:
            if isinstance(arg, NameRef) and arg.variadic:
                found += self.several(arg.name)
            else:
                found.append(self.operand(arg))
        self.cast(op, found)
        return [self.constant(v, call, i) if isinstance(v, _New) else v for i, v in enumerate(found)]

    def several(self, name: str) -> list[Any]:
        """The tensors of ``name...``: those that the pattern bound, or that the function returned."""
        if name in self.values:
            return [t.tensor if isinstance(t, Operand) else t for t in self.values[name]]
        if name in self.match._names:
            return list(self.match._names[name])
        raise RuleError(f"{self.rule.name}: the rewrite needs '{name}...', which the function did not return")

    def operand(self, value: RewriteValue) -> Any:
        if isinstance(value, Emit):
            out = gs.Variable(self.index.unique_tensor_name(f"{self.base}_{_lower(value)}"))
            self.emit(value, [out])
            return out
        if isinstance(value, Literal):
            return None if value.value == "" else _New("", np.asarray(value.value))
        if value.name in self.done.results:
            return self.done.results[value.name]
        if value.name in self.values:
            given = self.values[value.name]
            if given is None:
                return None
            if isinstance(given, Operand):
                return given.tensor
            if isinstance(given, gs.Tensor):
                return given
            return _New(value.name, np.asarray(given))
        if value.name in self.match._names:
            return self.match._names[value.name]
        raise RuleError(f"{self.rule.name}: the rewrite needs '{value.name}', which the function did not return")

    def cast(self, op: OpId, operands: list[Any]) -> None:
        """Give new constants the dtype of the operands that share their type in the operator's schema."""
        declared = schema(op.name, self.scope.opset(op.domain), op.domain)
        kinds = [_type_string(declared, i) for i in range(len(operands))] if declared else [""] * len(operands)
        for number, operand in enumerate(operands):
            if isinstance(operand, _New) and (operand.array.dtype.kind == "f" or operand.name == ""):
                wanted = _allowed(kinds[number])
                if wanted is None:
                    of_result = declared is None or kinds[number] in {o.type_str for o in declared.outputs}
                    wanted = self.dtype_of_peers(operand, kinds, operands, number, of_result)
                operand.array = self.cast_one(operand, wanted)

    def dtype_of_peers(
        self, new: _New, kinds: list[str], operands: list[Any], number: int, of_result: bool
    ) -> np.dtype[Any]:
        """The dtype of the operands that share the type, else the result's where it has that type, else its own."""
        peers = [o for k, o in zip(kinds, operands, strict=True) if k == kinds[number] and isinstance(o, gs.Tensor)]
        elem = next((d for d in (self.match.context.type_of(t).dtype for t in peers) if d), None)
        if elem is None and not of_result:
            return np.dtype(np.float32) if new.array.dtype.kind == "f" else new.array.dtype
        elem = elem or self.match.context.type_of(self.match.root.outputs[0]).dtype or self.dtype_of_constants()
        if elem is None:
            raise Decline(f"the dtype of '{new.name or new.array}' cannot be told")
        return numpy_dtype(elem)

    def dtype_of_constants(self) -> int | None:
        """The one float type of the constants that the match reads: inside functions nothing else is known."""
        read = {t.dtype for n in self.match.matched for t in map(self.constant_of, n.inputs) if t is not None}
        floating = {d for d in read if isinstance(d, np.dtype) and is_floating(d)}
        return onnx_dtype(floating.pop()) if len(floating) == 1 else None

    def constant_of(self, tensor: gs.Tensor) -> gs.Constant | None:
        """``tensor`` where it is a constant, or what a Constant node makes."""
        if isinstance(tensor, gs.Constant):
            return tensor
        node = self.index.producer(tensor)
        value = node.attrs.get("value") if node is not None and node.op == "Constant" else None
        return value if isinstance(value, gs.Constant) else None

    def cast_one(self, new: _New, wanted: np.dtype[Any]) -> Any:
        if new.array.dtype.kind == "f" and not is_floating(wanted):
            return new.array if new.name else new.array.astype(wanted)
        with np.errstate(over="ignore"):
            cast = new.array.astype(wanted)
        most = lost = 0.0
        for exact, rounded in _blocks(new.array, cast):
            finite = np.isfinite(exact)
            if not np.array_equal(np.isfinite(rounded), finite):
                raise Decline(f"'{new.name}' overflows {wanted}")
            pair = (np.abs(exact), np.abs(rounded))
            before, after = pair if finite.all() else (size[finite] for size in pair)
            most = max(most, before.max(initial=0.0))
            lost = max(lost, np.abs(before - after).max(initial=0.0))
        if lost > UNDERFLOW * most:
            raise Decline(f"'{new.name}' is too small for {wanted}")
        return cast

    def constant(self, new: _New, call: Emit, position: int) -> gs.Constant:
        if new.name in self.constants and new.name:
            return self.constants[new.name]
        constant = gs.Constant(self.index.unique_tensor_name(self.constant_name(new, call, position)), new.array)
        if new.name:
            self.constants[new.name] = constant
        return constant

    def constant_name(self, new: _New, call: Emit, position: int) -> str:
        """``conv1.weight.<tag>`` where the matched operator has a constant in that place, else after the node."""
        tag = self.rule.tag or self.rule.name
        op = self.operator(call.op)
        for node in self.matched:
            if node.op == op.name and position < len(node.inputs):
                held = node.inputs[position]
                if isinstance(held, gs.Constant):
                    return f"{held.name.removesuffix('.' + tag)}.{tag}"
        suffix = new.name.lower() if new.name else f"const{position}"
        return f"{self.base}.{suffix}.{tag}"


def _blocks(*arrays: np.ndarray[Any, Any]) -> Iterator[list[np.ndarray[Any, Any]]]:
    """Arrays of equal size side by side in float64, a part at a time: whole copies of large weights would weigh."""
    flat = [np.ascontiguousarray(a).reshape(-1) for a in arrays]
    for start in range(0, flat[0].size, _BLOCK):
        yield [a[start : start + _BLOCK].astype(np.float64) for a in flat]


@dataclass
class _New:
    """A value that becomes a constant."""

    name: str
    array: Any


def _lower(call: Emit) -> str:
    return call.op.name.lower()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, np.generic):
        return value.item()
    return value


def _type_string(declared: Any, position: int) -> str:
    inputs = declared.inputs
    if not inputs:
        return ""
    entry = inputs[min(position, len(inputs) - 1)]
    return str(entry.type_str)


def _allowed(type_string: str) -> np.dtype[Any] | None:
    """The dtype of an operand whose type the schema fixes: ``tensor(int64)``."""
    fixed: Mapping[str, Any] = {
        "tensor(int64)": np.int64,
        "tensor(int32)": np.int32,
        "tensor(float)": np.float32,
        "tensor(bool)": np.bool_,
    }
    found = fixed.get(type_string)
    return None if found is None else np.dtype(found)

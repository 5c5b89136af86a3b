"""A graph that a pattern fits, made from the pattern: one of its choices drawn at each place, operands to go with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from surgeon_passes.authoring import attributes
from surgeon_passes.authoring.choices import LEAVES, Choice, Tally, swaps
from surgeon_passes.authoring.drawing import Draft
from surgeon_passes.authoring.slots import Array, Slot, Tensor, Unfit
from surgeon_passes.ops.traits import ELEMENTWISE
from surgeon_passes.rules import flat
from surgeon_passes.rules.pattern import (
    Alternatives,
    Call,
    Capture,
    Definition,
    Flat,
    Literal,
    NameRef,
    OpId,
    Pattern,
    Template,
    TemplateUse,
)

RETRIES = 8
"""Ways to draw the operands of one node."""
_CONSTANT = {"partial": 0.5, "unshared": 0.0}
_SELDOM = {False: 0.05, True: 0.4}
"""How often an operand is a constant that need not be: one that is an index or a weight mostly, a mask at times."""
Env = dict[str, Any]


@dataclass(frozen=True)
class Generated:
    """``feeds`` are inputs with which the model is to run; ``choices`` what was chosen; ``nodes`` those of the pattern."""

    model: onnx.ModelProto
    feeds: tuple[dict[str, Array], ...]
    choices: frozenset[Choice]
    nodes: int


class Generator:
    """Graphs for one pattern, from one random generator: the same seed gives the same graphs."""

    def __init__(self, pattern: Pattern, tally: Tally, rng: np.random.Generator, opsets: tuple[int, int]) -> None:
        self.pattern, self.tally, self.rng, self.opsets = pattern, tally, rng, opsets

    def draw(self) -> Generated:
        """One graph. Raises Unfit where what was drawn does not go together."""
        return _Drawn(self).graph()


class _Drawn:
    """One graph in the making."""

    def __init__(self, generator: Generator) -> None:
        self.pattern, self.tally, self.rng = generator.pattern, generator.tally, generator.rng
        first, last = generator.opsets
        usual = max(first, min(18, last))
        self.draft = Draft(
            self.rng, int(self.rng.integers(usual if self.chance(0.85) else first, last + 1)), self.pattern
        )
        self.chosen: set[Choice] = set()
        self.env: Env = {}
        self.attrs: dict[str, Any] = {}
        self.open: set[str] = set()
        self.uniform = self.chance(0.5)
        self.weights = 1.0 if self.chance(0.75) else 0.5
        self.usual: dict[tuple[str, str], Any] = {}

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def graph(self) -> Generated:
        definition = self.pattern.root
        self.define(definition)
        results = [t for name in definition.outputs for t in _tensors(self.env.get(name.name))]
        count = len(self.draft.nodes)
        model, feeds = self.draft.model([self.read(t) for t in results])
        return Generated(model, feeds, frozenset(self.chosen), count)

    def read(self, result: Tensor) -> Tensor:
        """What is given in the place of a result: at times something that reads it."""
        names = {op.name for op in self.pattern.facts.operators}
        op = next(o for o in (["Not"] if result.dtype == np.bool_ else ["Neg", "Abs"]) + ["Identity"] if o not in names)
        if self.chance(0.4) or result.dtype.kind == "u":
            return result
        (made,) = self.draft.node(OpId("", op), [result], {}, [f"{result.name}_read"])
        assert made is not None
        return made

    # --- choices -----------------------------------------------------------------------------------------------------

    def pick(self, part: Any, labels: Sequence[str], weights: Sequence[float] | None = None) -> int:
        """One of several ways; half the time the one that was tried least."""
        keys = [(id(part), label) for label in labels]
        if self.chance(0.5):
            place = min(range(len(keys)), key=lambda i: (self.tally.matched[keys[i]], self.tally.made[keys[i]]))
        else:
            place = int(self.rng.choice(len(keys), p=weights))
        self.tally.made[keys[place]] += 1
        self.chosen.add(keys[place])
        return place

    def is_there(self, part: Any) -> bool:
        return self.pick(part, ("present", "absent")) == 0

    # --- values ------------------------------------------------------------------------------------------------------

    def define(self, definition: Definition) -> None:
        names = definition.outputs
        if any(name.name in self.open for name in names):
            raise Unfit
        self.open |= {name.name for name in names}
        if len(names) == 1 and not names[0].variadic:
            self.env[names[0].name] = self.made(self.value(definition.value, self.env, names[0].name), self.env)
            return
        assert isinstance(definition.value, Call)
        wanted = self.results(names)
        made = self.call(definition.value, self.env, wanted)
        for name, tensors in zip(names, made, strict=True):
            self.env[name.name] = tensors if name.variadic else tensors[0] if tensors else None

    def results(self, names: Sequence[Any]) -> list[list[str]]:
        """Result names by output of the pattern."""
        found: list[list[str]] = []
        for name in names:
            if name.variadic:
                found.append([f"{name.name}{i}" for i in range(int(self.rng.integers(2, 5)))])
            elif not name.optional or self.is_there(name):
                found.append([name.name or "unused"])
            else:
                found.append([""])
        if not any(part for group in found for part in group):
            raise Unfit
        return found

    def made(self, value: Any, env: Env) -> Tensor:
        """A value as a tensor; what no operator asks for in a certain form may have any."""
        if isinstance(value, Tensor):
            return value
        slot = self.draft.slot("", 0, [], [True], {}, self.draft.usual, False, 1)
        if isinstance(value, Literal):
            return self.draft.constant(np.asarray(value.value).astype(slot.dtype), "k")
        found = self.draft.leaf(slot, value.name, value.kind == "const")
        env[value.name] = found
        return found

    def value(self, value: Any, env: Env, hint: str = "t") -> Any:
        """A tensor, or the name or literal for which the operator that reads it is to make one."""
        match value:
            case NameRef():
                return self.name(value, env)
            case Alternatives():
                place = self.pick(value, [str(i) for i in range(len(value.options))])
                return self.value(value.options[place], env, hint)
            case Call():
                return self.call(value, env, [[hint]])[0][0]
            case Flat():
                return self.tree(value, env, hint)
        return value

    def name(self, ref: NameRef, env: Env) -> Any:
        """What the name stands for (None where that is missing); itself where an operand is yet to be made up."""
        if ref.name in env:
            return env[ref.name]
        definition = self.pattern.facts.made_by.get(ref.name)
        if definition is None:
            return ref
        self.define(definition)
        return self.env[ref.name]

    # --- calls -------------------------------------------------------------------------------------------------------

    def call(self, call: Call, env: Env, results: list[list[str]]) -> list[list[Tensor]]:
        ops = [op for op in call.ops if self.draft.knows(op)]
        if not ops:
            raise Unfit
        op = ops[self.pick(call, [str(o) for o in ops])] if len(call.ops) > 1 else ops[0]
        args = self.arguments(call, op, env)
        if swaps(call) and self.pick(call, ("in order", "swapped")):
            args.reverse()
        return self.node(op, args, env, results, call.attrs)

    def arguments(self, call: Call, op: OpId, env: Env) -> list[Any]:
        """Per operand a tensor, None for a missing one, or the part of the pattern that it is to be made for."""
        args: list[Any] = []
        for arg in call.args:
            if isinstance(arg, NameRef) and arg.variadic:
                if arg.name not in env and arg.name not in self.pattern.facts.made_by:
                    args += [arg] * int(self.rng.integers(len(call.args) == 1, 4))
                else:
                    self.name(arg, env)
                    args += list(env[arg.name])
            elif isinstance(arg, NameRef) and arg.optional:
                args.append(self.optional(arg, env))
            else:
                args.append(self.value(arg, env))
        while args and args[-1] is None:
            args.pop()
        return args

    def optional(self, ref: NameRef, env: Env) -> Any:
        if ref.name in env and env[ref.name] is None:
            return None
        if not self.is_there(ref):
            env.setdefault(ref.name, None)
            return None
        return self.value(ref, env)

    def node(
        self, op: OpId, args: list[Any], env: Env, results: list[list[str]], named: Iterable[Any] = ()
    ) -> list[list[Tensor]]:
        """Draw attributes and missing operands until they go together."""
        for attempt in range(RETRIES):
            held, names, captured, usual = self.draft.mark(), dict(env), dict(self.attrs), dict(self.usual)
            try:
                return self.attempt(op, args, env, results, named)
            except Unfit:
                self.draft.restore(held)
                env.clear()
                env.update(names)
                self.attrs, self.usual = captured, usual
                if attempt == RETRIES - 1 or (not any(_is_open(a) for a in args) and not named and attempt > 2):
                    raise
        raise Unfit

    def attempt(
        self, op: OpId, args: list[Any], env: Env, results: list[list[str]], named: Iterable[Any]
    ) -> list[list[Tensor]]:
        flat_results = [name for group in results for name in group]
        operands: list[Tensor | None] = [a if isinstance(a, Tensor) else None for a in args]
        attrs: dict[str, Any] = {}

        def slot(place: int, const: bool = False, dtype: Any = np.float32) -> Slot:
            given = [a is not None for a in args]
            return self.draft.slot(str(op), place, operands, given, attrs, dtype, const, len(flat_results))

        early = op.name in attributes.BEFORE_OPERANDS
        if early:
            self.set_attributes(op, attrs, named, slot)
        order = sorted(range(len(args)), key=lambda i: (not _is_open(args[i]), i))
        for step, place in enumerate(p for p in order if _is_open(args[p])):
            if step == 0 and place > 0 and operands[0] is not None and not early:
                self.set_attributes(op, attrs, named, slot)
                early = True
            operands[place] = self.operand(args[place], op, place, env, slot)
            if place == 0 and not early:
                self.set_attributes(op, attrs, named, slot)
                early = True
        if not early:
            self.set_attributes(op, attrs, named, slot)
        made = self.draft.node(op, operands, attrs, flat_results)
        found = iter(made)
        return [[t for _ in group if (t := next(found)) is not None] for group in results]

    def operand(self, part: Any, op: OpId, place: int, env: Env, slot: Callable[..., Slot]) -> Tensor:
        if isinstance(part, NameRef) and not part.variadic and isinstance(env.get(part.name), Tensor):
            return env[part.name]  # type: ignore[no-any-return]
        dtype = self.draft.dtype(op, place, slot(place).operands)
        if isinstance(part, Literal):
            return self.draft.constant(np.asarray(part.value).astype(dtype), "k")
        const = part.kind == "const" or self.chance(
            _CONSTANT.get(part.kind, self.weights if place and not _broadcasts(op) else _SELDOM[dtype == np.bool_])
        )
        made = self.draft.leaf(slot(place, part.kind != "any", dtype), part.name, const)
        if part.variadic:
            env[part.name] = [*env.get(part.name, []), made]
        else:
            env[part.name] = made
        return made

    def set_attributes(self, op: OpId, attrs: dict[str, Any], named: Iterable[Any], slot: Callable[..., Slot]) -> None:
        """Those that the pattern names, then those without which the operator says little."""
        for attr in named:
            if isinstance(attr.value, Literal):
                attrs[attr.name] = attr.value.value
            else:
                self.capture(attr.name, attr.value, attrs, slot)
        for name in attributes.wanted(str(op)):
            if name not in attrs:
                found = self.drawn(str(op), name, slot)
                if found is not attributes.OMIT:
                    attrs[name] = found
        if op.name == "Split" and len(slot(0).given) < 2 and self.draft.opset >= 18:
            attrs["num_outputs"] = slot(0).outputs

    def drawn(self, op: str, name: str, slot: Callable[..., Slot]) -> Any:
        """An attribute that the pattern does not name: in half of all graphs one value for all nodes of an operator."""
        if not self.uniform:
            return attributes.draw(name, slot(0))
        if (op, name) not in self.usual:
            self.usual[op, name] = attributes.draw(name, slot(0))
        return self.usual[op, name]

    def capture(self, name: str, capture: Capture, attrs: dict[str, Any], slot: Callable[..., Slot]) -> None:
        found = self.attrs.get(capture.name)
        if capture.name not in self.attrs:
            found = self.attrs[capture.name] = attributes.draw(name, slot(0))
        if found is not attributes.OMIT:
            attrs[name] = found

    # --- trees -------------------------------------------------------------------------------------------------------

    def tree(self, tree: Flat, env: Env, hint: str) -> Tensor:
        """Leaves in any order, joined in any way."""
        alone = len(tree.args) == 1
        leaves: list[Any] = []
        for arg in tree.args:
            if isinstance(arg, TemplateUse):
                leaves += self.leaves(arg, env, alone)
            else:
                leaves.append(self.value(arg, env))
        self.rng.shuffle(leaves)
        if not any(isinstance(leaf, Tensor) for leaf in leaves):  # the first that is made up is what the others go with
            leaves.sort(key=lambda leaf: isinstance(leaf, Literal) or getattr(leaf, "kind", "any") != "any")
        while len(leaves) > 1:
            at = int(self.rng.integers(0, len(leaves) - 1))
            three = tree.kind == "sum" and len(leaves) > 2 and at + 2 < len(leaves) and self.chance(0.2)
            joined = leaves[at : at + (3 if three else 2)]
            if not any(isinstance(leaf, Tensor) for leaf in joined) and all(isinstance(a, Literal) for a in joined):
                raise Unfit
            op = OpId("", "Sum" if three else flat.JOIN[tree.kind])
            left = len(leaves) - len(joined)
            (made,) = self.node(op, joined, env, [[hint if not left else f"{hint}_part"]])
            leaves[at : at + len(joined)] = made
        return leaves[0]  # type: ignore[no-any-return]

    def leaves(self, use: TemplateUse, env: Env, alone: bool) -> list[Any]:
        template = self.pattern.templates[use.template]
        count = LEAVES[int(self.rng.integers(1 if alone else 0, len(LEAVES)))]
        shared = {param: given for param, given in zip(template.params, use.params, strict=True)}
        self.shared_operands(template, shared, env)
        return [self.leaf(template, shared, env) for _ in range(count)]

    def shared_operands(self, template: Template, shared: dict[str, str], env: Env) -> None:
        """What the leaves share is made up first: an input that most of them can take."""
        for given in shared.values():
            if given not in env:
                self.made(self.value(NameRef(given), env), env)

    def leaf(self, template: Template, shared: dict[str, str], env: Env) -> Tensor:
        place = 0
        if len(template.options) > 1:
            place = self.pick(template, [str(i) for i in range(len(template.options))])
        local: Env = {param: env[given] for param, given in shared.items()}
        found = self.value(template.options[place], local, template.name)
        if not isinstance(found, Tensor):
            raise Unfit
        return found


def _is_open(arg: Any) -> bool:
    return arg is not None and not isinstance(arg, Tensor)


def _broadcasts(op: OpId) -> bool:
    return not op.domain and op.name in ELEMENTWISE


def _tensors(bound: Any) -> list[Tensor]:
    if isinstance(bound, Tensor):
        return [bound]
    return list(bound or ())

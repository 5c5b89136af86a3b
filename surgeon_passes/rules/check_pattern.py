"""Checks of a pattern: operators, the places of names, what is defined and what uses it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from surgeon_passes.errors import RuleError, did_you_mean
from surgeon_passes.rules.check_operator import (
    check_attribute,
    check_inputs,
    check_results,
    check_variadic,
    known_signature,
)
from surgeon_passes.rules.pattern import (
    Alternatives,
    AttrPattern,
    Call,
    Capture,
    Definition,
    Flat,
    Literal,
    NameRef,
    Pattern,
    Span,
    Template,
    TemplateUse,
    Value,
)
from surgeon_passes.rules.schemas import op_id, signatures
from surgeon_passes.rules.tokens import Source

K = TypeVar("K")

PatternItem = Value | TemplateUse | AttrPattern


@dataclass(frozen=True, slots=True)
class Bound:
    """What a pattern gives to its rewrites."""

    tensors: Mapping[str, bool]
    """By name, whether it stands for several ('...')."""
    results: Mapping[str, Definition]
    captures: frozenset[str]
    leaf_names: Mapping[str, str]
    """Names inside templates, with the template: one leaf's own, so only a function can pass them on."""
    root: Definition


def _walk(value: PatternItem) -> Iterator[PatternItem]:
    """A value and all that it holds, in text order."""
    yield value
    children: tuple[PatternItem, ...] = ()
    match value:
        case Call():
            children = (*value.args, *value.attrs)
        case Flat():
            children = value.args
        case Alternatives():
            children = value.options
    for child in children:
        yield from _walk(child)


def _names(items: Iterable[PatternItem]) -> Iterator[NameRef]:
    """The tensors named in them; a template's arguments are such, too."""
    for item in items:
        if isinstance(item, NameRef):
            yield item
        elif isinstance(item, TemplateUse):
            yield from (NameRef(param, span=item.span) for param in item.params)


def _captures(items: Iterable[PatternItem]) -> Iterator[Capture]:
    for item in items:
        if isinstance(item, AttrPattern) and isinstance(item.value, Capture):
            yield item.value


class PatternCheck:
    def __init__(self, source: Source, pattern: Pattern) -> None:
        self.source = source
        self.pattern = pattern
        self.inside = {
            name: [item for option in template.options for item in _walk(option)]
            for name, template in pattern.templates.items()
        }
        """What stands in each template."""
        self.outside = [item for definition in pattern.definitions for item in _walk(definition.value)]
        self.results = {
            output.name: definition
            for definition in pattern.definitions
            for output in definition.outputs
            if output.name
        }

    def run(self) -> Bound:
        items = [*self.outside, *(item for items in self.inside.values() for item in items)]
        items.sort(key=lambda item: (item.span.line, item.span.start))
        for item in items:  # first: a misspelt operator, or a template without '...', looks like something else below
            if isinstance(item, Call):
                self.check_call(item)
        for item in items:
            self.check_place(item)
        self.check_distinct()
        for definition in self.pattern.definitions:
            self.check_definition(definition)
        tensors = self.check_scope(self.outside, self.results_variadic())
        self.check_templates(tensors)
        self.check_order()
        captures = frozenset(capture.name for capture in _captures(self.outside))
        return Bound(tensors, self.results, captures, self.leaf_names(), self.pattern.root)

    def fail(self, message: str, span: Span) -> RuleError:
        return self.source.error(message, span)

    # --- places ---

    def check_place(self, item: PatternItem) -> None:
        match item:
            case Call():
                self.check_alternatives(item)
            case Alternatives():
                for option in item.options:
                    self.check_bare(option)
            case Flat():
                self.check_flat(item)
            case TemplateUse():
                self.check_use(item)

    def check_call(self, call: Call) -> None:
        for op in call.ops:
            signature = known_signature(self.source, op, call.span, self.pattern.templates)
            for attr in call.attrs:
                check_attribute(self.source, op, signature, attr.name, attr.span)
            check_inputs(self.source, op, signature, call.args, call.span)

    def check_flat(self, flat: Flat) -> None:
        for arg in flat.args:
            if isinstance(arg, TemplateUse) and len(flat.args) > 1:
                raise self.fail(f"'{arg.template}(…)...' stands alone inside {flat.kind}(…)", arg.span)
            if isinstance(arg, Literal) and isinstance(arg.value, str):
                raise self.fail(f"a string is no operand of {flat.kind}", arg.span)
            if isinstance(arg, NameRef):
                self.check_operand(flat, arg)
        last = flat.args[-1] if flat.args else None
        open_ended = isinstance(last, TemplateUse) or (isinstance(last, NameRef) and last.variadic)
        if len(flat.args) < 2 and not open_ended:
            raise self.fail(f"{flat.kind} needs two operands, or one with '...'", flat.span)

    def check_operand(self, flat: Flat, arg: NameRef) -> None:
        if arg.variadic and arg is not flat.args[-1]:
            raise self.fail(f"'{arg.name}...' stands for all remaining operands and must be the last", arg.span)
        if arg.optional:
            raise self.fail(f"an operand of {flat.kind} cannot be missing: write '{arg.name}' or 'rest...'", arg.span)

    def check_use(self, use: TemplateUse) -> None:
        templates = self.pattern.templates
        if use.template not in templates:
            raise self.fail(f"unknown template '{use.template}'{did_you_mean(use.template, templates)}", use.span)
        wanted = len(templates[use.template].params)
        if len(use.params) != wanted:
            plural = "" if wanted == 1 else "s"
            raise self.fail(
                f"template '{use.template}' has {wanted} parameter{plural}, not {len(use.params)}", use.span
            )

    def check_alternatives(self, call: Call) -> None:
        """``Add|Sub(x, y)`` could also mean a tensor ``Add``, where there is one."""
        for op in call.ops if len(call.ops) > 1 else ():
            if op.name in self.tensor_names():
                span = self.source.find(str(op), call.span)
                raise self.fail(f"'{op}' is an operator here and a tensor elsewhere: rename the tensor", span)

    def check_bare(self, option: Value) -> None:
        """A name that stands for a whole value: a definition's, or an option of alternatives."""
        if not isinstance(option, NameRef):
            return
        if option.variadic:
            raise self.fail(f"'{option.name}...' stands only in an argument list", option.span)
        if option.optional:
            raise self.fail(f"only an argument can be missing: write '{option.name}'", option.span)
        uses = self.tensor_names().count(option.name)
        if uses == 1 and op_id(option.name) in signatures():
            raise self.fail(f"'{option.name}' is an operator and needs arguments", option.span)
        if uses == 1 and option.name[0].isupper():
            hint = did_you_mean(option.name, (op.name for op in signatures()))
            if hint:
                raise self.fail(f"nothing else names a tensor '{option.name}'{hint}", option.span)

    def tensor_names(self) -> list[str]:
        """Every mention of a tensor, templates' parameters and results included."""
        items = [*self.outside, *(item for items in self.inside.values() for item in items)]
        params = [param for template in self.pattern.templates.values() for param in template.params]
        return [*self.results, *params, *(name.name for name in _names(items))]

    # --- definitions ---

    def check_distinct(self) -> None:
        seen: dict[str, Span] = {}
        named = [(template.name, template.span) for template in self.pattern.templates.values()]
        named += [
            (output.name, output.span)
            for definition in self.pattern.definitions
            for output in definition.outputs
            if output.name
        ]
        for name, span in sorted(named, key=lambda pair: (pair[1].line, pair[1].start)):
            if name in seen:
                raise self.fail(f"'{name}' is defined twice", span)
            seen[name] = span

    def check_definition(self, definition: Definition) -> None:
        value = definition.value
        if isinstance(value, NameRef):
            self.check_bare(value)
            raise self.fail("a definition needs an operator: this one only renames", value.span)
        if definition is self.pattern.root:
            self.check_root(value)
        named = definition.outputs
        if isinstance(value, Call):
            variadic = next((output.name for output in named if output.variadic), "")
            for op in value.ops:
                check_results(self.source, op, len(named), variadic, definition.span)
        elif len(named) > 1 or named[0].optional or named[0].variadic:
            raise self.fail("only an operator has several, optional or variadic results", definition.span)

    def check_root(self, value: Value) -> None:
        options = value.options if isinstance(value, Alternatives) else (value,)
        for option in options:
            if isinstance(option, (NameRef, Literal)):
                raise self.fail(
                    "the last line is where matching starts: it needs an operator in every alternative", option.span
                )

    def results_variadic(self) -> dict[str, bool]:
        return {
            output.name: output.variadic
            for definition in self.pattern.definitions
            for output in definition.outputs
            if output.name
        }

    def check_scope(self, items: list[PatternItem], tensors: dict[str, bool]) -> dict[str, bool]:
        """Names of one scope: each is one tensor or several, and no tensor is a captured attribute, too."""
        for ref in _names(items):
            check_variadic(self.source, ref, tensors.setdefault(ref.name, ref.variadic))
        for capture in _captures(items):
            if capture.name in tensors:
                raise self.fail(f"'{capture.name}' is both a tensor and an attribute: rename one", capture.span)
        return tensors

    # --- templates ---

    def check_templates(self, outside: Mapping[str, bool]) -> None:
        taken = {*outside, *(capture.name for capture in _captures(self.outside))}
        for name, template in self.pattern.templates.items():
            self.check_params(template)
            items = self.inside[name]
            self.check_scope(items, dict.fromkeys(template.params, False))
            self.check_own_names(template, items, taken)
        uses = {name: self.templates_in(items) for name, items in self.inside.items()}
        circular = _circular(uses)
        used = self.templates_in(self.outside).union(*uses.values())
        for name, template in self.pattern.templates.items():
            if name in circular:
                raise self.fail(f"template '{name}' uses itself", template.span)
            if name not in used:
                raise self.fail(f"template '{name}' is not used: write 'sum({name}(…)...)'", template.span)

    def templates_in(self, items: list[PatternItem]) -> set[str]:
        return {item.template for item in items if isinstance(item, TemplateUse)}

    def check_params(self, template: Template) -> None:
        for position, param in enumerate(template.params):
            span = self.source.find(param, template.span)
            if param in template.params[:position]:
                raise self.fail(f"parameter '{param}' stands twice", span)
            if param not in {ref.name for ref in _names(self.inside[template.name])}:
                raise self.fail(f"template '{template.name}' does not use its parameter '{param}'", span)

    def check_own_names(self, template: Template, items: list[PatternItem], taken: set[str]) -> None:
        """A template's own names belong to one leaf, so one that also stands outside would mislead its reader."""
        own: list[NameRef | Capture] = [*_names(items), *_captures(items)]
        for item in own:
            if item.name in taken and item.name not in template.params:
                message = f"'{item.name}' stands inside template '{template.name}' and outside: "
                raise self.fail(f"{message}make it a parameter, or rename one", item.span)

    def leaf_names(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for template, items in self.inside.items():
            own: list[NameRef | Capture] = [*_names(items), *_captures(items)]
            found |= {item.name: template for item in own if item.name not in self.pattern.templates[template].params}
        return found

    # --- order ---

    def uses(self, definition: Definition) -> list[Definition]:
        """The definitions that this one names."""
        names = {ref.name for ref in _names(_walk(definition.value))}
        return [self.results[name] for name in sorted(names & set(self.results))]

    def check_order(self) -> None:
        """Every definition is reached from the root, and none from itself."""
        reached = {id(self.pattern.root)}
        pending = [self.pattern.root]
        while pending:
            for used in self.uses(pending.pop()):
                if id(used) not in reached:
                    reached.add(id(used))
                    pending.append(used)
        for definition in self.pattern.definitions:
            if id(definition) not in reached:
                name, root = _title(definition), _title(self.pattern.root)
                message = f"'{name}' is not used: nothing on the way to '{root}', the last line, names it"
                raise self.fail(message, definition.span)
        self.check_acyclic()

    def check_acyclic(self) -> None:
        circular = _circular({id(d): {id(used) for used in self.uses(d)} for d in self.pattern.definitions})
        for definition in self.pattern.definitions:
            if id(definition) in circular:
                raise self.fail(f"'{_title(definition)}' is computed from itself", definition.span)


def _title(definition: Definition) -> str:
    return next(output.name for output in definition.outputs if output.name)


def _circular(uses: Mapping[K, set[K]]) -> set[K]:
    """The keys on a circle of uses (or on a way between two)."""
    left = dict(uses)
    while True:
        used_by_some = {key for used in left.values() for key in used}
        inner = {key: used for key, used in left.items() if key in used_by_some and used & left.keys()}
        if len(inner) == len(left):
            return set(left)
        left = inner

"""Checks of a rewrite against what its pattern binds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from surgeon_passes.errors import RuleError, did_you_mean
from surgeon_passes.rules.check_operator import (
    check_attribute,
    check_inputs,
    check_results,
    check_variadic,
    known_signature,
)
from surgeon_passes.rules.check_pattern import Bound
from surgeon_passes.rules.pattern import (
    Alternatives,
    Call,
    Capture,
    Emit,
    Literal,
    NameRef,
    OpId,
    Rewrite,
    RewriteLine,
    RewriteValue,
    Span,
)
from surgeon_passes.rules.schemas import Signature
from surgeon_passes.rules.tokens import Source


def _walk_rewrite(value: RewriteValue) -> Iterator[RewriteValue]:
    yield value
    if isinstance(value, Emit):
        for arg in value.args:
            yield from _walk_rewrite(arg)


class RewriteCheck:
    def __init__(self, source: Source, rewrite: Rewrite, bound: Bound, has_function: bool) -> None:
        self.source = source
        self.rewrite = rewrite
        self.bound = bound
        self.has_function = has_function
        self.outputs = {name for line in rewrite.lines for name in line.outputs if name}

    def run(self) -> None:
        made: set[str] = set()
        for position, line in enumerate(self.rewrite.lines):
            for item in _walk_rewrite(line.value):
                if isinstance(item, Emit):
                    self.check_emit(item)
                elif isinstance(item, NameRef):
                    self.check_name(item, made)
            self.check_line(line)
            later = self.rewrite.lines[position + 1 :]
            used = {item.name for other in later for item in _walk_rewrite(other.value) if isinstance(item, NameRef)}
            for name in filter(None, line.outputs):
                self.check_output(name, line, made, used)
                made.add(name)
        self.check_complete(made)

    def fail(self, message: str, span: Span) -> RuleError:
        return self.source.error(message, span)

    def unbound(self, what: str, name: str, candidates: Iterable[str], span: Span) -> RuleError:
        """Nothing gives a name, and there is no function that could."""
        if name in self.bound.leaf_names:
            template = self.bound.leaf_names[name]
            return self.fail(
                f"'{name}' belongs to one leaf of template '{template}': only a function can give it", span
            )
        return self.fail(f"the pattern has no {what} '{name}'{did_you_mean(name, candidates)}", span)

    # --- nodes ---

    def check_emit(self, emit: Emit) -> None:
        self.check_base(emit)
        for op in self.operators(emit):
            signature = known_signature(self.source, op, emit.span, {})
            for name, value in emit.attrs.items:
                check_attribute(self.source, op, signature, name, self.attribute_span(name, value))
            check_inputs(self.source, op, signature, emit.args, emit.span)
            self.check_required(emit, op, signature)
        for _, value in emit.attrs.items:
            if isinstance(value, Capture):
                self.check_capture(value)

    def operators(self, emit: Emit) -> tuple[OpId, ...]:
        """What the node can be; none where that is only known at a match."""
        if isinstance(emit.op, OpId):
            return (emit.op,)
        self.check_operator_name(emit.op.name, emit.op.span)
        definition = self.bound.results.get(emit.op.name)
        return definition.value.ops if definition and isinstance(definition.value, Call) else ()

    def check_base(self, emit: Emit) -> None:
        base = emit.attrs.base
        if base is not None:
            self.check_operator_name(base, self.source.find(f"@{base}", emit.attrs.span))

    def check_operator_name(self, name: str, span: Span) -> None:
        """``@name`` as an operator, or as all its attributes: a definition with an operator, or the function's word."""
        if name in self.bound.results:
            value = self.bound.results[name].value
            options = value.options if isinstance(value, Alternatives) else (value,)
            if not any(isinstance(option, Call) for option in options):
                raise self.fail(f"'{name}' is not defined by an operator, so '@{name}' has no meaning", span)
        elif name in self.bound.tensors:
            raise self.fail(f"'{name}' is an input of the pattern: no operator defines it", span)
        elif name in self.bound.captures:
            raise self.fail(f"'@{name}' is one attribute: write '<attribute=@{name}>'", span)
        elif not self.has_function:
            raise self.unbound("operator", name, self.bound.results, span)

    def check_required(self, emit: Emit, op: OpId, signature: Signature | None) -> None:
        given = {name for name, _ in emit.attrs.items}
        missing = sorted(signature.required - given) if signature and emit.attrs.base is None else []
        if missing:
            raise self.fail(f"{op} needs the attribute '{missing[0]}'", emit.span)

    def check_capture(self, capture: Capture) -> None:
        if capture.name in self.bound.captures:
            return
        if capture.name in self.bound.tensors:
            raise self.fail(f"'{capture.name}' is a tensor, not an attribute", capture.span)
        if not self.has_function:
            raise self.unbound("attribute", capture.name, self.bound.captures, capture.span)

    def attribute_span(self, name: str, value: Literal | Capture) -> Span:
        """Where an attribute's name stands: in front of its value, unless a line ends between them."""
        found = re.search(
            rf"{re.escape(name)}\s*(:\s*\w+\s*)?=\s*$", self.source.line(value.span.line)[: value.span.start]
        )
        return Span(value.span.line, found.start(), found.start() + len(name)) if found else value.span

    # --- names ---

    def check_name(self, ref: NameRef, made: set[str]) -> None:
        if ref.name in self.outputs - made:
            raise self.fail(f"'{ref.name}' is used before the line that makes it", ref.span)
        if ref.name in self.bound.tensors:
            check_variadic(self.source, ref, self.bound.tensors[ref.name])
        elif ref.name in made:
            check_variadic(self.source, ref, several=False)
        elif ref.name in self.bound.captures and not self.has_function:
            raise self.fail(f"'{ref.name}' is an attribute, not a tensor: write '<…=@{ref.name}>'", ref.span)
        elif not self.has_function:
            raise self.unbound("tensor", ref.name, {*self.bound.tensors, *made}, ref.span)

    def check_line(self, line: RewriteLine) -> None:
        if isinstance(line.value, NameRef) and line.value.variadic:
            raise self.fail(f"'{line.value.name}...' stands only in an argument list", line.value.span)
        if not isinstance(line.value, Emit):
            if len(line.outputs) > 1:
                raise self.fail("several results need an operator", line.span)
            return
        for op in self.operators(line.value):
            check_results(self.source, op, len(line.outputs), "", line.span)

    def check_output(self, name: str, line: RewriteLine, made: set[str], used: set[str]) -> None:
        span = self.source.find(name, line.span)
        if name in made:
            raise self.fail(f"'{name}' is made twice", span)
        if name in self.bound.results:
            return
        if name in self.bound.tensors:
            raise self.fail(f"'{name}' is an input of the pattern and cannot be made", span)
        if name not in used:
            hint = did_you_mean(name, self.bound.results)
            raise self.fail(f"'{name}' is no result of the pattern, and no later line uses it{hint}", span)

    def check_complete(self, made: set[str]) -> None:
        for output in self.bound.root.outputs:
            if output.name and not output.optional and output.name not in made:
                raise self.fail(f"the rewrite does not make '{output.name}'", self.rewrite.lines[-1].span)

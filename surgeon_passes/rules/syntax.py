"""A rule's text, parsed into the dataclasses of ``pattern.py``.

The language is ONNX's own textual syntax with a few additions; ``check.py`` then judges what the text says against the
operators' schemas, and ``printer.py`` goes the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

from surgeon_passes.errors import RuleError, did_you_mean
from surgeon_passes.rules.pattern import (
    Alternatives,
    AttrPattern,
    Attrs,
    Call,
    Capture,
    Definition,
    Emit,
    Flat,
    Kind,
    Literal,
    NameRef,
    OpId,
    OutputName,
    Pattern,
    Rewrite,
    RewriteLine,
    RewriteValue,
    SameOp,
    Scalar,
    Span,
    Template,
    TemplateUse,
    Value,
)
from surgeon_passes.rules.schemas import is_operator, op_id
from surgeon_passes.rules.tokens import Source, Token, tokenize

T = TypeVar("T")

_KINDS: dict[str, Kind] = {"const": "const", "partial": "partial", "unshared": "unshared"}
_ATTR_TYPES: dict[str, type[Scalar]] = {"int": int, "float": float, "string": str}
_CALL_STARTS = ("(", "<")
_LITERAL_STARTS = ("number", "string", "[")


def parse_pattern(text: str, rule_name: str) -> Pattern:
    """Parse the pattern of a rule.

    Raises:
        RuleError: the text is no pattern; the error's details show where.
    """
    return _PatternParser(Source.of(rule_name, "pattern", text)).parse()


def parse_rewrite(text: str, rule_name: str, outcome: str = "") -> Rewrite:
    """Parse one rewrite of a rule; ``outcome`` is its key where the rule has several.

    Raises:
        RuleError: the text is no rewrite; the error's details show where.
    """
    return _RewriteParser(Source.of(rule_name, rewrite_part(outcome), text)).parse()


def parse_rewrites(rewrite: str | Mapping[str, str], rule_name: str) -> dict[str, Rewrite]:
    """Parse a rule's ``rewrite=``: its outcomes by key, or a single one with the key "".

    Raises:
        RuleError: a text is no rewrite.
    """
    texts = {"": rewrite} if isinstance(rewrite, str) else rewrite
    return {outcome: parse_rewrite(text, rule_name, outcome) for outcome, text in texts.items()}


def rewrite_part(outcome: str) -> str:
    """What errors call a rewrite."""
    return f"rewrite '{outcome}'" if outcome else "rewrite"


def _joined(first: Span, last: Span) -> Span:
    """From one token to another, as far as they share a line."""
    return Span(first.line, first.start, last.end) if first.line == last.line else first


class _Reader:
    """What patterns and rewrites have in common: the token stream, literals, argument lists and attributes."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = tokenize(source)
        self.at = 0
        if self.here.kind == "end":
            raise self.fail(f"the {source.part} is empty", Span(1, 0, 1))

    # --- tokens ---

    @property
    def here(self) -> Token:
        return self.tokens[self.at]

    def ahead(self, count: int = 1) -> Token:
        return self.tokens[min(self.at + count, len(self.tokens) - 1)]

    def take(self) -> Token:
        token = self.here
        self.at += 1
        return token

    def accept(self, kind: str) -> Token | None:
        return self.take() if self.here.kind == kind else None

    def expect(self, kind: str, what: str) -> Token:
        if self.here.kind != kind:
            raise self.fail(f"expected {what}, found {self.here}")
        return self.take()

    def fail(self, message: str, span: Span | None = None) -> RuleError:
        return self.source.error(message, self.here.span if span is None else span)

    # --- lines ---

    def start_line(self) -> None:
        """Skip a node's name as ONNX text prints it, and see that the line has a '='."""
        if self.here.kind == "[" and self.ahead().kind in ("ident", "string") and self.ahead(2).kind == "]":
            self.at += 3
        depth, at = 0, self.at
        while depth or self.tokens[at].kind != "=":
            if self.tokens[at].kind in ("newline", "end"):
                raise self.fail("missing '=': a line is 'name = value'")
            depth += {"(": 1, "[": 1, "<": 1, "{": 1, ")": -1, "]": -1, ">": -1, "}": -1}.get(self.tokens[at].kind, 0)
            at += 1

    def end_line(self) -> None:
        if self.here.kind == "...":
            raise self.fail("'...' stands only after a name in an argument list, or after a template in sum or prod")
        if self.here.kind != "newline":
            raise self.fail(f"unexpected {self.here} after the value")
        self.take()

    def tensor_name(self, what: str) -> Token:
        """A name of the rule's author. Words of the language and dotted names are none."""
        token = self.here
        if (token.kind == "number" and token.text.isalpha()) or token.text in ("sum", "prod"):
            raise self.fail(f"'{token.text}' has a meaning of its own and cannot be a name")
        self.expect("ident", what)
        if "." in token.text:
            raise self.fail(f"a name has no dots: '{token.text}' is an operator and needs arguments", token.span)
        return token

    def is_blank_result(self) -> bool:
        """``""`` or nothing at all: a result that is skipped."""
        return self.here.kind == "," or self.here.text == '""'

    def blank_result(self) -> None:
        self.accept("string")

    # --- literals ---

    def literal(self) -> Literal:
        start = self.here
        value = self.scalar_or_list()
        return Literal(value, _joined(start.span, self.tokens[self.at - 1].span))

    def scalar_or_list(self) -> Scalar | tuple[object, ...]:
        if self.here.kind in ("number", "string"):
            return self.take().value
        self.expect("[", "a number, string or list")
        items: list[object] = []
        if self.accept("]"):
            return ()
        while True:
            items.append(self.scalar_or_list())
            if self.accept("]"):
                return tuple(items)
            self.expect(",", "',' or ']'")

    # --- arguments and attributes ---

    def arguments(self, value: Callable[[], T], blank: Callable[[Span], T]) -> tuple[T, ...]:
        """``(a, , b)``; the caller says what a value is, and what an empty place."""
        self.expect("(", "'('")
        if self.accept(")"):
            return ()
        items: list[T] = []
        while True:
            items.append(blank(self.here.span) if self.here.kind in (",", ")") else value())
            if self.accept(")"):
                return tuple(items)
            if self.here.kind == "...":
                raise self.fail("'...' stands only after a name, or after a template inside sum or prod")
            self.expect(",", "',' or ')'")

    def around_arguments(self, arguments: Callable[[], T], attrs: Callable[[], None]) -> T:
        """Arguments with ``<attrs>`` on one side of them."""
        before = self.here.kind == "<"
        if before:
            attrs()
        values = arguments()
        if self.here.kind == "<":
            if before:
                raise self.fail("attributes stand before or after the arguments, not on both sides")
            attrs()
        return values

    def attributes(self, item: Callable[[], str]) -> Span:
        """``<…, …>``; ``item`` reads one and returns its name ("" for none), and names must differ."""
        opener = self.expect("<", "'<'")
        seen: set[str] = set()
        while True:
            token = self.here
            name = item()
            if name in seen:
                raise self.fail(f"attribute '{name}' is given twice", token.span)
            seen.add(name)
            closer = self.accept(">")
            if closer:
                return _joined(opener.span, closer.span)
            self.expect(",", "',' or '>'")

    def attribute(self) -> tuple[Token, Literal | Capture]:
        """``axis = 1``, ``axis: int = 1`` as ONNX text prints it, ``axis=@a``."""
        name = self.expect("ident", "an attribute's name")
        kind = self.attribute_type() if self.accept(":") else None
        self.expect("=", "'='")
        if self.here.kind == "@":
            return name, self.capture()
        if self.here.kind == "ident":
            raise self.fail(f"an attribute's value is a literal or a capture: write '@{self.here.text}'")
        value = self.literal()
        return name, value if kind is None else self.typed(value, kind)

    def attribute_type(self) -> Token:
        token = self.expect("ident", "an attribute's type")
        if token.text.removesuffix("s") not in _ATTR_TYPES:
            raise self.fail(
                f"a rule cannot spell out a value of type '{token.text}': capture the attribute with @name", token.span
            )
        return token

    def typed(self, literal: Literal, kind: Token) -> Literal:
        wanted = _ATTR_TYPES[kind.text.removesuffix("s")]
        many = kind.text.endswith("s")
        values = literal.value if isinstance(literal.value, tuple) else (literal.value,)
        if many != isinstance(literal.value, tuple) or not all(_fits(value, wanted) for value in values):
            raise self.fail(f"this is no value of type '{kind.text}'", literal.span)
        if wanted is float:  # ONNX text prints the float 1.0 as 1
            values = tuple(float(value) for value in values if isinstance(value, (int, float)))
        return Literal(values if many else values[0], literal.span)  # type: ignore[arg-type]

    def capture(self) -> Capture:
        at = self.expect("@", "'@'")
        name = self.tensor_name("a name after '@'")
        return Capture(name.text, _joined(at.span, name.span))


def _fits(value: object, wanted: type[Scalar]) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if wanted is float else wanted)


class _PatternParser(_Reader):
    def parse(self) -> Pattern:
        definitions: list[Definition] = []
        templates: dict[str, Template] = {}
        while self.here.kind != "end":
            self.start_line()
            if self.here.kind == "ident" and self.ahead().kind == "(":
                template = self.template()
                if template.name in templates:
                    raise self.fail(f"template '{template.name}' is defined twice", template.span)
                templates[template.name] = template
            else:
                definitions.append(self.definition())
            self.end_line()
        if not definitions:
            raise self.fail("a pattern needs a definition 'name = …' after its templates")
        return Pattern(tuple(definitions), templates, self.source.text)

    def template(self) -> Template:
        name = self.tensor_name("a template's name")
        params = self.arguments(lambda: self.tensor_name("a parameter").text, self.no_blank)
        self.expect("=", "'='")
        value = self.value()
        options = value.options if isinstance(value, Alternatives) else (value,)
        return Template(name.text, params, options, name.span)

    def definition(self) -> Definition:
        start = self.here.span
        outputs = [self.output()]
        while self.accept(","):
            if outputs[-1].variadic:
                raise self.fail("'...' stands only after the last result", outputs[-1].span)
            outputs.append(self.output())
        span = _joined(start, self.tokens[self.at - 1].span)
        if not any(output.name for output in outputs):
            raise self.fail("at least one result needs a name", span)
        self.expect("=", "',' or '='")
        return Definition(tuple(outputs), self.value(), span)

    def output(self) -> OutputName:
        if self.is_blank_result():
            span = self.here.span
            self.blank_result()
            return OutputName("", span=span)
        name = self.tensor_name("a result's name")
        optional, variadic = bool(self.accept("?")), bool(self.accept("..."))
        if optional and variadic:
            raise self.fail("'?' and '...' exclude each other", name.span)
        return OutputName(name.text, optional, variadic, name.span)

    def value(self) -> Value:
        first = self.term()
        if self.here.kind != "|":
            return first
        options = [first]
        while self.accept("|"):
            options.append(self.term())
        return Alternatives(tuple(options), first.span)

    def term(self) -> Value:
        if self.here.kind in _LITERAL_STARTS:
            return self.literal()
        if self.here.kind != "ident":
            raise self.fail(f"expected a value, found {self.here}")
        if self.here.text in ("sum", "prod") and self.ahead().kind == "(":
            return self.flat()
        operators = self.operators_ahead()
        return self.call(operators) if operators else self.name()

    def operators_ahead(self) -> int:
        """How many operators stand here: ``Add|Sub(x, y)`` has two, ``x | Relu(x)`` none (x is no operator)."""
        count = 1
        while self.ahead(2 * count - 1).kind == "|" and self.ahead(2 * count).kind == "ident":
            count += 1
        called = self.ahead(2 * count - 1).kind in _CALL_STARTS
        if count > 1 and called and all(is_operator(self.ahead(2 * i).text) for i in range(count)):
            return count
        return 1 if self.ahead().kind in _CALL_STARTS else 0

    def call(self, operators: int) -> Call:
        first = self.here
        ops: list[OpId] = []
        for _ in range(operators):
            self.accept("|")
            ops.append(op_id(self.take().text))
        span = _joined(first.span, self.tokens[self.at - 1].span)
        attrs: list[AttrPattern] = []
        args = self.around_arguments(
            lambda: self.arguments(self.value, lambda at: Literal("", at)),
            lambda: (self.attributes(lambda: self.attr_pattern(attrs)), None)[1],
        )
        return Call(tuple(ops), args, tuple(attrs), span)

    def attr_pattern(self, attrs: list[AttrPattern]) -> str:
        if self.here.kind == "@":
            raise self.fail("'<@name>' belongs to a rewrite; in a pattern write '<attribute=@name>'")
        name, value = self.attribute()
        attrs.append(AttrPattern(name.text, value, name.span))
        return name.text

    def flat(self) -> Flat:
        kind = self.take()
        args: tuple[Value | TemplateUse, ...] = self.arguments(self.operand, self.no_blank)
        return Flat("sum" if kind.text == "sum" else "prod", args, kind.span)

    def operand(self) -> Value | TemplateUse:
        return self.template_use() if self.is_template_use() else self.value()

    def is_template_use(self) -> bool:
        """Whether a call with '...' behind it stands here."""
        if self.here.kind != "ident" or self.ahead().kind != "(":
            return False
        at, depth = 1, 0
        while True:
            depth += {"(": 1, ")": -1}.get(self.ahead(at).kind, 0)
            at += 1
            if not depth:
                return self.ahead(at).kind == "..."

    def template_use(self) -> TemplateUse:
        name = self.tensor_name("a template's name")
        params = self.arguments(lambda: self.tensor_name("a name (a template is used with names)").text, self.no_blank)
        self.expect("...", "'...'")
        return TemplateUse(name.text, params, name.span)

    def no_blank(self, span: Span) -> NoReturn:
        raise self.fail(f"expected a name or value, found {self.here}", span)

    def name(self) -> NameRef:
        token = self.tensor_name("a name")
        optional, variadic = bool(self.accept("?")), bool(self.accept("..."))
        if optional and variadic:
            raise self.fail("'?' and '...' exclude each other", token.span)
        kind: Kind = self.marker() if self.accept(":") else "any"
        return NameRef(token.text, kind, optional, variadic, token.span)

    def marker(self) -> Kind:
        token = self.expect("ident", "const, partial or unshared")
        if token.text not in _KINDS:
            raise self.fail(f"unknown marker '{token.text}'{did_you_mean(token.text, _KINDS)}", token.span)
        return _KINDS[token.text]


class _RewriteParser(_Reader):
    def parse(self) -> Rewrite:
        lines: list[RewriteLine] = []
        while self.here.kind != "end":
            self.start_line()
            lines.append(self.line())
            self.end_line()
        return Rewrite(tuple(lines), self.source.text)

    def line(self) -> RewriteLine:
        start = self.here.span
        outputs = [self.output()]
        while self.accept(","):
            outputs.append(self.output())
        span = _joined(start, self.tokens[self.at - 1].span)
        if not any(outputs):
            raise self.fail("at least one result needs a name", span)
        self.expect("=", "',' or '='")
        return RewriteLine(tuple(outputs), self.value(), span)

    def output(self) -> str:
        if self.is_blank_result():
            self.blank_result()
            return ""
        name = self.tensor_name("a result's name")
        if self.here.kind == "...":
            raise self.fail("a rewrite names its results without '...': they are as many as the pattern found")
        self.no_markers()
        return name.text

    def value(self) -> RewriteValue:
        value = self.term()
        if self.here.kind == "|":
            raise self.fail("alternatives belong to the pattern (several outcomes: rewrite={…})")
        return value

    def term(self) -> RewriteValue:
        if self.here.kind in _LITERAL_STARTS:
            return self.literal()
        if self.here.kind == "@":
            at = self.here
            name = self.capture().name
            if self.here.kind not in _CALL_STARTS:
                raise self.fail(f"'@{name}' stands for an operator here and needs arguments", at.span)
            return self.emit(SameOp(name, _joined(at.span, self.tokens[self.at - 1].span)))
        if self.here.kind != "ident":
            raise self.fail(f"expected a value, found {self.here}")
        if self.ahead().kind in _CALL_STARTS:
            return self.operator()
        return self.name()

    def operator(self) -> Emit:
        if self.here.text in ("sum", "prod"):
            raise self.fail(f"'{self.here.text}' belongs to the pattern: emit Add, Sum or Mul")
        return self.emit(op_id(self.take().text))

    def emit(self, op: OpId | SameOp) -> Emit:
        """The rest of a node whose operator was just read."""
        span = op.span if isinstance(op, SameOp) else self.tokens[self.at - 1].span
        attrs = Attrs()

        def read_attrs() -> None:
            nonlocal attrs
            attrs = self.attrs()

        args = self.around_arguments(lambda: self.arguments(self.value, lambda at: Literal("", at)), read_attrs)
        return Emit(op, args, attrs, span)

    def attrs(self) -> Attrs:
        base: list[str] = []
        items: list[tuple[str, Literal | Capture]] = []

        def item() -> str:
            if self.here.kind != "@":
                name, value = self.attribute()
                items.append((name.text, value))
                return name.text
            if base or items:
                raise self.fail("'@name' stands once, first among the attributes")
            base.append(self.capture().name)
            return ""

        span = self.attributes(item)
        return Attrs(base[0] if base else None, tuple(items), span)

    def name(self) -> NameRef:
        token = self.tensor_name("a name")
        variadic = bool(self.accept("..."))
        self.no_markers()
        return NameRef(token.text, variadic=variadic, span=token.span)

    def no_markers(self) -> None:
        if self.here.kind in ("?", ":"):
            raise self.fail(f"'{self.here.text}' belongs to the pattern: a rewrite uses names as they are")

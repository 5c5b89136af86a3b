"""Text to dataclasses and back; every text that is none gives a RuleError with a caret."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.errors import RuleError
from surgeon_passes.rules.check import check_rule
from surgeon_passes.rules.pattern import (
    Alternatives,
    AttrPattern,
    Attrs,
    Call,
    Capture,
    Definition,
    Emit,
    Flat,
    Literal,
    NameRef,
    OpId,
    OutputName,
    Pattern,
    Rewrite,
    RewriteLine,
    SameOp,
    Span,
    Template,
    TemplateUse,
)
from surgeon_passes.rules.printer import unparse, unparse_rewrite
from surgeon_passes.rules.syntax import parse_pattern, parse_rewrite, parse_rewrites
from tests.rules.fixtures import GRAMMAR, RULES

X, W = NameRef("x"), NameRef("w")
ALL = {**RULES, **GRAMMAR}


def op(name: str, *args: object, **attrs: object) -> Call:
    wrapped = tuple(AttrPattern(k, v if isinstance(v, Capture) else Literal(v)) for k, v in attrs.items())
    return Call((OpId("", name),), args, wrapped)


def value(text: str) -> object:
    """What stands on the right of ``y = …``."""
    return parse_pattern(f"y = {text}", "r").root.value


def emitted(text: str) -> object:
    return parse_rewrite(f"y = {text}", "r").lines[0].value


# --- patterns ---------------------------------------------------------------------------------------------------------


def test_conv_then_batch_norm() -> None:
    pattern = parse_pattern(
        """
        c = Conv(x, w: const, b?: const)
        y = BatchNormalization(c, gamma: const)<epsilon=@eps>
        """,
        "fold",
    )
    conv = op("Conv", X, NameRef("w", "const"), NameRef("b", "const", optional=True))
    norm = op("BatchNormalization", NameRef("c"), NameRef("gamma", "const"), epsilon=Capture("eps"))
    assert pattern == Pattern((Definition((OutputName("c"),), conv), Definition((OutputName("y"),), norm)))
    assert pattern.root.outputs == (OutputName("y"),)


def test_template() -> None:
    pattern = parse_pattern(
        """
        branch(x) = Conv(x, w: const)
                  | BatchNormalization(x, scale)   # read as a kernel

                  | x
        y = sum(branch(x)...)
        """,
        "merge",
    )
    options = (op("Conv", X, NameRef("w", "const")), op("BatchNormalization", X, NameRef("scale")), X)
    root = Definition((OutputName("y"),), Flat("sum", (TemplateUse("branch", ("x",)),)))
    assert pattern == Pattern((root,), {"branch": Template("branch", ("x",), options)})


def test_results() -> None:
    assert parse_pattern("y, mask? = Dropout(x)", "r").root.outputs == (OutputName("y"), OutputName("mask", True))
    assert parse_pattern("parts... = Split(x)", "r").root.outputs == (OutputName("parts", variadic=True),)
    assert parse_pattern("a, rest... = Split(x)", "r").root.outputs[1] == OutputName("rest", variadic=True)
    assert parse_pattern('"", h = LSTM(x, w, r)', "r").root.outputs == (OutputName(""), OutputName("h"))
    assert parse_pattern("a, , c = LSTM(x, w, r)", "r").root.outputs == tuple(map(OutputName, ("a", "", "c")))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Relu(x)", op("Relu", X)),
        ("Relu()", op("Relu")),
        ("Add(Relu(x), w)", op("Add", op("Relu", X), W)),
        ("Concat(x, w)<axis=-1>", op("Concat", X, W, axis=-1)),
        ("Concat<axis=-1>(x, w)", op("Concat", X, W, axis=-1)),
        ("Concat <axis: int = -1> (x, w)", op("Concat", X, W, axis=-1)),
        ("Transpose <perm: ints = [0, 1], b = 2> (x)", op("Transpose", X, perm=(0, 1), b=2)),
        ('Cast<to: string = "a", f: floats = [1, 2]>(x)', op("Cast", X, to="a", f=(1.0, 2.0))),
        ("Concat(\n  x,  # first\n  w\n)<\n axis=1>", op("Concat", X, W, axis=1)),
        ("com.microsoft.Gelu(x)", Call((OpId("com.microsoft", "Gelu"),), (X,))),
        ("ai.onnx.Relu(x)", op("Relu", X)),
        ("Clip(x, , w)", op("Clip", X, Literal(""), W)),
        ('Clip(x, "", w)', op("Clip", X, Literal(""), W)),
        ("Clip(x, )", op("Clip", X, Literal(""))),
        ("Add|Sub(x, w)", Call((OpId("", "Add"), OpId("", "Sub")), (X, W))),
        ("Add | Sub <a=1> (x, w)", Call((OpId("", "Add"), OpId("", "Sub")), (X, W), (AttrPattern("a", Literal(1)),))),
        ("Gelu|com.microsoft.Gelu(x)", Call((OpId("", "Gelu"), OpId("com.microsoft", "Gelu")), (X,))),
        ("x | Relu(x)", Alternatives((X, op("Relu", X)))),
        ("Relu(x) | x", Alternatives((op("Relu", X), X))),
        ("Neg(x) | Add|Sub(x, w)", Alternatives((op("Neg", X), Call((OpId("", "Add"), OpId("", "Sub")), (X, W))))),
        ("Add(x | Neg(x), w)", op("Add", Alternatives((X, op("Neg", X))), W)),
        ("Div(x, 1.41) | Mul(x, 0.7)", Alternatives((op("Div", X, Literal(1.41)), op("Mul", X, Literal(0.7))))),
        ("sum(x, rest...)", Flat("sum", (X, NameRef("rest", variadic=True)))),
        ("prod(x, 0.5, sum(w, 1))", Flat("prod", (X, Literal(0.5), Flat("sum", (W, Literal(1)))))),
        ("Concat(x...)", op("Concat", NameRef("x", variadic=True))),
        ("Concat(x...: const)", op("Concat", NameRef("x", "const", variadic=True))),
        (
            "F(x?, x: unshared, x: partial)",
            op("F", NameRef("x", optional=True), *(NameRef("x", k) for k in ("unshared", "partial"))),
        ),
    ],
)
def test_values(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("-1", -1),
        ("1.", 1.0),
        (".5", 0.5),
        ("-1e-5", -1e-5),
        ("2E+3", 2000.0),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("true", True),
        ("false", False),
        ('"a\\"b\\\\c\\n # no comment"', 'a"b\\c\n # no comment'),
        ("[]", ()),
        ("[1, 2.5, [true]]", (1, 2.5, (True,))),
    ],
)
def test_literals(text: str, expected: object) -> None:
    for literal in (value(f"Add(x, {text})").args[1], value(f"Add<a={text}>(x)").attrs[0].value):
        assert literal == Literal(expected)
        assert type(literal.value) is type(expected)


def test_nan() -> None:
    assert math.isnan(value("Add(x, nan)").args[1].value)
    assert value("Add(x, nan)") == value("Add(x, nan)")


def test_spans() -> None:
    pattern = parse_pattern(
        """

        c = Conv(x,
                 w?: const)<strides=@s>
        y, mask = Add|Sub(c, 0.5)
        """,
        "r",
    )
    conv, add = (definition.value for definition in pattern.definitions)
    assert conv.span == Span(1, 4, 8)
    assert [arg.span for arg in conv.args] == [Span(1, 9, 10), Span(2, 9, 10)]
    assert (conv.attrs[0].span, conv.attrs[0].value.span) == (Span(2, 20, 27), Span(2, 28, 30))
    assert (add.span, add.args[1].span) == (Span(3, 10, 17), Span(3, 21, 24))
    assert pattern.root.span == Span(3, 0, 7)
    assert pattern.root.outputs[1].span == Span(3, 3, 7)


def test_alternatives_may_start_the_next_line_only() -> None:
    assert parse_pattern("y = Relu(x)\n# why\n\n  | Neg(x)", "r") == parse_pattern("y = Relu(x) | Neg(x)", "r")


# --- rewrites ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", X),
        ("0.5", Literal(0.5)),
        ("Conv(x, w)<@c>", Emit(OpId("", "Conv"), (X, W), Attrs("c"))),
        ("Conv<@c, pads=@P>(x, w)", Emit(OpId("", "Conv"), (X, W), Attrs("c", (("pads", Capture("P")),)))),
        ("@c(x)<@c>", Emit(SameOp("c"), (X,), Attrs("c"))),
        ("F(x)<a=1, e=@eps>", Emit(OpId("", "F"), (X,), Attrs(None, (("a", Literal(1)), ("e", Capture("eps")))))),
        ("Clip(x, , [1, 2])", Emit(OpId("", "Clip"), (X, Literal(""), Literal((1, 2))))),
        ("Neg(com.a.F(x...))", Emit(OpId("", "Neg"), (Emit(OpId("com.a", "F"), (NameRef("x", variadic=True),)),))),
    ],
)
def test_rewrite_values(text: str, expected: object) -> None:
    assert emitted(text) == expected


def test_rewrite_lines() -> None:
    rewrite = parse_rewrite("a, b = Split(x, s)  # two\ny = Add(a, b)", "r")
    split = Emit(OpId("", "Split"), (X, NameRef("s")))
    add = Emit(OpId("", "Add"), (NameRef("a"), NameRef("b")))
    assert rewrite == Rewrite((RewriteLine(("a", "b"), split), RewriteLine(("y",), add)))


def test_outcomes() -> None:
    assert list(parse_rewrites("y = x", "r")) == [""]
    assert list(parse_rewrites({"drop": "y = x", "merge": "y = Relu(x)"}, "r")) == ["drop", "merge"]
    with pytest.raises(RuleError, match=r"^r, rewrite 'drop' line 1: missing '='"):
        parse_rewrites({"drop": "y"}, "r")


# --- errors -----------------------------------------------------------------------------------------------------------

PATTERN_ERRORS = [
    ("", "pattern line 1: the pattern is empty", "^"),
    ("c = Conv(x, w", "pattern line 1: '(' is never closed", "        ^"),
    ("c = Conv(x, w\ny = Relu(c)", "pattern line 1: '(' is never closed", "        ^"),
    ("y = Conv(x, w))", "pattern line 1: ')' closes nothing", "              ^"),
    ("y = Conv(x, w]", "pattern line 1: ']' does not close '('", "             ^"),
    ("y = Relu(x) z", "pattern line 1: unexpected 'z' after the value", "            ^"),
    ("Relu(x)", "pattern line 1: missing '=': a line is 'name = value'", "^^^^"),
    ("y Relu(x)", "pattern line 1: missing '=': a line is 'name = value'", "^"),
    ("= Relu(x)", "pattern line 1: expected a result's name, found '='", "^"),
    ("y = Add(x, 1.2.3)", "pattern line 1: bad number '1.2.3'", "           ^^^^^"),
    ("y = Add(x, 1e)", "pattern line 1: bad number '1e'", "           ^^"),
    ("y = Add(x, 12ab)", "pattern line 1: bad number '12ab'", "           ^^^^"),
    ("y = Add(x, --3)", "pattern line 1: unexpected character '-'", "           ^"),
    ("y = Add(x, 1e999)", "pattern line 1: this number is too large for a float (write inf)", "           ^^^^^"),
    (
        "y = Add(x, 99999999999999999999)",
        "pattern line 1: this number does not fit 64 bits",
        "           ^^^^^^^^^^^^^^^^^^^^",
    ),
    (
        "y = Conv(x, w)<group=1, group=2>",
        "pattern line 1: attribute 'group' is given twice",
        "                        ^^^^^",
    ),
    (
        "y = Conv<group=1>(x, w)<group=1>",
        "pattern line 1: attributes stand before or after the arguments, not on both sides",
        "                       ^",
    ),
    ("y = Conv(x, w)<>", "pattern line 1: expected an attribute's name, found '>'", "               ^"),
    ("y = Conv(x, w)<group>", "pattern line 1: expected '=', found '>'", "                    ^"),
    (
        "y = Conv(x, w)<group=g>",
        "pattern line 1: an attribute's value is a literal or a capture: write '@g'",
        "                     ^",
    ),
    (
        "y = Conv(x, w)<@c>",
        "pattern line 1: '<@name>' belongs to a rewrite; in a pattern write '<attribute=@name>'",
        "               ^",
    ),
    (
        "y = Cast(x)<to: tensor = 3>",
        "pattern line 1: a rule cannot spell out a value of type 'tensor': capture the attribute with @name",
        "                ^^^^^^",
    ),
    (
        "y = Constant<value: tensor = float {1}>()",
        "pattern line 1: a rule cannot spell out a value of type 'tensor': capture the attribute with @name",
        "                    ^^^^^^",
    ),
    (
        "y = Concat(x)<axis: int = 1.5>",
        "pattern line 1: this is no value of type 'int'",
        "                          ^^^",
    ),
    ('y = Cast(x)<to="float>', "pattern line 1: this string is not closed", "               ^"),
    ("y = Relu(é)", "pattern line 1: unexpected character 'é'", "         ^"),
    ("y = Relu('x')", 'pattern line 1: unexpected character "\'"', "         ^"),
    ("y = Relu(x: cons)", "pattern line 1: unknown marker 'cons' (did you mean 'const'?)", "            ^^^^"),
    ("y = Relu(x?...)", "pattern line 1: '?' and '...' exclude each other", "         ^"),
    ("y = sum = Add(x, x)", "pattern line 1: 'sum' has a meaning of its own and cannot be a name", "    ^^^"),
    ("sum = Add(x, x)", "pattern line 1: 'sum' has a meaning of its own and cannot be a name", "^^^"),
    ("nan = Relu(x)", "pattern line 1: 'nan' has a meaning of its own and cannot be a name", "^^^"),
    ("y = Relu(a.b)", "pattern line 1: a name has no dots: 'a.b' is an operator and needs arguments", "         ^^^"),
    ("y = a.b", "pattern line 1: a name has no dots: 'a.b' is an operator and needs arguments", "    ^^^"),
    ("a..., b = Split(x)", "pattern line 1: '...' stands only after the last result", "^"),
    ("y = Relu(x) |", "pattern line 1: expected a value, found the end of the line", "             ^"),
    ("y = | Relu(x)", "pattern line 1: expected a value, found '|'", "    ^"),
    ("| Relu(x)", "pattern line 1: missing '=': a line is 'name = value'", "^"),
    ("y = Relu(x y)", "pattern line 1: expected ',' or ')', found 'y'", "           ^"),
    (
        "y = Relu(branch(x)...)",
        "pattern line 1: '...' stands only after a name, or after a template inside sum or prod",
        "                  ^^^",
    ),
    (
        "b(x) = Relu(x)",
        "pattern line 1: a pattern needs a definition 'name = …' after its templates",
        "              ^",
    ),
    ("b(x) = Relu(x) | x\nb(x) = Neg(x)\ny=sum(b(x)...)", "pattern line 2: template 'b' is defined twice", "^"),
    ("b(3) = Relu(x)\ny = sum(b(x)...)", "pattern line 1: expected a parameter, found '3'", "  ^"),
    ("b(x) = Relu(x)\ny = sum(b(Relu(x))...)", "pattern line 2: expected ',' or ')', found '('", "              ^"),
    ("y = Conv(x, w)<pads=[1, 2>", "pattern line 1: '>' does not close '['", "                         ^"),
    ("y = Conv(x, w)<pads=[1 2]>", "pattern line 1: expected ',' or ']', found '2'", "                       ^"),
    (
        "y = Conv(x, w)<pads=[1, a]>",
        "pattern line 1: expected a number, string or list, found 'a'",
        "                        ^",
    ),
    ("y = Relu(x) = z", "pattern line 1: unexpected '=' after the value", "            ^"),
    ('"" = Relu(x)', "pattern line 1: at least one result needs a name", "^^"),
    ("y: const = Relu(x)", "pattern line 1: expected ',' or '=', found ':'", " ^"),
    ("y = sum(x, , z)", "pattern line 1: expected a name or value, found ','", "           ^"),
    (
        "y = Conv(x: shared, w)",
        "pattern line 1: unknown marker 'shared' (did you mean 'unshared'?)",
        "            ^^^^^^",
    ),
    ("y = Relu({1})", "pattern line 1: expected a value, found '{'", "         ^"),
    (
        "y = Relu(x)...",
        "pattern line 1: '...' stands only after a name in an argument list, or after a template in sum or prod",
        "           ^^^",
    ),
    ("y = Add(x, @c)", "pattern line 1: expected a value, found '@'", "           ^"),
    ("y = Relu@(x)", "pattern line 1: unexpected '@' after the value", "        ^"),
]

REWRITE_ERRORS = [
    ("", "rewrite line 1: the rewrite is empty", "^"),
    ("y = x | a", "rewrite line 1: alternatives belong to the pattern (several outcomes: rewrite={…})", "      ^"),
    ("y = @c", "rewrite line 1: '@c' stands for an operator here and needs arguments", "    ^"),
    ("y = sum(x, x)", "rewrite line 1: 'sum' belongs to the pattern: emit Add, Sum or Mul", "    ^^^"),
    (
        "y = Relu(x: const)",
        "rewrite line 1: ':' belongs to the pattern: a rewrite uses names as they are",
        "          ^",
    ),
    ("y = Relu(x?)", "rewrite line 1: '?' belongs to the pattern: a rewrite uses names as they are", "          ^"),
    (
        "y... = Split(x)",
        "rewrite line 1: a rewrite names its results without '...': they are as many as the pattern found",
        " ^^^",
    ),
    (
        "y = Conv(x)<axis=1, @a>",
        "rewrite line 1: '@name' stands once, first among the attributes",
        "                    ^",
    ),
    (
        "y = Concat(p...)<@a, @y>",
        "rewrite line 1: '@name' stands once, first among the attributes",
        "                     ^",
    ),
    (
        "y = Relu(branch(x)...)",
        "rewrite line 1: '...' stands only after a name, or after a template inside sum or prod",
        "                  ^^^",
    ),
]


def assert_shown(error: RuleError, text: str, message: str, carets: str) -> None:
    """The whole message, and carets under the right column of the line that it names."""
    assert str(error) == f"rule, {message}"
    line = text.split("\n")[int(message.split(" line ")[1].split(":", maxsplit=1)[0]) - 1]
    assert error.details == f"    {line}\n    {carets}"


@pytest.mark.parametrize(("text", "message", "carets"), PATTERN_ERRORS)
def test_pattern_errors(text: str, message: str, carets: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_pattern(text, "rule")
    assert_shown(caught.value, text, message, carets)


@pytest.mark.parametrize(("text", "message", "carets"), REWRITE_ERRORS)
def test_rewrite_errors(text: str, message: str, carets: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rewrite(text, "rule")
    assert_shown(caught.value, text, message, carets)


def test_lines_are_counted_from_the_first_that_says_something() -> None:
    with pytest.raises(RuleError) as caught:
        parse_pattern("\n\n        a = Relu(x)\n          # why\n\n        y = Add(a,\t1..2)\n    ", "rule")
    assert str(caught.value) == "rule, pattern line 4: bad number '1..2'"
    assert caught.value.details == "    y = Add(a, 1..2)\n               ^^^^"


def test_deep_nesting_is_an_error_of_the_rule() -> None:
    parse_pattern(f"y = {'Relu(' * 64}x{')' * 64}", "r")
    parse_pattern(f"y = Add(x, {'[' * 63}{']' * 63})", "r")
    with pytest.raises(RuleError, match="nested more than 64 deep"):
        parse_pattern(f"y = {'Relu(' * 65}x{')' * 65}", "r")


# --- properties -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_unparse_gives_an_equal_rule(name: str) -> None:
    rule = ALL[name]
    pattern = parse_pattern(rule.pattern, name)
    assert parse_pattern(unparse(pattern), name) == pattern
    for rewrite in parse_rewrites(rule.rewrite, name).values():
        assert parse_rewrite(unparse_rewrite(rewrite), name) == rewrite


TEXTS = sorted({rule.pattern for rule in ALL.values()})
PIECES = [
    *"()<>[]{},=|?:@#.\"'\n \t-_x1é\0\r\f\u2028",
    "...",
    "1e5",
    "nan",
    "sum(",
    "Conv(",
    "branch",
    "const",
    "y = ",
    '""',
]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A rule's text with a few pieces put in, taken out or moved."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 6)))
        piece = draw(st.sampled_from(PIECES)) if draw(st.booleans()) else draw(st.sampled_from(TEXTS))[start:end]
        text = text[:start] + piece + text[end:]
    return text


@given(mutated(), st.booleans())
@settings(max_examples=1500, deadline=None)
def test_mutated_texts_give_a_rule_error_or_a_rule(text: str, has_function: bool) -> None:
    try:
        pattern = parse_pattern(text, "r")
        assert parse_pattern(unparse(pattern), "r") == pattern
        check_rule("r", pattern, parse_rewrites("y = x", "r"), has_function)
    except RuleError as error:
        assert_points_somewhere(error)
    try:
        rewrite = parse_rewrite(text, "r")
        assert parse_rewrite(unparse_rewrite(rewrite), "r") == rewrite
        check_rule("r", parse_pattern("y, z = Dropout(x)<seed=@a>", "r"), {"": rewrite}, has_function)
    except RuleError as error:
        assert_points_somewhere(error)


@given(st.text(max_size=60))
@settings(max_examples=500, deadline=None)
def test_any_text_gives_a_rule_error_or_a_pattern(text: str) -> None:
    try:
        parse_pattern(text, "r")
    except RuleError as error:
        assert_points_somewhere(error)


def assert_points_somewhere(error: RuleError) -> None:
    assert "\n" not in str(error)
    line, carets = error.details.split("\n")
    assert carets.strip(" ").strip("^") == ""
    assert "^" in carets
    assert len(carets) <= len(line) + 1


def test_import_is_light() -> None:
    code = "import sys, surgeon_passes.rules.syntax; sys.exit(not {'onnx', 'numpy'}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

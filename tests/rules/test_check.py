"""What is wrong with a rule is said when it is defined, at the right place."""

from __future__ import annotations

import pytest

from surgeon_passes.errors import RuleError
from surgeon_passes.rules.check import check_rule
from surgeon_passes.rules.pattern import Call, Definition, NameRef, OpId, OutputName, Pattern
from surgeon_passes.rules.syntax import parse_pattern, parse_rewrites
from tests.rules.fixtures import GRAMMAR, RULES

ALL = {**RULES, **GRAMMAR}


def check(pattern: str, rewrite: str | dict[str, str], has_function: bool = True) -> None:
    check_rule("rule", parse_pattern(pattern, "rule"), parse_rewrites(rewrite, "rule"), has_function)


def assert_shown(error: RuleError, text: str, message: str, carets: str) -> None:
    """The whole message, and carets under the right column of the line that it names."""
    assert str(error) == f"rule, {message}"
    number = message.split(" line ")[1].partition(":")[0]
    assert error.details == f"    {text.split(chr(10))[int(number) - 1]}\n    {carets}"


@pytest.mark.parametrize("name", ALL)
def test_rules_are_clean(name: str) -> None:
    rule = ALL[name]
    check_rule(name, parse_pattern(rule.pattern, name), parse_rewrites(rule.rewrite, name), rule.has_function)


def test_the_error_that_the_design_promises() -> None:
    pattern = """
        # leaves
        branch(x) = Conv(x, w: const)<stride=@s>
        y = sum(branch(x)...)
    """
    with pytest.raises(RuleError) as caught:
        check_rule("merge_parallel_branches", parse_pattern(pattern, "merge_parallel_branches"), {}, True)
    assert f"{caught.value}\n{caught.value.details}" == (
        "merge_parallel_branches, pattern line 2: Conv has no attribute 'stride' (did you mean 'strides'?)\n"
        "    branch(x) = Conv(x, w: const)<stride=@s>\n"
        "                                  ^^^^^^"
    )


@pytest.mark.parametrize(
    "pattern",
    [
        "y = Squeeze(x)<axes=@a>",  # an attribute of old versions
        "y = com.microsoft.Anything(x, z)<whatever=1>",  # a domain without schemas
        "y = Dropout(x, ratio)",  # an input of new versions
        "y = Clip(x, , high)",
        "y = ai.onnx.ml.Scaler(x)",
        "half = 0.5\ny = Mul(x, half)",
        "b(x, z) = Add(x, z) | x\nc = Relu(q)\ny = sum(b(q, c)...)",
        "inner(x) = Relu(x) | x\nouter(x) = prod(inner(x)...) | x\ny = sum(outer(x)...)",
        "b = Relu(a)\na = Neg(x)\ny = Add(a, b)",  # text order is free but for the root
        "y = Where(Shape, x, z)",  # a tensor may bear an operator's name where nothing is ambiguous
        "y = sum(rest...)",
    ],
)
def test_accepted_patterns(pattern: str) -> None:
    check(pattern, "y = Identity(new)")


PATTERN_ERRORS = [
    ("y = Relu(x...)", "pattern line 1: Relu is not variadic: 'x...' has no place in it", "         ^"),
    ("b(x) = Relu(x)\ny = sum(b(x)... , z)", "pattern line 2: 'b(…)...' stands alone inside sum(…)", "        ^"),
    (
        "branch(x) = Conv(x, w: const)<stride=@s>\ny = sum(branch(x)...)",
        "pattern line 1: Conv has no attribute 'stride' (did you mean 'strides'?)",
        "                              ^^^^^^",
    ),
    ("y = Covn(x, w)", "pattern line 1: unknown operator 'Covn' (did you mean 'Conv'?)", "    ^^^^"),
    ("y = conv(x, w)", "pattern line 1: unknown operator 'conv' (did you mean 'Conv'?)", "    ^^^^"),
    ("y = Conv(x)", "pattern line 1: Conv takes 2 or 3 inputs, not 1", "    ^^^^"),
    ("y = Conv(x, a, b, c)", "pattern line 1: Conv takes 2 or 3 inputs, not 4", "    ^^^^"),
    ("y = Relu(x, z)", "pattern line 1: Relu takes 1 input, not 2", "    ^^^^"),
    ("y = Concat()<axis=1>", "pattern line 1: Concat takes 1 or more inputs, not 0", "    ^^^^^^"),
    ('y = Conv(x, "")', "pattern line 1: input 2 of Conv cannot be missing", "            ^^"),
    ("y = Max()", "pattern line 1: Max takes 1 or more inputs, not 0", "    ^^^"),
    ("y, z = Relu(x)", "pattern line 1: Relu has 1 result, not 2", "^^^^"),
    ("y... = Relu(x)", "pattern line 1: Relu has no variadic result: 'y...' has no place here", "^^^^"),
    ("a = Relu(x)\na = Neg(x)\ny = Add(a, a)", "pattern line 2: 'a' is defined twice", "^"),
    ("b(x) = Relu(x)\ny = sum(b(x, z)...)", "pattern line 2: template 'b' has 1 parameter, not 2", "        ^"),
    ("b(x) = Relu(x)\ny = Neg(x)", "pattern line 1: template 'b' is not used: write 'sum(b(…)...)'", "^"),
    ("b(x) = Relu(x)\ny = sum(c(x)...)", "pattern line 2: unknown template 'c'", "        ^"),
    (
        "b(x) = Relu(x)\ny = sum(b(x))",
        "pattern line 2: 'b' is a template: write 'b(…)...', alone inside sum(…) or prod(…)",
        "        ^",
    ),
    (
        "b(x) = Relu(x)\ny = Neg(b(x))",
        "pattern line 2: 'b' is a template: write 'b(…)...', alone inside sum(…) or prod(…)",
        "        ^",
    ),
    (
        "c = Relu(x)\ny = Neg(x)",
        "pattern line 1: 'c' is not used: nothing on the way to 'y', the last line, names it",
        "^",
    ),
    (
        "b = Relu(a)\na = Relu(a)\ny = Add(a, b)",
        "pattern line 2: 'a' is computed from itself",
        "^",
    ),
    ("y = Relu(y)", "pattern line 1: 'y' is computed from itself", "^"),
    ("a = Relu(b)\nb = Neg(a)\ny = Add(a, b)", "pattern line 1: 'a' is computed from itself", "^"),
    ("b(x, x) = Relu(x)\ny = sum(b(x, x)...)", "pattern line 1: parameter 'x' stands twice", "  ^"),
    ("b(x, z) = Relu(x)\ny = sum(b(x, z)...)", "pattern line 1: template 'b' does not use its parameter 'z'", "     ^"),
    (
        "b(x) = Add(x, c)\nc = Neg(x)\ny = Add(c, sum(b(x)...))",
        "pattern line 1: 'c' stands inside template 'b' and outside: make it a parameter, or rename one",
        "              ^",
    ),
    ("b(x) = Relu(x) | sum(b(x)...)\ny = sum(b(x)...)", "pattern line 1: template 'b' uses itself", "^"),
    (
        "o(x) = Neg(x) | sum(i(x)...)\ni(x) = x | sum(i(x)...)\ny = sum(o(x)...)",
        "pattern line 2: template 'i' uses itself",
        "^",
    ),
    ("y = x", "pattern line 1: a definition needs an operator: this one only renames", "    ^"),
    (
        "y = 3",
        "pattern line 1: the last line is where matching starts: it needs an operator in every alternative",
        "    ^",
    ),
    (
        "y = Relu(x) | x",
        "pattern line 1: the last line is where matching starts: it needs an operator in every alternative",
        "              ^",
    ),
    ("y = sum(x)", "pattern line 1: sum needs two operands, or one with '...'", "    ^^^"),
    ("y = sum()", "pattern line 1: sum needs two operands, or one with '...'", "    ^^^"),
    ("y = sum(x?, z)", "pattern line 1: an operand of sum cannot be missing: write 'x' or 'rest...'", "        ^"),
    ("y = sum(x..., z)", "pattern line 1: 'x...' stands for all remaining operands and must be the last", "        ^"),
    (
        "y = Concat(x..., z)<axis=1>",
        "pattern line 1: 'x...' stands for all remaining inputs and must be the last",
        "           ^",
    ),
    ("d = x | z...\ny = Relu(d)", "pattern line 1: 'z...' stands only in an argument list", "        ^"),
    ("d = x? | Neg(x)\ny = Relu(d)", "pattern line 1: only an argument can be missing: write 'x'", "    ^"),
    ("y = Addd|Sub(x, z)", "pattern line 1: nothing else names a tensor 'Addd' (did you mean 'Add'?)", "    ^^^^"),
    ("y = Add|Subb(x, z)", "pattern line 1: unknown operator 'Subb' (did you mean 'Sub'?)", "        ^^^^"),
    (
        "Add = Relu(x)\ny = Add|Sub(x, Add)",
        "pattern line 2: 'Add' is an operator here and a tensor elsewhere: rename the tensor",
        "    ^^^",
    ),
    ("d = Relu | Neg\ny = Neg(d)", "pattern line 1: 'Relu' is an operator and needs arguments", "    ^^^^"),
    (
        "p... = Split(x)\ny = Concat(p)<axis=1>",
        "pattern line 2: 'p' stands for several tensors: write 'p...'",
        "           ^",
    ),
    (
        "y = Concat(x...)<axis=@x>",
        "pattern line 1: 'x' is both a tensor and an attribute: rename one",
        "                      ^^",
    ),
    ("a, b = sum(x, z)", "pattern line 1: only an operator has several, optional or variadic results", "^^^^"),
    (
        "y = ai.onnx.ml.Scalr(x)",
        "pattern line 1: unknown operator 'ai.onnx.ml.Scalr' (did you mean 'ai.onnx.ml.Scaler'?)",
        "    ^^^^^^^^^^^^^^^^",
    ),
    (
        "y = com.foo.Bar(x..., z)",
        "pattern line 1: 'x...' stands for all remaining inputs and must be the last",
        "                ^",
    ),
    ("b(x) = Relu(x)\nb = Neg(x)\ny = sum(b(x)...)", "pattern line 2: 'b' is defined twice", "^"),
    ('y = sum(x, "a")', "pattern line 1: a string is no operand of sum", "           ^^^"),
    ("y = Relu(x)<alpha=1>", "pattern line 1: Relu has no attribute 'alpha'", "            ^^^^^"),
    ("y = sum<axis=1>(x, z)", "pattern line 1: unknown operator 'sum' (did you mean 'Sum'?)", "    ^^^"),
]


@pytest.mark.parametrize(("text", "message", "carets"), PATTERN_ERRORS)
def test_pattern_errors(text: str, message: str, carets: str) -> None:
    with pytest.raises(RuleError) as caught:
        check(text, "unseen = Identity(x)")
    assert_shown(caught.value, text, message, carets)


PATTERN = """
    a, aux = Dropout(x)
    p... = Split(a)<axis=@axis>
    y = Concat(aux, k: const, p...)<axis=@axis>
"""

ALWAYS_WRONG = [
    ("z = Relu(x)", "rewrite line 1: 'z' is no result of the pattern, and no later line uses it", "^"),
    ("y = Relu(x)<alpha=2>", "rewrite line 1: Relu has no attribute 'alpha'", "            ^^^^^"),
    ("y = @x(x)", "rewrite line 1: 'x' is an input of the pattern: no operator defines it", "    ^^"),
    ("y = @axis(x)", "rewrite line 1: '@axis' is one attribute: write '<attribute=@axis>'", "    ^^^^^"),
    ("y = Relu(p)", "rewrite line 1: 'p' stands for several tensors: write 'p...'", "         ^"),
    ("y = Concat(p...)", "rewrite line 1: Concat needs the attribute 'axis'", "    ^^^^^^"),
    (
        "y = Concat(p...)<axis=@axis, axes=1>",
        "rewrite line 1: Concat has no attribute 'axes' (did you mean 'axis'?)",
        "                             ^^^^",
    ),
    ("y = Concat(x...)<axis=1>", "rewrite line 1: 'x' is one tensor: write it without '...'", "           ^"),
    ("y = b\nb = Relu(x)", "rewrite line 1: 'b' is used before the line that makes it", "    ^"),
    ("y = Relu(y)", "rewrite line 1: 'y' is used before the line that makes it", "         ^"),
    ("y = x\ny = a", "rewrite line 2: 'y' is made twice", "^"),
    ("x = Relu(a)\ny = x", "rewrite line 1: 'x' is an input of the pattern and cannot be made", "^"),
    ("b = Relu(x)\ny = a", "rewrite line 1: 'b' is no result of the pattern, and no later line uses it", "^"),
    ("y, b = a", "rewrite line 1: several results need an operator", "^^^^"),
    ("y, b, c = Dropout(x)", "rewrite line 1: Dropout has 2 results, not 3", "^^^^^^^"),
    ("y = Cast(x)", "rewrite line 1: Cast needs the attribute 'to'", "    ^^^^"),
    ("y = Relu(x)<alpha=@x>", "rewrite line 1: Relu has no attribute 'alpha'", "            ^^^^^"),
    ("a = x", "rewrite line 1: the rewrite does not make 'y'", "^"),
    ("y = p...", "rewrite line 1: 'p...' stands only in an argument list", "    ^"),
    ("y = Relux(x)", "rewrite line 1: unknown operator 'Relux' (did you mean 'Relu'?)", "    ^^^^^"),
    ("y = Relu(x)<\n  alpha=1>", "rewrite line 2: Relu has no attribute 'alpha'", "  ^^^^^"),
    (
        "y = Concat(p..., x)<axis=1>",
        "rewrite line 1: 'p...' stands for all remaining inputs and must be the last",
        "           ^",
    ),
    (
        "yy = Relu(x)",
        "rewrite line 1: 'yy' is no result of the pattern, and no later line uses it (did you mean 'y'?)",
        "^^",
    ),
    ("y = @a(x, x, x, x)", "rewrite line 1: Dropout takes 1 to 3 inputs, not 4", "    ^^"),
    ("y = Concat(p...)<axis=@p>", "rewrite line 1: 'p' is a tensor, not an attribute", "                      ^^"),
    ("y = @y(x)<axiss=1>", "rewrite line 1: Concat has no attribute 'axiss' (did you mean 'axis'?)", "          ^^^^^"),
]

WRONG_WITHOUT_FUNCTION = [
    ("y = Conv(x, w)<@c>", "rewrite line 1: the pattern has no operator 'c'", "               ^^"),
    ("y = Relu(z)", "rewrite line 1: the pattern has no tensor 'z'", "         ^"),
    (
        "y = Concat(p...)<axis=@axes>",
        "rewrite line 1: the pattern has no attribute 'axes' (did you mean 'axis'?)",
        "                      ^^^^^",
    ),
    (
        "y = Concat(axis)<axis=1>",
        "rewrite line 1: 'axis' is an attribute, not a tensor: write '<…=@axis>'",
        "           ^^^^",
    ),
    ("y = Relu(kk)", "rewrite line 1: the pattern has no tensor 'kk' (did you mean 'k'?)", "         ^^"),
]


@pytest.mark.parametrize(("text", "message", "carets"), ALWAYS_WRONG)
@pytest.mark.parametrize("has_function", [False, True])
def test_rewrite_errors(text: str, message: str, carets: str, has_function: bool) -> None:
    with pytest.raises(RuleError) as caught:
        check(PATTERN, text, has_function)
    assert_shown(caught.value, text, message, carets)


@pytest.mark.parametrize(("text", "message", "carets"), WRONG_WITHOUT_FUNCTION)
def test_what_only_a_function_can_give(text: str, message: str, carets: str) -> None:
    check(PATTERN, text, has_function=True)
    with pytest.raises(RuleError) as caught:
        check(PATTERN, text, has_function=False)
    assert_shown(caught.value, text, message, carets)


@pytest.mark.parametrize(
    "rewrite",
    [
        "y = x",
        "y = 0.5",
        "y = Concat(aux, p...)<@y>",
        "y = Concat(aux, p...)<axis=@axis>",
        "y = @a(@y(p...)<@y>)",
        "t = Relu(x)\nu = Neg(t)\ny = Add(t, u)",
        "p = Split(x)<axis=@axis>\ny = Concat(p...)<@y>",  # an inner result made anew: as many as were found
        't, "" = Dropout(x)\ny = Relu(t)',
        "y = com.microsoft.Anything(x)<whatever=1>",
        "y = Clip(x, , k)",
    ],
)
def test_accepted_rewrites(rewrite: str) -> None:
    check(PATTERN, rewrite, has_function=False)


def test_names_of_a_leaf_come_through_the_function() -> None:
    pattern = "b(x) = Conv(x, w)<group=@g> | x\ny = sum(b(x)...)"
    check(pattern, "y = Conv(x, w)<group=@g>", has_function=True)
    with pytest.raises(RuleError) as caught:
        check(pattern, "y = Conv(x, w)", has_function=False)
    message = "rewrite line 1: 'w' belongs to one leaf of template 'b': only a function can give it"
    assert_shown(caught.value, "y = Conv(x, w)", message, "            ^")
    with pytest.raises(RuleError, match="'g' belongs to one leaf"):
        check(pattern, "y = Conv(x, x)<group=@g>", has_function=False)


def test_an_optional_result_need_not_be_made() -> None:
    check("y, mask? = Dropout(x)", "y = x", has_function=False)
    with pytest.raises(RuleError, match="does not make 'mask'"):
        check("y, mask = Dropout(x)", "y = x", has_function=False)


def test_sums_have_no_attributes_to_hand_on() -> None:
    with pytest.raises(RuleError, match="'y' is not defined by an operator, so '@y' has no meaning"):
        check("y = sum(x, z)", "y = Relu(x)<@y>")


def test_outcomes() -> None:
    check("y = Relu(x)", {"drop": "y = x", "keep": "y = Neg(x)"})
    with pytest.raises(RuleError, match=r"^rule: a rule with several outcomes needs a function that picks one$"):
        check("y = Relu(x)", {"drop": "y = x", "keep": "y = Neg(x)"}, has_function=False)
    with pytest.raises(RuleError, match=r"^rule: a rule needs a rewrite$"):
        check("y = Relu(x)", {})
    with pytest.raises(RuleError, match=r"^rule, rewrite 'keep' line 1: unknown operator 'Ng' \(did you mean 'Neg'"):
        check("y = Relu(x)", {"drop": "y = x", "keep": "y = Ng(x)"})


def test_a_pattern_without_text_has_errors_without_a_place() -> None:
    root = Definition((OutputName("y"),), Call((OpId("", "Relu"),), (NameRef("x"), NameRef("z"))))
    with pytest.raises(RuleError) as caught:
        check_rule("rule", Pattern((root,)), parse_rewrites("y = x", "rule"), False)
    assert str(caught.value) == "rule, pattern: Relu takes 1 input, not 2"
    assert caught.value.details == ""

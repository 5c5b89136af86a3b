"""Rules as text."""

from __future__ import annotations

from surgeon_passes import Rule
from surgeon_passes.report.catalogue import listing, markdown, opsets, section, show, summary

DOC = """Relu of Abs is Abs_|x|.

Algebra
    |x| >= 0

    so nothing is cut
Declines when
    never.

Example
    none
"""
PLAIN = Rule.from_text("drop_relu", "y = Relu(Abs(x))", "y = Abs(x)", exactness="exact", doc=DOC, source="a.b.signs")
TWO = Rule.from_text(
    "two_ways", "y = Relu(x)", {"one": "y = Abs(x)", "other": "y = x"}, lambda m: None, sets=("npu",), opset=(7, 12)
)


def test_a_line_a_rule() -> None:
    header, first, second = listing([PLAIN, TWO]).splitlines()
    assert header.split() == ["rule", "family", "exactness", "opset", "set"]
    assert first.split(maxsplit=5) == ["drop_relu", "signs", "exact", "1+", "user", "Relu of Abs is Abs_|x|."]
    assert second.split() == ["two_ways", "rounding", "7-12", "npu"]
    assert first.index("exact") == header.index("exactness")


def test_parts_of_a_docstring() -> None:
    assert (opsets(PLAIN), opsets(TWO)) == ("1+", "7-12")
    assert (summary(PLAIN), summary(TWO)) == ("Relu of Abs is Abs_|x|.", "")
    assert section(PLAIN, "Algebra") == "|x| >= 0\n\nso nothing is cut"
    assert section(PLAIN, "Declines when") == "never."
    assert section(TWO, "Algebra") == ""


def test_one_rule_whole() -> None:
    assert show(TWO) == (
        "two_ways: rounding, opset 7-12, set npu\n\nfrom this script\n\npattern\n    y = Relu(x)\n\n"
        "rewrite 'one'\n    y = Abs(x)\n\nrewrite 'other'\n    y = x"
    )
    assert show(PLAIN).endswith(DOC.rstrip())


def test_the_document_has_a_table_and_a_section_for_each() -> None:
    text = markdown([PLAIN, TWO])
    assert "## signs\n\n| rule | exactness | opset | set | |\n" in text
    assert r"| `drop_relu` | exact | 1+ | user | Relu of Abs is Abs\_\|x\|. |" in text
    assert "| `two_ways` | rounding | 7-12 | *npu* |  |" in text
    assert "### drop_relu\n\n```\ny = Relu(Abs(x))\n=>\ny = Abs(x)\n```\n\n*Algebra*\n\n\\|x\\| \\>= 0" in text
    assert "# one\ny = Abs(x)\n# other\ny = x\n```" in text

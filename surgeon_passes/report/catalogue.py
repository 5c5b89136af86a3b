"""Rules as text: one line each, one of them whole, and the document ``patterns/RULES.md``."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from itertools import groupby

from surgeon_passes.passes.rewrite import DEFAULT_SETS
from surgeon_passes.rules.printer import unparse, unparse_rewrite
from surgeon_passes.rules.rule import Rule

HEADER = ("rule", "family", "exactness", "opset", "set", "")
INTRODUCTION = """\
# Rules

Generated from the rules' own docstrings by `surgeon-passes rules list --markdown`: do not edit.
Families stand in the order in which their rules run. *exact* is bit-equal, *rounding* equal in real arithmetic,
*approximate* off unless asked for. Sets that are off by default are set in *italics*. `surgeon-passes rules show NAME`
adds the example, which a test runs.
"""


def listing(rules: Iterable[Rule]) -> str:
    """A line a rule: name, family, exactness, opsets, sets, and what it does."""
    rows = [
        HEADER,
        *((r.name, r.family, str(r.exactness.value), opsets(r), ", ".join(r.sets), summary(r)) for r in rules),
    ]
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEADER))]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def opsets(rule: Rule) -> str:
    """First and last opset: ``14+`` or ``7-12``."""
    first, last = rule.opset
    return f"{first}+" if last is None else f"{first}-{last}"


def summary(rule: Rule) -> str:
    """The first line of the docstring."""
    return rule.doc.strip().partition("\n")[0]


def show(rule: Rule) -> str:
    """Everything about a rule: options, pattern, rewrites and docstring."""
    grows = ", may grow" if rule.may_grow else ""
    head = f"{rule.name}: {rule.exactness.value}, opset {opsets(rule)}, set {', '.join(rule.sets)}{grows}"
    parts = [head, f"from {rule.source or 'this script'}", _indented("pattern", unparse(rule.pattern))]
    parts += [
        _indented(f"rewrite '{outcome}'" if outcome else "rewrite", unparse_rewrite(rewrite))
        for outcome, rewrite in rule.rewrites.items()
    ]
    return "\n\n".join([*parts, rule.doc]).rstrip()


def markdown(rules: Iterable[Rule]) -> str:
    """The document: a table of each family, then its rules with pattern, rewrite, *Algebra* and *Declines when*."""
    lines = [INTRODUCTION]
    for family, group in groupby(rules, key=lambda rule: rule.family):
        members = list(group)
        lines += [f"## {family}", "", "| rule | exactness | opset | set | |", "| --- | --- | --- | --- | --- |"]
        lines += [_row(rule) for rule in members]
        for rule in members:
            lines += ["", *_entry(rule)]
        lines.append("")
    return "\n".join(lines)


def _row(rule: Rule) -> str:
    sets = ", ".join(s if s in DEFAULT_SETS else f"*{s}*" for s in rule.sets)
    return f"| `{rule.name}` | {rule.exactness.value} | {opsets(rule)} | {sets} | {_escaped(summary(rule))} |"


def _entry(rule: Rule) -> list[str]:
    rewrites = [f"# {o}\n{unparse_rewrite(r)}" if o else unparse_rewrite(r) for o, r in rule.rewrites.items()]
    text = [f"### {rule.name}", "", "```", unparse(rule.pattern), "=>", *rewrites, "```"]
    for title in ("Algebra", "Declines when"):
        found = section(rule, title)
        if found:
            text += ["", f"*{title}*", "", *_escaped(found).splitlines()]
    return text


def section(rule: Rule, title: str) -> str:
    """The text under a title of the docstring, dedented; empty where there is none."""
    found = re.search(rf"^{title}\n((?:[ \t]+.*\n?|\n)+)", rule.doc, re.MULTILINE)
    return textwrap.dedent(found[1]).strip() if found else ""


def _indented(title: str, text: str) -> str:
    return f"{title}\n{textwrap.indent(text, '    ')}"


def _escaped(text: str) -> str:
    """Text in which Markdown sees no markup."""
    return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", text)

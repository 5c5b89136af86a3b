"""``surgeon-passes rules``: the rules at hand."""

from __future__ import annotations

from pathlib import Path

import surgeon_passes as sp
from surgeon_passes import patterns
from tests.cli.conftest import Call

OWN = '''
from surgeon_passes import Replacement, rule

@rule(pattern="y = Neg(Neg(x))", rewrite="y = x", exactness="exact", opset=(6, 12), sets=("mine",))
def drop_double_negation(m):
    """Neg of Neg goes.

    Algebra
        -(-x) = x
    """
    return Replacement()
'''


def test_list_has_a_line_for_each_rule_in_order(call: Call) -> None:
    outcome = call("rules", "list")
    assert outcome.code == 0
    header, *lines = outcome.out.splitlines()
    assert header.split() == ["rule", "family", "exactness", "opset", "set"]
    assert [line.split()[0] for line in lines] == [rule.name for rule in sp.Registry.installed()]
    families = list(dict.fromkeys(line.split()[1] for line in lines))
    assert families == [family for family in patterns.FAMILIES if family in families]


def test_list_says_what_each_rule_is(call: Call) -> None:
    (line,) = call("rules", "list", "fold_batch_norm_into_gemm").out.splitlines()[1:]
    rule = sp.Registry.installed().get("fold_batch_norm_into_gemm")
    assert rule is not None
    assert line.split()[:5] == ["fold_batch_norm_into_gemm", "batch_norm", "rounding", f"{rule.opset[0]}+", "fusion"]
    assert line.endswith(rule.doc.splitlines()[0])


def test_list_takes_sets_families_and_names(call: Call) -> None:
    lines = call("rules", "list", "reparam", "drop_zero_pad").out.splitlines()[1:]
    assert {line.split()[0] for line in lines} >= {"merge_parallel_branches", "drop_zero_pad"}
    assert {line.split()[1] for line in lines} <= {"pad", *patterns.FAMILIES} - {"elimination", "reshape", "cast"}


def test_list_suggests_a_name(call: Call) -> None:
    outcome = call("rules", "list", "drop_zero_pda")
    assert outcome.code == 2
    assert "no rule, set or family is called 'drop_zero_pda' (did you mean 'drop_zero_pad'?)" in outcome.err


def test_rules_of_a_file_are_listed_and_shown(call: Call, tmp_path: Path) -> None:
    (tmp_path / "negation.py").write_text(OWN)
    (line,) = call("rules", "list", "mine", "--rules", "negation.py").out.splitlines()[1:]
    assert line.split()[:5] == ["drop_double_negation", "negation", "exact", "6-12", "mine"]
    shown = call("rules", "show", "drop_double_negation", "--rules", "negation.py").out
    assert shown.startswith("drop_double_negation: exact, opset 6-12, set mine\n")
    assert "y = Neg(Neg(x))" in shown and "y = x" in shown and "-(-x) = x" in shown


def test_show_needs_a_rule(call: Call) -> None:
    outcome = call("rules", "show", "merge_clip")
    assert (outcome.code, outcome.out) == (2, "")
    assert "no rule is called 'merge_clip' (did you mean 'merge_clips'?)" in outcome.err

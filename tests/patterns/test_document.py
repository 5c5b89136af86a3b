"""RULES.md says what the rules say."""

from __future__ import annotations

from pathlib import Path

from surgeon_passes import patterns
from surgeon_passes.report.catalogue import markdown
from surgeon_passes.rules.registry import rules_of

DOCUMENT = Path(__file__).parents[2] / "patterns" / "RULES.md"


def test_the_document_is_fresh() -> None:
    fresh = markdown(rules_of(patterns))
    assert DOCUMENT.read_text() == fresh, "stale: in patterns/ run surgeon-passes rules list --markdown > RULES.md"

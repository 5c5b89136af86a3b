"""What can be known to be wrong with a rule when it is defined.

Only text, dataclasses and operator schemas are looked at; what a rule's function returns is held against the rewrite at
the first match.
"""

from __future__ import annotations

from collections.abc import Mapping

from surgeon_passes.errors import RuleError
from surgeon_passes.rules.check_pattern import PatternCheck
from surgeon_passes.rules.check_rewrite import RewriteCheck
from surgeon_passes.rules.pattern import Pattern, Rewrite
from surgeon_passes.rules.syntax import rewrite_part
from surgeon_passes.rules.tokens import Source


def check_rule(name: str, pattern: Pattern, rewrites: Mapping[str, Rewrite], has_function: bool) -> None:
    """Check a rule's pattern, then its rewrites against it.

    ``has_function``: a name or ``@attr`` of a rewrite that the pattern does not bind may come from the rule's function.

    Raises:
        RuleError: the first thing that is wrong, with the line and a caret under it.
    """
    source = Source(name, "pattern", pattern.text)
    bound = PatternCheck(source, pattern).run()
    if not rewrites:
        raise RuleError(f"{name}: a rule needs a rewrite")
    if len(rewrites) > 1 and not has_function:
        raise RuleError(f"{name}: a rule with several outcomes needs a function that picks one")
    for outcome, rewrite in rewrites.items():
        source = Source(name, rewrite_part(outcome), rewrite.text)
        RewriteCheck(source, rewrite, bound, has_function).run()

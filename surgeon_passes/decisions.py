"""What was decided at each place a rule looked at, and why: what the report is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surgeon_passes.traces import Trace

APPLIED, DECLINED, UNDONE, CONFLICT = "applied", "declined", "undone", "conflict"
VERIFIED, REFUTED, UNVERIFIED = "verified", "refuted", "unverified"


@dataclass
class Decision:
    """One match, or one near-match.

    ``graph``: path of the scope ("" is the main graph). ``status``: applied, declined, undone, conflict.
    ``verdict``: verified, refuted, unverified, or "" where nothing was checked. ``nodes`` are the labels of the nodes that
    matched; ``pattern_line`` the line at which a near-match stopped. ``metrics``: numbers before and after, error, seconds.
    ``step`` names the pass that made it; ``trace`` is what went and came, of rewrites that were made.
    """

    rule: str
    graph: str
    root: str
    status: str
    verdict: str = ""
    reason: str = ""
    nodes: tuple[str, ...] = ()
    pattern_line: int | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    step: str = ""
    trace: Trace | None = field(default=None, repr=False)

"""Methods on graphsurgeon's Graph: ``import surgeon_passes.gs``, then ``graph.rewrite("fusion", "reparam")``."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_graphsurgeon as gs

from surgeon_passes.passes import Cleanup, Rewrite, Verify
from surgeon_passes.pipeline import Pipeline
from surgeon_passes.result import Result
from surgeon_passes.rules.rule import Rule
from surgeon_passes.selection import Only


def rewrite(
    self: gs.Graph,
    *sets: str | Rule,
    skip: Iterable[str] = (),
    keep: Iterable[str] = (),
    only: Only | str | None = None,
    verify: Verify | str | None = None,
) -> Result:
    """Apply rules, or sets of them, to this graph; it holds the result afterwards. Raises SurgeonError."""
    return Pipeline(Rewrite(*sets), Cleanup()).run(self, verify=verify, skip=skip, keep=keep, only=only)


def optimize(self: gs.Graph, verify: Verify | str | None = None) -> Result:
    """The default pipeline on this graph; it holds the result afterwards. Raises SurgeonError."""
    return Pipeline().run(self, verify=verify)


for _method in (rewrite, optimize):
    gs.Graph.register()(_method)

__all__ = ["optimize", "rewrite"]

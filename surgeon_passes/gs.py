"""Methods on graphsurgeon's Graph: ``import surgeon_passes.gs``, then ``graph.rewrite("fusion", "reparam")``."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_graphsurgeon as gs

from surgeon_passes.passes import Cleanup, Fold, Rewrite, Verify
from surgeon_passes.pipeline import Pipeline
from surgeon_passes.result import Result
from surgeon_passes.rules.rule import Rule


def rewrite(self: gs.Graph, *sets: str | Rule, skip: Iterable[str] = (), verify: Verify | str | None = None) -> Result:
    """Apply rules, or sets of them, to this graph; it holds the result afterwards. Raises SurgeonError."""
    return Pipeline(Rewrite(*sets, skip=skip), Cleanup()).run(self, verify=verify)


def optimize(self: gs.Graph, verify: Verify | str | None = None) -> Result:
    """The default pipeline on this graph; it holds the result afterwards. Raises SurgeonError."""
    return Pipeline(Fold(), Rewrite(), Cleanup()).run(self, verify=verify)


for _method in (rewrite, optimize):
    gs.Graph.register()(_method)

__all__ = ["optimize", "rewrite"]

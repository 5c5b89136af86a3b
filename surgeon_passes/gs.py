"""Methods on graphsurgeon's Graph: ``import surgeon_passes.gs``, then ``graph.rewrite("fusion", "reparam")``.

Each changes the graph in place; Graph, Node and Tensor objects that survive stay the same objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import onnx_graphsurgeon as gs

from surgeon_passes.model import export_light
from surgeon_passes.model.graphs import model_of_graph
from surgeon_passes.passes import Cleanup, Fold, Rewrite, Specialize, Verify
from surgeon_passes.passes.specialize import Shape
from surgeon_passes.pipeline import Pipeline, Source, load
from surgeon_passes.result import Result
from surgeon_passes.rules.rule import Rule
from surgeon_passes.run import with_references
from surgeon_passes.selection import Only

if TYPE_CHECKING:
    from surgeon_passes.verify import EndCheck


def rewrite(
    self: gs.Graph,
    *sets: str | Rule,
    skip: Iterable[str] = (),
    keep: Iterable[str] = (),
    only: Only | str | None = None,
    verify: Verify | str | None = None,
) -> Result:
    """Apply rules, or sets of them, to this graph. Raises SurgeonError."""
    return Pipeline(Rewrite(*sets), Cleanup()).run(self, verify=verify, skip=skip, keep=keep, only=only)


def fold(self: gs.Graph, max_bytes: int | str = "1MiB", verify: Verify | str | None = None) -> Result:
    """Constant expressions and known sizes become initializers, known Ifs a branch. Raises SurgeonError."""
    return Pipeline(Fold(max_bytes), Cleanup()).run(self, verify=verify)


def specialize(self: gs.Graph, shapes: Mapping[str, Shape], verify: Verify | str | None = None) -> Result:
    """Give inputs fixed sizes: ``{"images": [1, 3, 64, 64]}`` or ``{"images": {"N": 1}}``. Raises SurgeonError."""
    return Pipeline(Specialize(shapes)).run(self, verify=verify)


def optimize(self: gs.Graph, verify: Verify | str | None = None) -> Result:
    """The default pipeline on this graph. Raises SurgeonError."""
    return Pipeline().run(self, verify=verify)


def verify_against(self: gs.Graph, model: Source, data: object = None, seed: int = 0) -> EndCheck:
    """Run ``model`` and this graph once on the same inputs: whether they are ``equal``, and where not, by how much.

    ``data`` are real inputs as :class:`Verify` takes them; made-up ones fit the dims of both. Neither is changed. Raises
    SurgeonError for a model that cannot be read.
    """
    from surgeon_passes.verify import compare_models, load_data

    source = load(model)
    proto, weights = (source.proto, source.weights) if source.proto is not None else export_light(source)
    light, held = export_light(model_of_graph(self))
    original, mine = (with_references(proto), weights), (with_references(light), held)
    shapes: dict[str, Any] = {str(t.name): list(t.shape) for t in self.inputs if t.shape is not None}
    return compare_models(original, mine, None if data is None else load_data(data, original), shapes, seed)


for _method in (rewrite, fold, specialize, optimize, verify_against):
    gs.Graph.register()(_method)

__all__ = ["fold", "optimize", "rewrite", "specialize", "verify_against"]

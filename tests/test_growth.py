"""What must hold however large a graph is; times are measured in benchmarks/growth.py."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import onnx_graphsurgeon as gs
import pytest

import surgeon_passes as sp
from benchmarks.scale import KINDS, shuffled
from surgeon_passes.index import GraphIndex
from surgeon_passes.passes.rewrite import WIDE, _Sweeper


@pytest.fixture
def shallow() -> Iterator[None]:
    """Fewer frames than the graphs are deep."""
    held = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 150)
    yield
    sys.setrecursionlimit(held)


@pytest.mark.parametrize("kind", ["chain", "sum", "branches", "groups", "data"])
def test_nothing_recurses_over_the_graph(kind: str, request: pytest.FixtureRequest) -> None:
    model = KINDS[kind](600)
    for proto in (model, shuffled(model)):
        sp.optimize(KINDS[kind](20), verify="off")  # modules are imported at their first use
        request.getfixturevalue("shallow")
        assert sp.optimize(proto, verify="off").converged


def test_readers_of_a_wide_tensor_are_looked_at_a_few_times_each(monkeypatch: pytest.MonkeyPatch) -> None:
    visits: Counter[str] = Counter()
    looked_at = 0
    visit, readers = _Sweeper.visit, GraphIndex.readers

    def visited(self: Any, node: gs.Node, *rest: Any) -> Any:
        visits[node.name] += 1
        return visit(self, node, *rest)

    def read(self: GraphIndex, tensor: gs.Tensor) -> Iterator[gs.Node]:
        nonlocal looked_at
        for node in readers(self, tensor):
            looked_at += 1
            yield node

    monkeypatch.setattr(_Sweeper, "visit", visited)
    monkeypatch.setattr(GraphIndex, "readers", read)
    nodes = 20 * WIDE
    result = sp.optimize(KINDS["wide"](nodes), verify="off")
    assert result.before.operators["Identity"] > WIDE > result.after.operators["Identity"] == 0
    assert max(visits.values()) <= 10 and looked_at <= 10 * nodes

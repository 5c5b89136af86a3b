"""Records of runs that were not told to keep one: done again, and only where they go as before."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
import pytest

import surgeon_passes as sp
from surgeon_passes import demo
from tests.stages.test_stages import NETWORK, count_of


def without_clock(held: Any) -> Any:
    """A record without what two runs never share."""
    if isinstance(held, dict):
        return {k: without_clock(v) for k, v in held.items() if k not in ("created", "seconds")}
    return [without_clock(v) for v in held] if isinstance(held, list) else held


@pytest.mark.parametrize("isolate", [False, True])
def test_a_record_is_the_same_whenever_it_was_asked_for(isolate: bool) -> None:
    at_once, later = (sp.optimize(demo.build(), record=record, isolate=isolate) for record in (True, False))
    assert all(d.trace is not None for d in at_once.applied)
    assert all(d.trace is None for d in later.applied)
    assert without_clock(later.record()) == without_clock(at_once.record())
    assert any(match["region"] for match in later.record()["matches"])


def test_what_was_left_out_is_left_out_again() -> None:
    options = sp.Stages(count_of("Mul"), max_drop=0.5, latency=False)
    at_once, later = (sp.optimize(NETWORK, stages=options, record=record) for record in (True, False))
    assert without_clock(later.record()) == without_clock(at_once.record())


def test_a_graph_of_graphsurgeon_is_done_again_from_what_it_was() -> None:
    graph = gs.import_onnx(demo.build())
    result = sp.optimize(graph)
    assert len(graph.nodes) == result.after.nodes
    assert any(match["region"] for match in result.record()["matches"])
    assert len(graph.nodes) == result.after.nodes


def test_a_run_that_goes_otherwise_is_told() -> None:
    random = np.random.default_rng(0)

    def some(m: sp.Match) -> sp.Replacement:
        if random.random() < 0.5 or random.random() < 0.5:
            raise sp.Decline("not today")
        return sp.Replacement()

    fickle = sp.Rule.from_text("fickle", "y = Mul(x, 2)", "y = Add(x, x)", some)
    for _ in range(20):
        result = sp.Pipeline(sp.Rewrite.of(sets=(fickle,))).run(NETWORK, registry=sp.Registry())
        try:
            result.record()
        except sp.UsageError as error:
            assert "done again the run went otherwise; give record=True from the start" in str(error)
            return
    pytest.fail("twenty pairs of runs went alike")

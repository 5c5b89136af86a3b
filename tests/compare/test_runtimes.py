"""Two sides in two runtimes; others plug in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

import surgeon_passes as sp
from surgeon_passes.compare import Runner, runtimes, whole
from surgeon_passes.compare.runtimes import GROUP, runtime
from surgeon_passes.model import Weights
from tests.models import floats, model

TEXT = "g (float[N,4] x) => (float[N,4] y) { h = MatMul(x, w)\n r = Relu(h)\n y = Softmax(r) }"


def net() -> ModelProto:
    return model(TEXT, w=floats(4, 4))


@pytest.mark.parametrize("name", ["ort:basic", "ort:extended", "ort:all", "ort", "reference"])
def test_every_runtime_gives_the_same(name: str) -> None:
    found = sp.compare(net(), net(), b_runtime=name)
    assert (found.exit_code, len(found.pairs), found.runtimes) == (0, 3, ("ort:off", name))


def test_the_reference_reads_nodes_in_any_order() -> None:
    mixed = net()
    nodes = list(mixed.graph.node)[::-1]
    del mixed.graph.node[:]
    mixed.graph.node.extend(nodes)
    assert sp.compare(net(), mixed, a_runtime="reference", b_runtime="reference").exit_code == 0


class Doubling:
    """Gives twice what onnx.reference gives for MatMul's output ``h``, and for nothing else."""

    def __init__(self, options: str) -> None:
        self.factor = float(options or 2)

    def open(self, model: ModelProto, weights: Weights) -> Runner:
        inner, factor = runtimes.Reference().open(whole(model, weights), weights), self.factor

        class Doubled:
            def run(self, feeds: Mapping[str, Any], outputs: Iterable[str] | None = None) -> dict[str, Any]:
                found = inner.run(feeds, outputs)
                return {n: x * np.float32(factor) if n.startswith("h") else x for n, x in found.items()}

        return Doubled()


def entries(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    offered = [EntryPoint(name, value, GROUP) for name, value in values.items()]
    monkeypatch.setattr(runtimes, "entry_points", lambda group: offered if group == GROUP else [])


def test_a_plugin_is_found_and_given_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    entries(monkeypatch, doubling=f"{__name__}:Doubling")
    found = sp.compare(net(), net(), b_runtime="doubling:1.5")
    first = found.first
    assert first is not None and first.b == "h" and first.error == pytest.approx(0.5) and first.begins
    assert [p.b for p in found.drifting] == ["h"]  # what is computed from it in one run is as it was


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ort:fast", "'ort:fast': the level is one of off, basic, extended, all"),
        ("reference:1", "onnx.reference takes no options"),
        (
            "refrence",
            "no runtime is called 'refrence' (did you mean 'reference'?); there are broken, no_open, ort, ref",
        ),
        ("broken", "runtime 'broken' (nowhere:thing) cannot be loaded: No module named 'nowhere'"),
        ("no_open", "its entry point gives str, which has no method 'open'"),
        ("strict:many", "runtime 'strict:many' cannot be made: ValueError: could not convert"),
    ],
)
def test_wrong_runtimes_are_refused_in_one_line(name: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entries(monkeypatch, broken="nowhere:thing", no_open="builtins:str", strict=f"{__name__}:Doubling")
    with pytest.raises(sp.UsageError) as error:
        runtime(name)
    assert says in str(error.value) and "\n" not in str(error.value)

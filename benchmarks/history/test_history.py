"""Our own speed from commit to commit, by pytest-benchmark; ``benchmarks/README.md`` says how.

CPU seconds, so that a busy machine disturbs less; seconds where a process of its own is started.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import pytest

import surgeon_passes as sp
from benchmarks.scale import KINDS
from surgeon_passes import demo

NODES = 500
MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "demo": demo.build,
    **{kind: partial(KINDS[kind], NODES) for kind in ("chain", "repvgg", "soup", "names", "wide")},
}
NODES_LEFT = {"demo": 15, "chain": 250, "repvgg": 124, "soup": 210, "names": 250, "wide": 402}
"""What is fast must still be right."""


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("verify", ["strict", "off"])
def test_optimize(benchmark: Any, name: str, verify: str) -> None:
    model = MODELS[name]()
    sp.optimize(demo.build(), verify=verify)  # imports and rules are not what is measured
    result = benchmark(lambda: sp.optimize(model, verify=verify))
    assert result.exit_code == 0
    assert result.after.nodes == NODES_LEFT[name]


@pytest.mark.benchmark(timer=time.process_time)
def test_load_and_save(benchmark: Any, tmp_path: Path) -> None:
    """Without passes: reading, importing, exporting and writing alone."""
    onnx.save(KINDS["chain"](NODES), tmp_path / "chain.onnx")
    nothing = sp.Pipeline(sp.Cleanup())
    benchmark(lambda: nothing.run(tmp_path / "chain.onnx", verify="off").save(tmp_path / "saved.onnx"))
    assert len(onnx.load(tmp_path / "saved.onnx").graph.node) == NODES


@pytest.mark.parametrize("arguments", [("-c", "import surgeon_passes"), ("-m", "surgeon_passes", "--help")])
def test_start(benchmark: Any, arguments: tuple[str, ...]) -> None:
    benchmark(lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True))

"""The package logs; it prints nothing, and neither does what it stands on."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from .test_packaging import ROOT

PRINTING = {"print", "pprint"}
SPEAKERS = {"surgeon_passes/cli"}
"""Whose work it is to print."""

RUNS = """
import warnings
warnings.simplefilter("always")
import numpy as np
import onnx_graphsurgeon as gs
import onnx
import surgeon_passes as sp
import surgeon_passes.gs
from surgeon_passes import demo
from surgeon_passes.onnxsim import onnxsim_rewriter
from tests.models import model

net = demo.build()
onnx.save(net, "net.onnx")
"""
USES = {
    "optimize": "r = sp.optimize('net.onnx'); r.report(); r.save('out.onnx'); r.record(); r.measure_latency()",
    "graph": "g = gs.import_onnx(net); g.optimize(); g.verify_against(net); sp.optimize('net.onnx', isolate=True)",
    "compare": "sp.compare(net, sp.optimize(net).proto, a_runtime='ort:all', b_runtime='reference').report()",
    "explain": "sp.explain('net.onnx', rule='merge_parallel_branches'); list(sp.groups('net.onnx'))",
    "overflow": (
        "sp.optimize(model('g (float[N] x) => (float[N] y) { h = Mul(x, a)\\n y = Mul(h, a) }', a=np.float32(3e38)));"
        "sp.compare(*[model('g (double[N] x) => (double[N] y) { y = Mul(x, a) }', a=np.float64(1e300))] * 2);"
        "sp.compare(*[model('g (float[N] x) => (float[N] y) { h = Log(x)\\n y = Sqrt(h) }')] * 2).report(None);"
        "r = sp.optimize(model('g (float[N,4] x) => (float[A,B] y) { y = Reshape(x, s) }', s=np.array([7, 5]))); r.report()"
    ),
    "errors": """
for call in (lambda: sp.optimize("absent.onnx"), lambda: sp.optimize(net, {"image": [1, 3, 64, 64]}),
             lambda: sp.compare(net, model("g (float[2] x) => (float[2] y) { y = Relu(x) }"))):
    try:
        call()
    except sp.SurgeonError:
        pass
    else:
        raise AssertionError("it went through")
""",
}


@pytest.mark.parametrize("use", USES)
def test_nothing_is_printed(use: str, tmp_path: Path) -> None:
    """Looked at from outside the process: what C++ prints counts, too."""
    script = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{RUNS}\n{textwrap.dedent(USES[use])}"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_file_of_the_package_prints() -> None:
    """But for the commands; consoles of rich write to a text of their own."""
    found = []
    for folder in ("surgeon_passes", "patterns"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            if not place.startswith(tuple(SPEAKERS)):
                found += [f"{place}:{line}" for line in _speaking(path)]
    assert found == []


def _speaking(path: Path) -> list[int]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in PRINTING:
                found.append(node.lineno)
            if isinstance(called, ast.Attribute) and ast.unparse(called) in (
                "sys.stdout.write",
                "sys.stderr.write",
                "click.echo",
            ):
                found.append(node.lineno)
            if (
                isinstance(called, ast.Name)
                and called.id == "Console"
                and not any(k.arg == "file" for k in node.keywords)
            ):
                found.append(node.lineno)
    return found


def test_warnings_that_nobody_handles_go_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    """Without a handler Python would write them to stderr."""
    script = "import logging, surgeon_passes; logging.getLogger('surgeon_passes.engines').warning('lost')"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert any(isinstance(h, logging.NullHandler) for h in logging.getLogger("surgeon_passes").handlers)

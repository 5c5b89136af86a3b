"""The example of a package with rules: installed, found, applied and verified; its own tests pass."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent / "example" / "acme-rules"
RULES = ("fuse_acme_swish", "merge_scaled_branches", "fold_channel_scale")
USE = """
import json
import surgeon_passes as sp
from surgeon_passes.testing import model

proto = model('''g (float[N,1,H,W] x) => (float[N,2,H,W] y)
<float[2,1,1,1] w = {1, 2}, float[2,1,1] s = {2, 3}, float two = {2}> {
    a = Mul(x, two) b = Add(a, x)
    c = Conv(b, w) d = Mul(c, s)
    e = Sigmoid(d) y = Mul(d, e)
}''')
result = sp.Pipeline(sp.Rewrite("user"), sp.Cleanup()).run(proto)
print(json.dumps([[d.rule, d.verdict] for d in result.applied] + [result.exit_code, result.check.status]))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package is installed."""
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place), str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place


def run(site: Path, *command: str, cwd: Path | None = None) -> str:
    paths = [str(site), str(Path(__file__).parent.parent)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTEST_ADDOPTS": ""}
    done = subprocess.run([sys.executable, *command], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_rules_are_listed_with_the_others(site: Path) -> None:
    listed = run(site, "-m", "surgeon_passes", "rules", "list", "user").splitlines()
    assert all(any(line.startswith(name) for line in listed) for name in RULES)


def test_its_rules_pass_the_check(site: Path) -> None:
    out = run(site, "-m", "surgeon_passes", "rules", "check", *RULES, "--graphs", "30")
    assert [line for line in out.splitlines() if line.endswith(": ok")] == [f"{name}: ok" for name in RULES]
    assert "not compared" not in out and out.count("verification: verified") == len(RULES)


def test_its_rules_are_applied_and_verified(site: Path) -> None:
    *applied, code, status = json.loads(run(site, "-c", USE).splitlines()[-1])
    assert sorted(applied) == sorted([name, "verified"] for name in RULES)
    assert (code, status) == (0, "equal")


def test_its_own_tests_pass(site: Path, tmp_path: Path) -> None:
    place = EXAMPLE / "tests"
    out = run(site, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={place}", str(place), cwd=tmp_path)
    assert "8 passed" in out


def test_a_rule_is_at_most_fifteen_lines() -> None:
    for node in ast.parse((EXAMPLE / "acme_rules.py").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.decorator_list[0].lineno + 1 <= 15, node.name

"""Every command and snippet of the guides is run, in the order of its guide, in an empty folder."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .conftest import IN_CI, missing
from .test_packaging import KEPT_OUT, ROOT

GUIDES = ("README.md", "surgeon_passes/README.md", "patterns/README.md", "benchmarks/README.md")
EXTRAS = ("onnxsim",)
SETUP = ".venv/bin/"
KINDS = {"python", "sh", "text", "toml"}


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    line: int


def blocks(guide: str) -> list[Block]:
    """Fenced blocks of a guide."""
    text = (ROOT / guide).read_text()
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(m[1], m[2], text.count("\n", 0, m.start()) + 1) for m in found]


def setup_commands() -> list[str]:
    return [block.text.strip() for block in blocks("README.md") if SETUP in block.text]


def run_shell(text: str, folder: Path) -> None:
    scripts = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-euc", text], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{text}{done.stdout}{done.stderr}"


def run_python(block: Block, guide: str, folder: Path, names: dict[str, Any]) -> None:
    """Execute a block; one that begins with ``# name.py`` is written to that file, too."""
    title = re.match(r"# (\w+\.py)\n", block.text)
    if title:
        (folder / title[1]).write_text(block.text)
    exec(compile("\n" * block.line + block.text, str(ROOT / guide), "exec", dont_inherit=True), names)


def lacks_extra(block: Block) -> bool:
    return any(f"import {extra}" in block.text and importlib.util.find_spec(extra) is None for extra in EXTRAS)


@pytest.mark.parametrize("guide", GUIDES)
def test_snippets_run(guide: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as where Python is started in that folder
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    names: dict[str, Any] = {"__name__": "guide"}
    ran = 0
    for block in blocks(guide):
        assert block.kind in KINDS, f"{guide}:{block.line}: the block says no language"
        if block.kind == "python" and not lacks_extra(block):
            run_python(block, guide, tmp_path, names)
            ran += 1
        elif block.kind == "toml":
            tomllib.loads(block.text)
        elif block.kind == "sh" and SETUP not in block.text:
            run_shell(block.text, tmp_path)
            ran += 1
    assert ran


def test_the_snippet_about_onnxsim_runs_where_the_tests_decide() -> None:
    """The extra is part of what developers and CI install."""
    if IN_CI and importlib.util.find_spec("mypy"):
        assert importlib.util.find_spec("onnxsim")


@pytest.mark.parametrize("guide", GUIDES)
def test_links_lead_somewhere(guide: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)", (ROOT / guide).read_text()):
        assert ((ROOT / guide).parent / link).exists(), link


def test_two_commands_set_everything_up() -> None:
    first, second = setup_commands()
    assert first.endswith("surgeon-passes optimize")
    assert "pytest" in second


def test_ci_runs_the_command_that_runs_the_tests() -> None:
    """CI takes the command out of this README: exactly one line must be it."""
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    (wanted,) = re.findall(r"grep -m1 \"(.+)\" README.md", script.read_text())
    lines = [line for line in (ROOT / "README.md").read_text().splitlines() if re.search(wanted, line)]
    assert lines == [setup_commands()[1]]


def test_the_first_command_works_in_a_fresh_copy(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT, project, ignore=KEPT_OUT, symlinks=True)
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(
        ["bash", "-euc", setup_commands()[0]], cwd=project, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode and "No matching distribution" in done.stderr:
        missing("the dependencies cannot be downloaded")
    assert done.returncode == 0, done.stdout + done.stderr
    for line in ("the embedded model", "nodes  ", "verification  ", "end check           equal", "latency  "):
        assert line in done.stdout


def test_the_report_in_the_readme_is_what_is_printed() -> None:
    import surgeon_passes as sp
    from surgeon_passes import demo

    report = sp.optimize(demo.build()).report()
    (shown,) = (block.text for block in blocks("README.md") if block.kind == "text")
    for line in shown.splitlines():
        if line.startswith(("nodes", "verification", "checker")):
            assert line in report

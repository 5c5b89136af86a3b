"""Wheel, sdist and editable installs: one import package, with the built-in rules in it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import site
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from .conftest import missing

ROOT = Path(__file__).parent.parent
CONFIG: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
KEPT_OUT = shutil.ignore_patterns(".git", ".venv", "build", "*.egg-info", "__pycache__", ".*_cache", ".cache", "dist")
PROBE = """
import json, sys
from importlib.metadata import distribution, entry_points
import surgeon_passes, surgeon_passes.patterns
from surgeon_passes.rules.registry import Registry
files = distribution("surgeon-passes").files or []
print(json.dumps({
    "package": surgeon_passes.__file__,
    "patterns": surgeon_passes.patterns.__file__,
    "entry": [e.value for e in entry_points(group="surgeon_passes.rules")],
    "rules": [rule.name for rule in Registry.installed()],
}))
"""
USES = """
import surgeon_passes as sp
from surgeon_passes import patterns

result: sp.Result = sp.optimize("model.onnx", verify=sp.Verify(mode="strict"))
families: tuple[str, ...] = patterns.FAMILIES
wrong: int = result.report()
"""


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(c) for c in command], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def checked(*command: str | Path, cwd: Path) -> str:
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, as a checkout has it."""
    place = tmp_path_factory.mktemp("source") / "project"
    shutil.copytree(ROOT, place, ignore=KEPT_OUT, symlinks=True)
    return place


@pytest.fixture(scope="module")
def built(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel that is built from it."""
    place = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "--outdir", place, source, cwd=source)
    if done.returncode:
        if "No matching distribution" in done.stdout + done.stderr or "Temporary failure" in done.stderr:
            missing("the build's requirements cannot be downloaded")
        pytest.fail(done.stdout + done.stderr)
    return place


def skip_without_mypy() -> None:
    """The extra ``dev`` brings it, ``test`` does not."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")


class Environment:
    """A fresh virtual environment that finds this one's packages last, so that nothing need be downloaded."""

    def __init__(self, place: Path) -> None:
        self.place = place
        checked(sys.executable, "-m", "venv", place, cwd=Path.cwd())
        self.bin = place / ("Scripts" if os.name == "nt" else "bin")
        self.python = self.bin / "python"
        here = checked(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=place).strip()
        others = [
            p for p in (*site.getsitepackages(), *site.getusersitepackages().split(os.pathsep)) if Path(p).is_dir()
        ]
        plain = "".join(f"{p}\n" for p in others)
        Path(here, "zz_borrowed.pth").write_text(plain)

    def install(self, *arguments: str | Path, cwd: Path) -> None:
        done = run(self.python, "-m", "pip", "install", "--quiet", "--no-deps", *arguments, cwd=cwd)
        if done.returncode and "No matching distribution" in done.stderr:
            missing("the build's requirements cannot be downloaded")
        assert done.returncode == 0, done.stderr

    def probe(self, cwd: Path) -> dict[str, Any]:
        return dict(json.loads(checked(self.python, "-c", PROBE, cwd=cwd)))


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "environment")


def families() -> list[str]:
    return sorted(p.name for p in (ROOT / "patterns").glob("*.py"))


def test_every_subpackage_is_listed() -> None:
    folders = {p.parent for p in (ROOT / "surgeon_passes").rglob("__init__.py") if "patterns" not in p.parts}
    found = {".".join(p.relative_to(ROOT).parts) for p in folders} | {"surgeon_passes.patterns"}
    assert set(CONFIG["tool"]["setuptools"]["packages"]) == found


def test_every_folder_with_modules_is_a_package() -> None:
    for module in (ROOT / "surgeon_passes").rglob("*.py"):
        assert (module.parent / "__init__.py").is_file(), module


def test_a_checkout_shows_the_rules_where_they_are_imported_from() -> None:
    link = ROOT / "surgeon_passes" / "patterns"
    assert link.is_symlink()
    assert os.readlink(link) == os.path.join("..", "patterns")


def test_dependencies_have_a_lower_bound_that_is_tested() -> None:
    lines = (ROOT / ".ci" / "oldest.txt").read_text().splitlines()
    oldest = dict(line.split("==") for line in lines if not line.startswith("#"))
    for requirement in CONFIG["project"]["dependencies"]:
        name, bound = requirement.split(">=")
        assert oldest[name] == bound or oldest[name].startswith(f"{bound}."), requirement


def test_wheel_holds_one_import_package(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names if not name.split("/")[0].endswith(".dist-info")}
    assert tops == {"surgeon_passes"}
    packed = sorted(
        n.removeprefix("surgeon_passes/patterns/") for n in names if n.startswith("surgeon_passes/patterns/")
    )
    assert packed == families()
    assert "surgeon_passes/py.typed" in names
    page = [p.relative_to(ROOT) for p in (ROOT / "surgeon_passes" / "report" / "html").glob("*.[!p]*") if p.is_file()]
    assert len(page) == 7 and set(map(str, page)) <= set(names)
    modules = {str(p.relative_to(ROOT)) for p in (ROOT / "surgeon_passes").rglob("*.py") if "patterns" not in p.parts}
    assert modules <= set(names)


def test_sdist_builds_what_the_checkout_builds(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "surgeon_passes/py.typed"} <= names
    assert {f"patterns/{name}" for name in families()} <= names
    assert not {name for name in names if name.startswith("surgeon_passes/patterns/")}


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_an_installed_archive_works(kind: str, built: Path, environment: Environment, tmp_path: Path) -> None:
    (archive,) = built.glob(kind)
    environment.install(archive, cwd=tmp_path)
    found = environment.probe(tmp_path)
    for name in ("package", "patterns"):
        assert Path(found[name]).is_relative_to(environment.place), found
    assert found["entry"].count("surgeon_passes.patterns") >= 1
    assert "fold_batch_norm_into_conv" in found["rules"]
    assert checked(environment.bin / "surgeon-passes", "--version", cwd=tmp_path).strip().endswith("0.1.0")
    optimised = checked(environment.bin / "surgeon-passes", "optimize", "--no-latency", cwd=tmp_path)
    assert "end check           equal" in optimised


@pytest.mark.parametrize("mode", ["lenient", "strict"])
def test_an_editable_install_works(mode: str, source: Path, environment: Environment, tmp_path: Path) -> None:
    """``strict`` is for type checkers: they read links, but do not run the import hook of a lenient install."""
    project = tmp_path / "project"
    shutil.copytree(source, project, symlinks=True)
    environment.install("-e", project, "--config-settings", f"editable_mode={mode}", cwd=tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    found = environment.probe(elsewhere)
    for name in ("package", "patterns"):
        assert Path(found[name]).is_relative_to(project), found
    assert "fold_batch_norm_into_conv" in found["rules"]
    if mode == "strict":
        skip_without_mypy()
        (elsewhere / "uses.py").write_text(USES)
        done = run(environment.python, "-m", "mypy", "--strict", "--cache-dir", os.devnull, "uses.py", cwd=elsewhere)
        assert done.stdout.count("error") == 2, done.stdout + done.stderr
        assert 'uses.py:7: error: Incompatible types in assignment (expression has type "str"' in done.stdout


def test_mypy_checks_the_rules_too() -> None:
    skip_without_mypy()
    done = run(sys.executable, "-m", "mypy", "--verbose", cwd=ROOT)
    assert done.returncode == 0, done.stdout
    assert "surgeon_passes.patterns.batch_norm" in done.stderr

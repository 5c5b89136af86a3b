"""Optimised models kept on disk: one folder a key, written whole or not at all, checked when it is read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from surgeon_passes.errors import ModelError

MODEL, RECORD = "model.onnx", "entry.json"
FORMAT = 1
ATTEMPTS = 8


def default_folder() -> Path:
    """``SURGEON_CACHE_DIR``, else ``surgeon-passes`` where the user's caches lie (``XDG_CACHE_HOME``, ``~/.cache``)."""
    named = os.environ.get("SURGEON_CACHE_DIR")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "surgeon-passes"


class Cache:
    """Several processes may use one folder: an entry appears at once, and what is damaged is made anew."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def find(self, key: str) -> Path | None:
        """The model of an entry; None where there is none, or where one of its files is not what was written."""
        place = self.folder / key
        try:
            record = json.loads((place / RECORD).read_text(encoding="utf-8"))
            files = dict(record["files"]) if record["format"] == FORMAT else {}
            if MODEL in files and all(_digest(place / name) == digest for name, digest in files.items()):
                return place / MODEL
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return None

    def put(self, key: str, write: Callable[[Path], None]) -> Path:
        """Make an entry: ``write`` is given the model's path, in a folder of its own. Where another process was faster its
        entry stands. Raises ModelError where the folder cannot be written."""
        place = self.folder / key
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(prefix=".", dir=self.folder))
        except OSError as error:
            raise ModelError(f"{self.folder}: the cache cannot be written ({error.strerror or error})") from None
        try:
            write(made / MODEL)
            files = {path.name: _digest(path) for path in sorted(made.iterdir())}
            (made / RECORD).write_text(json.dumps({"format": FORMAT, "files": files}), encoding="utf-8")
            self._move(made, place, key)
        except OSError as error:
            raise ModelError(f"{self.folder}: the cache cannot be written ({error.strerror or error})") from None
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return place / MODEL

    def _move(self, made: Path, place: Path, key: str) -> None:
        """Put a whole entry in its place; one that is there and good stands, one that is not is moved away."""
        for _ in range(ATTEMPTS):
            with contextlib.suppress(OSError):
                made.rename(place)
                return
            if self.find(key) is not None:
                return  # somebody else's
            away = Path(tempfile.mkdtemp(prefix=".", dir=self.folder))
            with contextlib.suppress(OSError):  # others mend it at the same time
                place.rename(away / "entry")
            shutil.rmtree(away, ignore_errors=True)
        made.rename(place)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

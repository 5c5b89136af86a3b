"""Which passes there are: what the entry-point group offers, the built-in ones too."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from surgeon_passes.errors import UsageError, did_you_mean
from surgeon_passes.passes.base import Pass

GROUP = "surgeon_passes.passes"


@cache
def pass_kinds() -> dict[str, type[Pass]]:
    """By name, the built-in ones first. Raises UsageError for what cannot be loaded, and for two of one name."""
    found: dict[str, type[Pass]] = {}
    sources: dict[str, str] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda e: (e.name != "builtin", e.name)):
        source = f"package {entry.dist.name if entry.dist is not None else entry.value}"
        for kind in _offered(entry, source):
            held = found.setdefault(kind.name, kind)
            if held is not kind:
                raise UsageError(
                    f"two passes are called '{kind.name}': one from {sources[kind.name]}, one from {source}; "
                    "uninstall one of them"
                )
            sources.setdefault(kind.name, source)
    return found


def find_pass(name: str) -> type[Pass]:
    """Raises UsageError for an unknown name."""
    kinds = pass_kinds()
    if name not in kinds:
        raise UsageError(f"no pass is called '{name}'{did_you_mean(name, kinds)} (passes: {', '.join(kinds)})")
    return kinds[name]


def _offered(entry: EntryPoint, source: str) -> list[type[Pass]]:
    """The passes behind an entry point: a class, or those that a module lists in PASSES."""
    where = f"{source}, entry point '{entry.name}'"
    try:
        loaded = entry.load()
    except Exception as error:
        raise UsageError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    kinds = list(getattr(loaded, "PASSES", ())) if isinstance(loaded, ModuleType) else [loaded]
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Pass)):
            raise UsageError(f"{where}: {kind!r} is no pass: derive it from surgeon_passes.Pass")
    if not kinds:
        raise UsageError(f"{where}: {entry.value} lists no passes; give it PASSES = (MyPass,)")
    return kinds

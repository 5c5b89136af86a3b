"""Where rules come from: entry points (the built-in ones too), Python files, scripts."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from surgeon_passes.errors import RuleError, UsageError
from surgeon_passes.operators import load_installed, register_all
from surgeon_passes.rules.rule import Rule
from surgeon_passes.watch import within

GROUP = "surgeon_passes.rules"


class Registry:
    """Rules by name. Two of one name are an error that names both sources."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._rules: dict[str, Rule] = {}
        self._sources: dict[str, str] = {}
        for rule in rules:
            self.add(rule)

    def add(self, rule: Rule, source: str = "") -> None:
        source = source or rule.source or "this script"
        held = self._rules.get(rule.name)
        if held is rule:
            return
        if held is not None:
            raise RuleError(
                f"two rules are called '{rule.name}': one from {self._sources[rule.name]}, one from {source}"
            )
        self._rules[rule.name] = rule
        self._sources[rule.name] = source

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules.values())

    def __len__(self) -> int:
        return len(self._rules)

    def get(self, name: str) -> Rule | None:
        return self._rules.get(name)

    def select(self, sets: Iterable[str]) -> list[Rule]:
        """Rules of any of these sets (or called by name), in the order in which they were registered."""
        wanted = set(sets)
        return [r for r in self if wanted & set(r.sets) or r.name in wanted]

    def known_sets(self) -> set[str]:
        return {s for r in self for s in r.sets}

    @classmethod
    def installed(cls) -> Registry:
        """Everything that the entry-point group offers, the built-in rules first."""
        registry = cls()
        for rule, source in _installed():
            registry.add(rule, source)
        return registry

    def add_path(self, path: str) -> list[Rule]:
        """Add the rules of a Python file, or of every .py file of a folder. Raises UsageError or RuleError."""
        added: list[Rule] = []
        place = Path(path)
        files = sorted(place.glob("*.py")) if place.is_dir() else [place]
        if not files or not all(f.is_file() for f in files):
            raise UsageError(f"{path}: no such rules file or folder")
        for file in files:
            module = _run(file)
            found = [replace(rule, file=str(file)) for rule in rules_of(module)]
            if not register_all(module, str(file)) and not found:
                raise RuleError(f"{file}: defines no rule; decorate a function with @surgeon_passes.rule")
            for rule in found:
                self.add(rule, str(file))
            added += found
        return added


def rules_of(module: ModuleType) -> Iterator[Rule]:
    """Rules that a module, or a package's modules, define, in the order of definition."""
    seen: set[int] = set()
    for part in (module, *_submodules(module)):
        for value in vars(part).values():
            if isinstance(value, Rule) and id(value) not in seen:
                seen.add(id(value))
                yield value


def _submodules(module: ModuleType) -> Iterator[ModuleType]:
    order = getattr(module, "FAMILIES", None)
    names = order if order is not None else [m.name for m in pkgutil.iter_modules(getattr(module, "__path__", []))]
    for name in names:
        yield importlib.import_module(f"{module.__name__}.{name}")


@cache
def _installed() -> tuple[tuple[Rule, str], ...]:
    """Rules and the packages that offer them. Kept: to look through what is installed takes longer than a small model."""
    load_installed()  # rules may speak of operators that packages offer
    found: list[tuple[Rule, str]] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda e: (e.name != "builtin", e.name)):
        package = f"package {_package(entry)}"
        found += [(rule, package) for rule in _offered(entry)]
    return tuple(found)


def _offered(entry: EntryPoint) -> list[Rule]:
    """Rules behind an entry point. Raises RuleError, naming the package, for one that cannot be loaded."""
    where = f"package {_package(entry)}, entry point '{entry.name}'"
    try:
        loaded = entry.load()
        if not isinstance(loaded, ModuleType):
            raise RuleError(f"{where}: {entry.value} is no module")
        return list(rules_of(loaded))
    except RuleError as error:
        raise RuleError(f"{where}: {error}", error.details) from error
    except Exception as error:
        raise RuleError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def _run(path: Path) -> ModuleType:
    name = f"surgeon_passes_rules_{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with within(str(path)):
            spec.loader.exec_module(module)
    except RuleError as error:
        raise RuleError(f"{path}: {error}", error.details) from error
    except (Exception, SystemExit) as error:
        raise RuleError(f"{path}: {type(error).__name__}: {error}") from error
    return module

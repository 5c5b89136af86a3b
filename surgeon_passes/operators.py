"""Custom operators: ``register(Operator(...))``, a rules file that holds one, or a package that offers some.

Packages use the entry-point group ``surgeon_passes.operators``: a module, all of whose Operators are registered.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from types import ModuleType

from surgeon_passes.errors import OperatorError
from surgeon_passes.ops.custom import Operator, find, register

GROUP = "surgeon_passes.operators"


@cache
def load_installed() -> None:
    """Register what packages offer, once a process. Raises OperatorError, naming the package."""
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        package = f"package {entry.dist.name if entry.dist is not None else entry.value}"
        try:
            loaded = entry.load()
        except Exception as error:
            raise OperatorError(f"{package}, entry point '{entry.name}' cannot be loaded: {error}") from error
        if not isinstance(loaded, ModuleType):
            raise OperatorError(f"{package}, entry point '{entry.name}': {entry.value} is no module")
        register_all(loaded, package)


def register_all(module: ModuleType, source: str) -> int:
    """Register the Operators that a module defines; gives how many."""
    found = {id(v): v for v in vars(module).values() if isinstance(v, Operator)}
    for operator in found.values():
        register(operator, source)
    return len(found)


__all__ = ["Operator", "OperatorError", "find", "register"]

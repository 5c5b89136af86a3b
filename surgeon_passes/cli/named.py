"""A function that the command line names."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from surgeon_passes.errors import UsageError


def function_of(name: str) -> Callable[..., Any]:
    """``"module:function"``, the module found as Python finds it, and in the working folder. Raises UsageError."""
    module, _, path = name.partition(":")
    if not module or not path:
        raise UsageError(f"'{name}' names no function; write module:function, as in metrics:accuracy")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, module.partition(".")[0]):
            raise UsageError(f"'{name}': {module} needs a module that is not there: {error.name}") from error
        raise UsageError(f"'{name}': there is no module {module} here, nor installed") from error
    except Exception as error:
        raise UsageError(f"'{name}': {module} fails: {type(error).__name__}: {error}") from error
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise UsageError(f"'{name}': {module} has no function {path}")
    return found  # type: ignore[no-any-return]

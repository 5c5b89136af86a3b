"""A pipeline as a TOML file: ``max_iterations``, and one table ``[[pass]]`` a pass, its ``name`` and its options."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import Any

from surgeon_passes.errors import UsageError, did_you_mean
from surgeon_passes.passes.base import Pass
from surgeon_passes.passes.describe import summary
from surgeon_passes.passes.text import as_options, make_pass

KEYS = ("max_iterations", "pass")


def dumps(passes: Iterable[Pass], max_iterations: int) -> str:
    """Raises UsageError for a pass that holds what no file can."""
    import tomlkit

    document = tomlkit.document()
    document["max_iterations"] = max_iterations
    tables = tomlkit.aot()
    for step in passes:
        table = tomlkit.table()
        table.add(tomlkit.comment(summary(type(step))))
        table["name"] = step.name
        for option, value in as_options(step).items():
            table[option] = _inline(value) if isinstance(value, dict) else value
        tables.append(table)
    document["pass"] = tables
    return tomlkit.dumps(document)


def _inline(values: dict[str, Any]) -> Any:
    import tomlkit

    table = tomlkit.inline_table()
    for name, value in values.items():
        table[name] = _inline(value) if isinstance(value, dict) else value
    return table


def loads(text: str, source: str) -> tuple[list[Pass], int | None]:
    """Passes in order, and max_iterations where the text says it. Raises UsageError, naming ``source``."""
    try:
        found = tomllib.loads(text)
        return _passes(found), _iterations(found)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise UsageError(f"{source}: not TOML: {error}") from None
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from error


def _passes(found: dict[str, Any]) -> list[Pass]:
    for key in found:
        if key not in KEYS:
            raise UsageError(f"a pipeline has no '{key}'{did_you_mean(key, KEYS)} (it has: {', '.join(KEYS)})")
    tables = found.get("pass")
    if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        raise UsageError('no pass: write a table [[pass]] with name = "fold" for each')
    return [_pass(number, dict(table)) for number, table in enumerate(tables, 1)]


def _pass(number: int, table: dict[str, Any]) -> Pass:
    name = table.pop("name", None)
    if not isinstance(name, str):
        raise UsageError(f'pass {number} has no name: write name = "fold" into its table')
    return make_pass(name, table)


def _iterations(found: dict[str, Any]) -> int | None:
    value = found.get("max_iterations")
    if value is not None and (type(value) is not int or value < 1):
        raise UsageError(f"max_iterations is {value!r}, not a whole number from 1 on")
    return value

"""Files against their JSON Schema, as far as the schemas of this package go: what is wrong first, in a line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

Schema = Mapping[str, Any]
_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "integer": lambda v: (isinstance(v, int) and not isinstance(v, bool)) or (isinstance(v, float) and v.is_integer()),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
}


@cache
def schema_of(package: str) -> dict[str, Any]:
    """The ``schema.json`` of a package."""
    return dict(json.loads((files(package) / "schema.json").read_text(encoding="utf-8")))


def problem(value: Any, schema: Schema, root: Schema | None = None) -> str:
    """The place and the reason of the first fault of ``value``; "" where it is what ``schema`` says."""
    found = next(_faults(value, schema, root if root is not None else schema, ""), None)
    return "" if found is None else f"{found[0].lstrip('.') or 'the whole'} {found[1]}"


def _faults(value: Any, schema: Schema, root: Schema, at: str) -> Iterator[tuple[str, str]]:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from _faults(value, root["$defs"][name], root, at)
    if "oneOf" in schema:
        fits = [part for part in schema["oneOf"] if next(_faults(value, part, root, at), None) is None]
        if len(fits) != 1:
            yield at, _one_of(value, schema["oneOf"], root, at)
    for reason in _plain(value, schema):
        yield at, reason
    if isinstance(value, dict):
        yield from _members(value, schema, root, at)
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from _faults(item, schema["items"], root, f"{at}[{number}]")


def _one_of(value: Any, parts: list[Schema], root: Schema, at: str) -> str:
    """Why no alternative fits: of an object or list, what the alternative for such things says."""
    for part in parts:
        inner = next((f for f in _faults(value, part, root, "") if f[0]), None)
        if inner is not None:
            return f"holds {inner[0].lstrip('.')}, which {inner[1]}"
    return f"is {_shown(value)}"


def _plain(value: Any, schema: Schema) -> Iterator[str]:
    kinds = schema.get("type", ())
    wanted = [kinds] if isinstance(kinds, str) else list(kinds)
    if wanted and not any(_TYPES[kind](value) for kind in wanted):
        yield f"is {_shown(value)}, not {' or '.join(wanted)}"
    if "const" in schema and value != schema["const"]:
        yield f"is {_shown(value)}, not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"is {_shown(value)}, not one of {', '.join(map(repr, schema['enum']))}"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"is {_shown(value)}, which does not fit {schema['pattern']}"
    if _TYPES["number"](value):
        if value < schema.get("minimum", value):
            yield f"is {value}, less than {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"is {value}, more than {schema['maximum']}"


def _members(value: dict[str, Any], schema: Schema, root: Schema, at: str) -> Iterator[tuple[str, str]]:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at}.{name}", "is missing"
    others = schema.get("additionalProperties", True)
    for name, item in value.items():
        if name in known:
            yield from _faults(item, known[name], root, f"{at}.{name}")
        elif others is False:
            yield f"{at}.{name}", "is no field of it"
        elif isinstance(others, Mapping):
            yield from _faults(item, others, root, f"{at}.{name}")


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a table" if isinstance(value, dict) else "a list"
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:39]}…"

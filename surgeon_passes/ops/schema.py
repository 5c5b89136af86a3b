"""Operators as onnx.defs declares them, cached: versions, attributes, arity."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import onnx
from onnx import defs

STANDARD = frozenset({"", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "ai.onnx.preview"})
"""Domains whose operators must exist at the model's opset."""

MICROSOFT = "com.microsoft"
"""ONNX Runtime's own operators: it has their schemas, onnx does not."""


def is_microsoft(domain: str) -> bool:
    """Whether a domain is one of ONNX Runtime's own."""
    return domain == MICROSOFT or domain.startswith(f"{MICROSOFT}.")


def domain_of(domain: str | None) -> str:
    """The domain with ``None`` and ``ai.onnx`` written as ""."""
    return "" if domain in (None, "ai.onnx") else str(domain)


def opsets_of(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Opsets by domain, ai.onnx as ""."""
    return {domain_of(entry.domain): entry.version for entry in imports}


class Custom(NamedTuple):
    """An operator that onnx does not know: ``facts`` is the Operator that says what there is to say."""

    schema: defs.OpSchema
    source: str
    facts: Any


_CUSTOM: dict[tuple[str, str], Custom] = {}
_FORGET: list[Callable[[], object]] = []


def forgotten_by(forget: Callable[[], object]) -> None:
    """Call ``forget`` when a custom operator becomes known: it clears what was concluded from what was known before."""
    _FORGET.append(forget)


def custom_schema(domain: str, op: str) -> Custom | None:
    return _CUSTOM.get((domain, op))


def all_custom() -> Mapping[tuple[str, str], Custom]:
    """What is known of custom operators, by domain and name."""
    return _CUSTOM


def add_custom(domain: str, op: str, entry: Custom) -> None:
    _CUSTOM[domain, op] = entry
    for forget in _FORGET:
        forget()


@lru_cache(maxsize=4096)
def schema(op: str, opset: int, domain: str = "") -> defs.OpSchema | None:
    """The schema in force at ``opset``; None for an operator that does not exist there."""
    try:
        return defs.get_schema(op, opset, domain)
    except defs.SchemaError:
        held = _CUSTOM.get((domain, op))
        return held.schema if held is not None else None


forgotten_by(schema.cache_clear)


@lru_cache(maxsize=1)
def _all_versions() -> dict[tuple[str, str], list[defs.OpSchema]]:
    found: dict[tuple[str, str], list[defs.OpSchema]] = {}
    for entry in defs.get_all_schemas_with_history():
        found.setdefault((entry.domain, entry.name), []).append(entry)
    return found


def versions(op: str, domain: str = "") -> list[defs.OpSchema]:
    """Every version of an operator; empty for an unknown one."""
    return _all_versions().get((domain, op), [])


def suggest(op: str, domain: str = "") -> str | None:
    """The operator whose name is closest to a misspelt one."""
    names = [name for known, name in _all_versions() if known == domain]
    close = difflib.get_close_matches(op, names, 1)
    return close[0] if close else None


@lru_cache(maxsize=4096)
def default_attributes(op: str, opset: int, domain: str = "") -> dict[str, Any]:
    """Defaults that the schema itself gives, as Python values (bytes decoded, lists as tuples)."""
    entry = schema(op, opset, domain)
    if entry is None:
        return {}
    found = {}
    for name, attribute in entry.attributes.items():
        if attribute.default_value.name:
            found[name] = plain(onnx.helper.get_attribute_value(attribute.default_value))
    return found


forgotten_by(default_attributes.cache_clear)


def plain(value: Any) -> Any:
    """An attribute's value in comparable form: bytes as str, sequences as tuples."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, (list, tuple)):
        return tuple(plain(v) for v in value)
    return value

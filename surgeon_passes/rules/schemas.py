"""What ONNX's operator schemas allow, over all versions: a rule's text is checked against this.

Over all versions, because old forms are normalised to the newest before a rule sees them, and a rule is written once
for all opsets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from surgeon_passes.rules.pattern import OpId

if TYPE_CHECKING:
    from onnx.defs import OpSchema

CHECKED_DOMAINS = frozenset({"", "ai.onnx.ml"})
"""Operators of other domains have no schema here, and are taken as they are written."""


@dataclass(frozen=True, slots=True)
class Signature:
    """How an operator may be written. Counts are the widest over all versions."""

    min_inputs: int
    max_inputs: int
    max_results: int
    variadic_inputs: bool
    variadic_results: bool
    attributes: frozenset[str]
    required: frozenset[str]
    """Attributes without which the newest version is invalid."""


@cache
def signatures() -> Mapping[OpId, Signature]:
    """Every operator of the checked domains. Imports onnx on the first call."""
    from onnx.defs import get_all_schemas_with_history

    versions: dict[OpId, list[OpSchema]] = defaultdict(list)
    for schema in get_all_schemas_with_history():
        if schema.domain in CHECKED_DOMAINS:
            versions[OpId(schema.domain, schema.name)].append(schema)
    return {op: _signature(schemas) for op, schemas in versions.items()}


def custom_signature(op: OpId) -> Signature | None:
    """Of a custom operator that somebody has told about."""
    from surgeon_passes.ops.schema import custom_schema

    known = custom_schema(op.domain, op.name)
    return _signature([known.schema]) if known is not None else None


def _signature(schemas: list[OpSchema]) -> Signature:
    newest = max(schemas, key=lambda schema: schema.since_version)
    return Signature(
        min_inputs=min(schema.min_input for schema in schemas),
        max_inputs=max(schema.max_input for schema in schemas),
        max_results=max(schema.max_output for schema in schemas),
        variadic_inputs=any(_variadic(schema.inputs) for schema in schemas),
        variadic_results=any(_variadic(schema.outputs) for schema in schemas),
        attributes=frozenset(name for schema in schemas for name in schema.attributes),
        required=frozenset(name for name, attribute in newest.attributes.items() if attribute.required),
    )


def _variadic(parameters: object) -> bool:
    from onnx.defs import OpSchema

    assert isinstance(parameters, (list, tuple))
    return bool(parameters) and parameters[-1].option == OpSchema.FormalParameterOption.Variadic


def op_id(dotted: str) -> OpId:
    """``com.microsoft.Gelu`` as an OpId; the standard domain has two spellings."""
    domain, _, name = dotted.rpartition(".")
    return OpId("" if domain == "ai.onnx" else domain, name)


def is_operator(dotted: str) -> bool:
    """Whether a word can only be an operator: a known one, or one with a domain."""
    return "." in dotted or OpId("", dotted) in signatures()

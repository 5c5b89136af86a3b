"""Operators as a rule writes them, held against their schemas: patterns and rewrites alike."""

from __future__ import annotations

from collections.abc import Mapping

from surgeon_passes.errors import did_you_mean
from surgeon_passes.rules.pattern import Literal, NameRef, OpId, Span, Template
from surgeon_passes.rules.schemas import CHECKED_DOMAINS, Signature, custom_signature, signatures
from surgeon_passes.rules.tokens import Source


def known_signature(source: Source, op: OpId, span: Span, templates: Mapping[str, Template]) -> Signature | None:
    """The operator's signature; None in a domain that has no schemas here."""
    if op.domain not in CHECKED_DOMAINS:
        return custom_signature(op)
    if op in signatures():
        return signatures()[op]
    span = source.find(str(op), span)
    if op.name in templates:
        raise source.error(f"'{op.name}' is a template: write '{op.name}(…)...', alone inside sum(…) or prod(…)", span)
    known = [str(other) for other in signatures()]
    raise source.error(f"unknown operator '{op}'{did_you_mean(str(op), [*known, *templates])}", span)


def check_attribute(source: Source, op: OpId, signature: Signature | None, name: str, span: Span) -> None:
    if signature is not None and name not in signature.attributes:
        raise source.error(f"{op} has no attribute '{name}'{did_you_mean(name, signature.attributes)}", span)


def check_inputs(source: Source, op: OpId, signature: Signature | None, args: tuple[object, ...], span: Span) -> None:
    """Count and kind of the inputs, and the places of '...'."""
    for arg in args[:-1]:
        if isinstance(arg, NameRef) and arg.variadic:
            raise source.error(f"'{arg.name}...' stands for all remaining inputs and must be the last", arg.span)
    if signature is None:
        return
    last = args[-1] if args else None
    if isinstance(last, NameRef) and last.variadic:
        if not signature.variadic_inputs:
            raise source.error(f"{op} is not variadic: '{last.name}...' has no place in it", last.span)
        return
    if not signature.min_inputs <= len(args) <= signature.max_inputs:
        raise source.error(f"{op} takes {_count(signature)}, not {len(args)}", source.find(str(op), span))
    for position, arg in enumerate(args[: signature.min_inputs], start=1):
        if isinstance(arg, Literal) and arg.value == "":
            raise source.error(f"input {position} of {op} cannot be missing", arg.span)


def _count(signature: Signature) -> str:
    low, high = signature.min_inputs, signature.max_inputs
    if signature.variadic_inputs:
        return f"{low} or more inputs"
    if low == high:
        return f"{low} input{'' if low == 1 else 's'}"
    return f"{low} {'or' if high == low + 1 else 'to'} {high} inputs"


def check_results(source: Source, op: OpId, count: int, variadic: str, span: Span) -> None:
    """``variadic``: the name of a result with '...', or ""."""
    signature = signatures().get(op) or custom_signature(op)
    if signature is None:
        return
    if count > signature.max_results:
        plural = "" if signature.max_results == 1 else "s"
        raise source.error(f"{op} has {signature.max_results} result{plural}, not {count}", span)
    if variadic and not signature.variadic_results:
        raise source.error(f"{op} has no variadic result: '{variadic}...' has no place here", span)


def check_variadic(source: Source, ref: NameRef, several: bool) -> None:
    if several and not ref.variadic:
        raise source.error(f"'{ref.name}' stands for several tensors: write '{ref.name}...'", ref.span)
    if ref.variadic and not several:
        raise source.error(f"'{ref.name}' is one tensor: write it without '...'", ref.span)

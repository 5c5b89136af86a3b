"""Rules with one mistake: in what their function computes, or in the text of their rewrite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from surgeon_passes.rules.match import Match, Operand
from surgeon_passes.rules.pattern import Attrs, Emit, Literal, NameRef, OpId, Rewrite, RewriteLine, RewriteValue
from surgeon_passes.rules.rule import Decline, Replacement, Rule

Change = Callable[[Any], Any]
"""Gives the value with a mistake in it, or the value itself where the mistake cannot be made there."""


# --- mistakes in values --------------------------------------------------------------------------------------------------


def _floats(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size > 0


def _integers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size > 0


def weak_element_negated(value: Any) -> Any:
    """The smallest of the elements, or channels, that are not 0."""
    if not _floats(value) or not value.any():
        return value
    made = np.array(value)
    flat = made.reshape(-1)
    at = np.argmin(np.where(flat == 0, np.inf, np.abs(flat)))
    flat[at] = -flat[at]
    return made


def slightly_scaled(value: Any) -> Any:
    return value * 1.001 if _floats(value) else value


def set_to_zero(value: Any) -> Any:
    return np.zeros_like(value) if _floats(value) else value


def rolled(value: Any) -> Any:
    return np.roll(value, 1) if (_floats(value) or _integers(value)) and value.size > 1 else value


def transposed(value: Any) -> Any:
    if not _floats(value) or value.ndim < 2 or value.shape[0] != value.shape[1]:
        return value
    return np.ascontiguousarray(np.swapaxes(value, 0, 1))


def first_off_by_one(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, np.integer)):
        return value + 1
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (int, np.integer)):
        return [value[0] + 1, *value[1:]]
    return _at(value, 0, 1) if _integers(value) else value


def last_off_by_one(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and len(value) > 1 and isinstance(value[-1], (int, np.integer)):
        return [*value[:-1], value[-1] - 1]
    return _at(value, -1, -1) if _integers(value) else value


def _at(array: Any, place: int, step: int) -> Any:
    made = np.array(array)
    made.reshape(-1)[place] += step
    return made


def doubled(value: Any) -> Any:
    """Of a number, such as epsilon."""
    return value * 2 if isinstance(value, (float, np.floating)) else value


def left_out(value: Any) -> Any:
    """Such as a bias."""
    return None if isinstance(value, np.ndarray) else value


VALUES: tuple[Change, ...] = (
    weak_element_negated,
    slightly_scaled,
    set_to_zero,
    rolled,
    transposed,
    first_off_by_one,
    last_off_by_one,
    doubled,
    left_out,
)


def with_value(rule: Rule, name: str, change: Change) -> Rule:
    """The rule, where its function gives ``name`` with a mistake."""

    def function(m: Match) -> Replacement:
        given = rule.function(m) if rule.function is not None else None
        if given is None or name not in given.values:
            raise Decline("another outcome")
        plain = _plain(given.values[name])
        wrong = change(plain)
        if wrong is plain:
            raise Decline("no place for that mistake")
        return Replacement(given.outcome, leave=given.leave, **{**given.values, name: wrong})

    return replace(rule, name=f"{rule.name}__{name}_{change.__name__}", function=function)


def _plain(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, Operand) and isinstance(value.value, np.ndarray) else value


# --- mistakes in the text ------------------------------------------------------------------------------------------------

OTHERS = {
    **{"Add": "Sub", "Sub": "Add", "Mul": "Add", "Div": "Mul", "Max": "Min", "Min": "Max"},
    **{
        "ReduceMean": "ReduceSum",
        "ReduceSum": "ReduceMean",
        "ReduceMax": "ReduceMin",
        "Relu": "Abs",
        "Sigmoid": "Tanh",
    },
    **{
        "MaxPool": "AveragePool",
        "Softmax": "LogSoftmax",
        "Exp": "Sigmoid",
        "Sqrt": "Abs",
        "Gelu": "Relu",
        "Tanh": "Sin",
    },
}


def swapped(value: RewriteValue) -> Iterator[RewriteValue]:
    if isinstance(value, Emit) and len(value.args) > 1 and value.args[0] != value.args[1]:
        first, second, *others = value.args
        yield replace(value, args=(second, first, *others))


def other_operator(value: RewriteValue) -> Iterator[RewriteValue]:
    if isinstance(value, Emit) and isinstance(value.op, OpId) and value.op.name in OTHERS:
        yield replace(value, op=OpId(value.op.domain, OTHERS[value.op.name]))


def negated(value: RewriteValue) -> Iterator[RewriteValue]:
    if isinstance(value, (Emit, NameRef)):
        yield Emit(OpId("", "Neg"), (value,))


def inverted(value: RewriteValue) -> Iterator[RewriteValue]:
    """Of truth values."""
    if isinstance(value, (Emit, NameRef)):
        yield value.args[0] if isinstance(value, Emit) and value.op == ("", "Not") else Emit(OpId("", "Not"), (value,))


def attributes_lost(value: RewriteValue) -> Iterator[RewriteValue]:
    if isinstance(value, Emit) and (value.attrs.base or value.attrs.items):
        yield replace(value, attrs=Attrs())


def operand_lost(value: RewriteValue) -> Iterator[RewriteValue]:
    if isinstance(value, Emit) and len(value.args) > 1:
        yield replace(value, args=value.args[:-1])


def other_literal(value: RewriteValue) -> Iterator[RewriteValue]:
    if not isinstance(value, Emit):
        return
    for at, arg in enumerate(value.args):
        if isinstance(arg, Literal) and not isinstance(arg.value, str):
            yield replace(value, args=(*value.args[:at], _literal(arg), *value.args[at + 1 :]))
    items = value.attrs.items
    for at, (name, held) in enumerate(items):
        if isinstance(held, Literal) and not isinstance(held.value, str):
            yield replace(
                value, attrs=replace(value.attrs, items=(*items[:at], (name, _literal(held)), *items[at + 1 :]))
            )


def _literal(held: Literal) -> Literal:
    value = held.value
    if isinstance(value, float):
        return replace(held, value=value * 1.01)
    if isinstance(value, int):
        return replace(held, value=value + 1)
    if isinstance(value, (list, tuple)) and value:
        return replace(held, value=(type(value))([value[0] + 1, *value[1:]]))
    return held


TEXTS: tuple[Callable[[RewriteValue], Iterator[RewriteValue]], ...] = (
    swapped,
    other_operator,
    negated,
    inverted,
    attributes_lost,
    operand_lost,
    other_literal,
)


def text_mutants(rule: Rule) -> Iterator[Rule]:
    """One mistake in one line of one outcome, or in a call inside of it."""
    for outcome, rewrite in rule.rewrites.items():
        for at, line in enumerate(rewrite.lines):
            for change in TEXTS:
                for number, value in enumerate(_somewhere(line.value, change)):
                    name = f"{rule.name}__{outcome}_{at}_{change.__name__}_{number}"
                    yield replace(rule, name=name, rewrites=_with_line(rule.rewrites, outcome, rewrite, at, value))


def _with_line(
    rewrites: Mapping[str, Rewrite], outcome: str, rewrite: Rewrite, at: int, value: RewriteValue
) -> Mapping[str, Rewrite]:
    line: RewriteLine = replace(rewrite.lines[at], value=value)
    lines = (*rewrite.lines[:at], line, *rewrite.lines[at + 1 :])
    return {**rewrites, outcome: replace(rewrite, lines=lines)}


def _somewhere(value: RewriteValue, change: Callable[[RewriteValue], Iterator[RewriteValue]]) -> Iterator[RewriteValue]:
    yield from change(value)
    if isinstance(value, Emit):
        for at, arg in enumerate(value.args):
            if isinstance(arg, Emit):
                for made in _somewhere(arg, change):
                    yield replace(value, args=(*value.args[:at], made, *value.args[at + 1 :]))


def value_mutants(rule: Rule, names: Iterable[str]) -> Iterator[Rule]:
    """One mistake in one of the values called so that the function gives."""
    for name in names:
        for change in VALUES:
            yield with_value(rule, name, change)

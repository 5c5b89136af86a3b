"""Passes as text, and back: ``fold{max_bytes=1MiB}`` on the command line, tables in a TOML file."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

from surgeon_passes.errors import UsageError, did_you_mean
from surgeon_passes.passes.base import OBJECTS, Pass
from surgeon_passes.passes.registry import find_pass
from surgeon_passes.passes.specialize import Shape, Specialize

_STEP = re.compile(r"\s*(?P<name>[^\s{},=]+)\s*(?:\{(?P<options>[^{}]*)\})?\s*(?P<end>,|$)")
_TRUTH = {"true": True, "false": False}


def parse_passes(text: str, shapes: Mapping[str, Shape] | None = None) -> list[Pass]:
    """``specialize,fold{max_bytes=1MiB},rewrite{sets=shape+fusion,skip=drop_cast}``; several values are joined by ``+``.

    ``shapes`` are what a bare ``specialize`` gives to inputs. Raises UsageError, with the text at which it stops.
    """
    found: list[Pass] = []
    place = 0
    while place < len(text) or not found:
        step = _STEP.match(text, place)
        if step is None or (step["end"] == "," and step.end() == len(text)):
            left = text[place:].strip() if step is None else ""
            where = f"at '{left}'" if left else "at the end"
            raise UsageError(f"pipeline '{text}': a pass is wanted {where}, as in fold or fold{{max_bytes=1MiB}}")
        found.append(_parsed(step["name"], step["options"], shapes))
        place = step.end()
    return found


def _parsed(name: str, options: str | None, shapes: Mapping[str, Shape] | None) -> Pass:
    given: dict[str, Any] = {}
    for part in filter(None, map(str.strip, (options or "").split(","))):
        option, equals, value = map(str.strip, part.partition("="))
        if not equals:
            raise UsageError(f"pass {name}: '{part}' is no option; write NAME=VALUE")
        if option in given:
            raise UsageError(f"pass {name}: option '{option}' is given twice")
        given[option] = value
    kind = find_pass(name)
    types = _types(kind)
    made = {option: _read(name, option, value, types.get(option, "")) for option, value in given.items()}
    if kind is Specialize and not made:
        made = {"shapes": dict(shapes or {})}
    return make_pass(name, made)


def _types(kind: type[Pass]) -> dict[str, Any]:
    """Types of the options that text can give, by name, as far as they can be told."""
    try:
        hints = get_type_hints(kind)
    except NameError:  # a name that only type checkers see
        hints = {}
    return {
        field.name: _without_none(hints.get(field.name))
        for field in dataclasses.fields(kind)
        if not field.metadata.get(OBJECTS)
    }


def _without_none(wanted: Any) -> Any:
    """``int`` of ``int | None``."""
    others = [part for part in getattr(wanted, "__args__", ()) if part is not type(None)]
    is_optional = type(None) in getattr(wanted, "__args__", ())
    return others[0] if is_optional and len(others) == 1 else wanted


def _read(name: str, option: str, text: str, wanted: Any) -> Any:
    """A value that was written as text, by the type of the option."""
    if wanted is bool:
        if text not in _TRUTH:
            raise UsageError(f"pass {name}: {option} is '{text}', not true or false")
        return _TRUTH[text]
    if wanted in (int, float):
        try:
            return wanted(text)
        except ValueError:
            raise UsageError(f"pass {name}: {option} is '{text}', not a number") from None
    if getattr(wanted, "__origin__", None) is tuple:
        parts = [part.strip() for part in text.split("+") if part.strip()]
        return [_read(name, option, part, wanted.__args__[0]) for part in parts]
    if option == "shapes":
        raise UsageError(f"pass {name}: shapes are given by -i, or in a pipeline file")
    return text


def make_pass(name: str, options: Mapping[str, Any]) -> Pass:
    """A pass by its name and options. Raises UsageError, naming the pass and its options, for one that it has not."""
    kind = find_pass(name)
    types = _types(kind)
    for option, value in options.items():
        if option not in types:
            has = ", ".join(types) or "none"
            raise UsageError(f"pass {name} has no option '{option}'{did_you_mean(option, types)} (its options: {has})")
        _check(name, option, value, types[option])
    try:
        return kind.of(**options)
    except (TypeError, ValueError) as error:
        raise UsageError(f"pass {name}: {error}") from error


def _check(name: str, option: str, value: Any, wanted: Any) -> None:
    """That a value has the type of its option, where that is a plain one."""
    is_tuple = getattr(wanted, "__origin__", None) is tuple
    if is_tuple and (isinstance(value, str) or not isinstance(value, Sequence)):
        raise UsageError(f"pass {name}: {option} is {value!r}, not a list")
    if getattr(wanted, "__origin__", None) is Mapping and not isinstance(value, Mapping):
        raise UsageError(f"pass {name}: {option} is {value!r}, not a table")
    if is_tuple:
        for item in value:
            _check(name, option, item, wanted.__args__[0])
    if wanted is float and type(value) not in (int, float):
        raise UsageError(f"pass {name}: {option} is {value!r}, not a number")
    if wanted in (bool, int, str) and type(value) is not wanted:
        raise UsageError(f"pass {name}: {option} is {value!r}, not {_WORDS[wanted]}")


_WORDS: dict[Any, str] = {bool: "true or false", int: "a whole number", str: "text"}


def as_options(step: Pass) -> dict[str, Any]:
    """The options of a pass as plain values. Raises UsageError for rules that are objects: a file can only name them."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(step):
        value = getattr(step, field.name)
        if field.metadata.get(OBJECTS):
            if value:
                names = ", ".join(item.name for item in value)
                raise UsageError(
                    f"{field.name} cannot be written to a file: name them in sets ({names}) and give --{field.name}"
                )
        elif value is not None:
            found[field.name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    """Raises UsageError for what TOML has no form for."""
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise UsageError(f"{dict(value)!r} cannot be written to a file: its names are no text")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if not isinstance(value, (str, int, float)):
        raise UsageError(f"{value!r} cannot be written to a file")
    return value

"""What a result depends on, as a key: the model's content, rules and passes by their source, options, and versions."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import hashlib
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from enum import Enum
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import onnx

from surgeon_passes.model.files import all_tensors
from surgeon_passes.model.weights import Weights
from surgeon_passes.ops.custom import Operator
from surgeon_passes.ops.schema import all_custom
from surgeon_passes.passes.base import Pass
from surgeon_passes.rules.pattern import emitted_operators
from surgeon_passes.rules.registry import Registry
from surgeon_passes.rules.rule import Rule

_VERSIONED = frozenset({"numpy", "onnx", "onnx_graphsurgeon", "onnxruntime", "surgeon_passes"})
PACKAGES = ("onnx", "onnx-graphsurgeon", "onnxruntime", "onnxruntime-gpu", "numpy", "onnxsim")


class NoKey(Exception):
    """Something has no source that could be read, or is no plain value: its change would go unnoticed."""


def of_model(proto: onnx.ModelProto, weights: Weights) -> str:
    """Of every byte of the model, external data included. Raises ModelError where some cannot be read."""
    found = hashlib.sha256(proto.SerializeToString(deterministic=True))
    for tensor in all_tensors(proto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            found.update(weights.raw(tensor).data)
    return found.hexdigest()


def of_run(
    passes: Iterable[Pass], registry: Registry, options: Mapping[str, Any], operators: Container[tuple[str, str]] = ()
) -> str:
    """Of everything else that decides what a run gives; ``operators`` are those of the model, by domain and name. Raises
    NoKey."""
    parts = [versions(), _own_source()]
    parts += [_plain(step) for step in passes]
    parts += [_plain(rule) for rule in registry]
    made = {tuple(op) for rule in registry for rewrite in rule.rewrites.values() for op in emitted_operators(rewrite)}
    known = [entry for key, entry in sorted(all_custom().items()) if key in operators or key in made]
    parts += [_of_operator(entry.facts) for entry in known]
    parts += [f"{name}={_plain(value)}" for name, value in sorted(options.items())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def of_data(data: object) -> str:
    """Of the files of inputs that are named; "" for none. Raises NoKey for a function."""
    if data is None:
        return ""
    if not isinstance(data, (str, os.PathLike)):
        raise NoKey("inputs come from a function")
    path = Path(data)
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    try:
        return " ".join(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    except OSError as error:
        raise NoKey(f"{path}: {error.strerror or error}") from None


def versions() -> str:
    """Of Python, the machine, and the packages that have a part in a result."""
    found = []
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return ", ".join([f"Python {platform.python_version()}", platform.machine(), *found])


@cache
def _own_source() -> str:
    """Of this package's source: a checkout changes without its version."""
    return _of_files(Path(__file__).parent)


def _of_files(folder: Path) -> str:
    found = hashlib.sha256()
    for place, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                path = Path(place) / name
                found.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()


def _plain(value: Any) -> str:
    """Text that is equal where values are. Raises NoKey."""
    if isinstance(value, Rule):
        return _of_rule(value)
    if isinstance(value, Pass):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return f"{type(value).__qualname__} {_of_source(type(value))} {_plain(fields)}"
    if isinstance(value, Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_plain(k)}: {_plain(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(map(_plain, value)) + ")"
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(map(_plain, value))) + "}"
    if isinstance(value, os.PathLike):
        return _plain(os.fspath(value))
    if value is None or isinstance(value, (str, int, float, bool)):
        return repr(value)
    raise NoKey(f"{value!r} has no source that tells when it changes")


def _of_rule(rule: Rule) -> str:
    fields = {f.name: getattr(rule, f.name) for f in dataclasses.fields(rule)}
    functions = [f for f in (fields.pop("function"), fields.pop("guard")) if f is not None]
    code = [f"{_of_source(f)} {_of_code(f)}" for f in functions]
    return " ".join([rule.name, repr(fields.pop("pattern")), repr(dict(fields.pop("rewrites"))), _plain(fields), *code])


def _of_operator(operator: Operator) -> str:
    fields = {f.name: getattr(operator, f.name) for f in dataclasses.fields(operator) if f.init}
    code = [_of_source(f) + _of_code(f) for f in (fields.pop("shape"), fields.pop("macs")) if f is not None]
    attributes = {k: v.__name__ if isinstance(v, type) else v for k, v in fields.pop("attributes").items()}
    return " ".join([_plain(fields), _plain(attributes), *code])


def _of_source(thing: Callable[..., Any] | type) -> str:
    """Of the file in which a function or class is written, and of those that it imports. Raises NoKey."""
    if getattr(thing, "__closure__", None):
        raise NoKey(f"{thing!r} holds values from around it")
    module = sys.modules.get(thing.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        raise NoKey(f"{thing!r} is written in no file")
    return " ".join(_of_module(m) for m in _with_imported(module))


def _with_imported(module: ModuleType) -> list[ModuleType]:
    """A module, those that it imports, and so on; what versions tell of is left out."""
    found: dict[str, ModuleType] = {}
    todo = [module]
    while todo:
        one = todo.pop()
        if one.__name__ in found or _is_versioned(one):
            continue
        found[one.__name__] = one
        todo += [inner for name in _imported(one) if (inner := sys.modules.get(name)) is not None]
    return [found[name] for name in sorted(found)]


def _imported(module: ModuleType) -> Iterator[str]:
    """Names of modules that a module's source imports; of ``from a import b`` both ``a`` and ``a.b`` may be one."""
    try:
        tree = ast.parse(Path(str(module.__file__)).read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise NoKey(f"{module.__name__}: its source cannot be read ({error})") from None
    package = module.__name__ if hasattr(module, "__path__") else module.__name__.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            name = importlib.util.resolve_name(base, package) if node.level else base
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)


def _is_versioned(module: ModuleType) -> bool:
    """Whether :func:`versions` and :func:`_own_source` tell of a module's changes, or nothing can."""
    top = module.__name__.partition(".")[0]
    return top in sys.stdlib_module_names or top in _VERSIONED or getattr(module, "__file__", None) is None


def _of_code(function: Callable[..., Any]) -> str:
    """Of what was loaded: the file may have changed since. Raises NoKey."""
    code = getattr(function, "__code__", None)
    if code is None:
        raise NoKey(f"{function!r} is no plain function")
    given = [_plain(function.__defaults__), _plain(function.__kwdefaults__)]
    return hashlib.sha256("\0".join([_code(code), *given]).encode()).hexdigest()


def _code(code: CodeType) -> str:
    """What a function does, as text: marshal's bytes change with who else holds its constants."""
    constants = [_code(c) if isinstance(c, CodeType) else _constant(c) for c in code.co_consts]
    return repr((code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, constants))


def _constant(value: Any) -> str:
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def _of_module(module: ModuleType) -> str:
    """Of its file as it is now; what has not changed since is not read again."""
    path = str(module.__file__)
    try:
        found = os.stat(path)
        return _of_file(path, found.st_ino, found.st_size, found.st_mtime_ns)
    except OSError as error:
        raise NoKey(f"{path}: {error.strerror or error}") from None


@lru_cache(maxsize=4096)
def _of_file(path: str, *_: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()

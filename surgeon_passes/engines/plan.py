"""What a session is made from, and the choice of the process that it lives in."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

from surgeon_passes.errors import UsageError

Array: TypeAlias = NDArray[Any]
Value: TypeAlias = Any
"""An ndarray, or a list of them where the type is a sequence."""


_libraries: ContextVar[tuple[str, ...]] = ContextVar("libraries", default=())


def libraries() -> tuple[str, ...]:
    """Those of the run, by path (see :func:`with_libraries`)."""
    return _libraries.get()


@dataclass(frozen=True, slots=True)
class External:
    """The values of an initializer; ``elem_type`` is the onnx type where numpy's own does not say it, else 0."""

    array: Array
    elem_type: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """``source``: a serialised model, or the path of one. ``level``: off, basic, extended or all."""

    source: bytes | str
    level: str = "off"
    threads: int = 1
    external: Mapping[str, External] = field(default_factory=dict)
    """initializers that the model declares without data"""
    fed: Mapping[str, Array] = field(default_factory=dict)
    """inputs that are the same in every run"""
    libraries: tuple[str, ...] = field(default_factory=libraries)
    """of custom operators, by path: those of the run (see :func:`with_libraries`)"""
    shapes_first: bool = False
    """whether a Shape runs as soon as it can, so that what it reads need not live on"""


@contextmanager
def with_libraries(paths: Sequence[str | os.PathLike[str]]) -> Iterator[None]:
    """Sessions that are made within know the custom operators of these libraries. Raises UsageError for one that is none."""
    found = []
    for path in (os.fspath(p) for p in paths):
        if not os.path.isfile(path):
            raise UsageError(f"--custom-ops {path}: no such file; give the shared library that registers the operators")
        found.append(os.path.abspath(path))
    token = _libraries.set((*_libraries.get(), *found))
    try:
        yield
    finally:
        _libraries.reset(token)


class Engine(Protocol):
    """A loaded model. ``inputs``: types and dims by name, fed ones included; ``outputs``: types by name."""

    inputs: dict[str, tuple[str, list[Any]]]
    outputs: dict[str, str]

    def run(self, names: Sequence[str], feeds: Mapping[str, Value]) -> list[Value]:
        """Values of the outputs called so. Raises RuntimeFailure."""


def open_engine(plan: Plan) -> Engine:
    """A loaded model, in the process that is asked for (see :func:`isolated`). Raises RuntimeFailure."""
    from surgeon_passes.engines.isolation import current

    isolation = current()
    if isolation is not None:
        return isolation.open(plan)
    from surgeon_passes.engines.local import LocalEngine

    return LocalEngine(plan)

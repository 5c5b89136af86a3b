"""How far a layer is off by itself: B's layer is fed A's activations, so that no drift from above comes with them.

B is cut at every pair: what stands between pairs is a layer. Its result on A's values is held against A's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import TypeProto, helper

from surgeon_passes.compare.noise import moved
from surgeon_passes.compare.prints import Print
from surgeon_passes.compare.stream import Stream, part, run_part
from surgeon_passes.errors import RuntimeFailure
from surgeon_passes.runtime import Array, Value

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Own:
    """Of one run: what the layer gives on A's values, and on these moved by one ulp."""

    value: Value
    moved: tuple[Value, ...] = ()


class Layers:
    """The layers of B between pairs. ``cuts``: B's tensors that are cut, and the tensors of A that stand for them."""

    def __init__(
        self,
        a: Stream,
        b: Stream,
        pairs: Mapping[str, str],
        prints_a: Mapping[str, Print],
        prints_b: Mapping[str, Print],
    ) -> None:
        self._a, self._b, self._prints_b = a, b, prints_b
        self.cuts = {y: x for y, x in pairs.items() if _is_fed(prints_a.get(x), prints_b.get(y))}

    def _types(self, run: int) -> dict[str, TypeProto]:
        """Of what is cut, with its sizes in one run: where they are open, ONNX Runtime refuses some that follow from them."""
        return {name: self._type(name, run) for name in self.cuts}

    def _type(self, name: str, run: int) -> TypeProto:
        known = self._b.side.types.get(name)
        elem = known.tensor_type.elem_type if known is not None else 0
        found = self._prints_b[name]
        if not elem:
            elem = helper.np_dtype_to_tensor_dtype(np.dtype(found.dtype))
        return helper.make_tensor_type_proto(elem, found.shapes[run])

    def nodes(self, *names: str) -> list[int]:
        """The nodes of B's layers that make ``names``, in order."""
        side, found = self._b.side, set[int]()
        todo = [side.maker[name] for name in names if name in side.maker]
        while todo:
            number = todo.pop()
            if number not in found:
                found.add(number)
                todo += [side.maker[n] for n in side.read[number] if n in side.maker and n not in self.cuts]
        return sorted(found)

    def is_random(self, name: str) -> bool:
        return not self._b.side.random.isdisjoint(self.nodes(name))

    def sources(self, names: Sequence[str]) -> list[str]:
        """Tensors of A whose values the layers of ``names`` are fed."""
        return list(dict.fromkeys(self.cuts[n] for n in self._read(names)))

    def _read(self, names: Sequence[str]) -> Iterator[str]:
        for number in self.nodes(*names):
            yield from (n for n in self._b.side.read[number] if n in self.cuts)

    def run(self, names: Sequence[str], values: Sequence[Mapping[str, Value]], moves: int = 0) -> dict[str, list[Own]]:
        """What the layers of ``names`` give on A's ``values`` (of each run, by A's names). Layers that cannot be run by
        themselves are left out: where several cannot be run at once, each half is tried."""
        asked = [n for n in names if n in self._b.side.maker]
        if not asked:
            return {}
        try:
            return self._run(asked, values, moves)
        except RuntimeFailure as failure:
            log.debug("layers %s cannot be run by themselves: %s", asked, failure)
            if failure.is_fatal or len(asked) == 1:
                return {}
        half = len(asked) // 2
        return {**self.run(asked[:half], values, moves), **self.run(asked[half:], values, moves)}

    def _run(self, names: Sequence[str], values: Sequence[Mapping[str, Value]], moves: int) -> dict[str, list[Own]]:
        found: dict[str, list[Own]] = {n: [] for n in names}
        for number, (held, given) in enumerate(zip(values, self._b.feeds, strict=True)):
            model = part(self._b.side, names, self._types(number))
            read = [value.name for value in model.graph.input]
            feeds = [self._fed(read, held, given, number, move) for move in range(-1, moves)]
            runs = run_part(self._b.runtime, self._b.side, model, feeds)
            for name, key in zip(names, (value.name for value in model.graph.output), strict=True):
                found[name].append(Own(runs[0][key], tuple(run[key] for run in runs[1:])))
        return found

    def _fed(
        self, read: Sequence[str], values: Mapping[str, Value], given: Mapping[str, Value], run: int, move: int
    ) -> dict[str, Value]:
        """``move`` from 0 on moves floats by one ulp, each its own way."""
        found = {n: self._cast(n, values[self.cuts[n]], run) if n in self.cuts else given[n] for n in read}
        return found if move < 0 else moved(found, move)

    def _cast(self, name: str, value: Array, run: int) -> Array:
        """A's value in the type and shape that B's has."""
        found = self._prints_b[name]
        value = value.reshape(found.shapes[run])
        return value if value.dtype.name == found.dtype else value.astype(np.dtype(found.dtype))


def _is_fed(a: Print | None, b: Print | None) -> bool:
    """Whether A's values can stand for B's: arrays of one size and kind."""
    return a is not None and b is not None and bool(a.key) and a.key == b.key

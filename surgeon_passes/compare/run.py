"""Two models, layer by layer: prints, pairs, then group by group errors, own drift and statistics."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from surgeon_passes.compare.comparison import DRIFT, EQUAL, NOISE, Compared, Comparison
from surgeon_passes.compare.feeds import fed_to, feeds_of
from surgeon_passes.compare.judge import TOLERANCE, Gap, explained, gap_of, in_shape_of
from surgeon_passes.compare.mapping import Told, told_by
from surgeon_passes.compare.noise import MOVES, perturbed_runs
from surgeon_passes.compare.own import Layers, Own
from surgeon_passes.compare.pairs import INPUT, Finder, Pair, Pairing, pair_inputs
from surgeon_passes.compare.prints import Print, print_of, take
from surgeon_passes.compare.runtimes import DEFAULT, runtime
from surgeon_passes.compare.side import Side
from surgeon_passes.compare.statistics import Summary, distance, is_number, summarize
from surgeon_passes.compare.stream import BUDGET, Stream, groups
from surgeon_passes.errors import UsageError
from surgeon_passes.memory import parse_bytes
from surgeon_passes.pipeline import Source
from surgeon_passes.runtime import Value

log = logging.getLogger(__name__)


def compare(
    a: Source,
    b: Source,
    *,
    data: Any = None,
    shapes: Mapping[str, Any] | None = None,
    record: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    tolerance: float = TOLERANCE,
    a_runtime: str = DEFAULT,
    b_runtime: str = DEFAULT,
    max_bytes: int | str = BUDGET,
) -> Comparison:
    """Hold ``b`` against ``a``, the reference, tensor by tensor of their main graphs.

    ``a`` and ``b`` are paths, ModelProtos or gs.Graphs with the same inputs. ``data`` are real inputs (an npz, a folder of
    npy, a callable), else some are made up, at ``shapes`` of A's inputs. ``record`` is the decision record, or its file, of
    the run that made B of A. ``tolerance`` bounds the error relative to a channel's scale. ``a_runtime`` and ``b_runtime``
    are ``ort:off``, ``ort:basic``, ``ort:extended``, ``ort:all``, ``reference`` or a plugin's name. ``max_bytes`` of
    activations are held at a time. Raises SurgeonError: ModelError for a file, UsageError for inputs, outputs or options
    that do not fit, RuntimeFailure where a model does not run.
    """
    if not tolerance > 0:
        raise UsageError(f"a tolerance of {tolerance:g}: it must be above 0")
    budget = parse_bytes(max_bytes, "max_bytes")
    runtimes = runtime(a_runtime), runtime(b_runtime)
    one, other = Side(a, "model a"), Side(b, "model b")
    inputs = pair_inputs(one, other)
    feeds = feeds_of(one, inputs, other, data, shapes or {})
    sides = (Stream(one, runtimes[0], feeds), Stream(other, runtimes[1], fed_to(other, inputs, feeds)))
    told = told_by(record)
    with np.errstate(all="ignore"):
        return _compared(_Run(sides, inputs, tolerance, budget, told), (a_runtime, b_runtime))


def _compared(run: _Run, runtimes: tuple[str, str]) -> Comparison:
    pairs = run.pairs()
    a, b = (stream.side for stream in run.sides)
    partners = {**run.inputs, **{p.a: p.b for p in pairs}}
    lost = [n for n in a.outputs if partners.get(n) not in b.outputs]
    if len(lost) == len(a.outputs):
        raise UsageError(
            f"the models have no output in common: {a.source} gives {', '.join(a.outputs)}, "
            f"{b.source} gives {', '.join(b.outputs)}"
        )
    return Comparison(
        (a.source, b.source),
        runtimes,
        run.tolerance,
        len(run.sides[0].feeds),
        run.compared(pairs),
        run.unpaired(pairs),
        lost,
    )


@dataclass(eq=False)
class _Run:
    """One comparison while it goes on."""

    sides: tuple[Stream, Stream]
    inputs: Mapping[str, str]
    tolerance: float
    budget: int
    told: Told = field(default_factory=Told)
    prints: list[dict[str, Print]] = field(default_factory=list)
    sizes: list[dict[str, int]] = field(default_factory=list)

    def pairs(self) -> list[Pair]:
        """In A's topological order."""
        for stream in self.sides:
            names = stream.side.observed
            sizes = stream.sizes([n for n in names if n in stream.side.maker])
            self.sizes.append(sizes)
            self.prints.append(take(stream, names, sizes, self.budget))
        a, b = self.sides[0].side, self.sides[1].side
        pairing = Finder(a, b, self.prints[0], self.prints[1], self._again).find(self.inputs, self.told.pairs)
        return [pairing.of_a[n] for n in a.observed if n in pairing.of_a and pairing.of_a[n].by != INPUT]

    def _again(self, pairing: Pairing, names: Sequence[str]) -> dict[str, Print]:
        """Prints of B's tensors where the pairs are fed A's activations."""
        layers = Layers(*self.sides, {p.b: p.a for p in pairing}, *self.prints)
        found: dict[str, Print] = {}
        for group in groups(names, self.sizes[1], self.budget // 2):
            mine = self.sides[0].values(layers.sources(group))
            made = layers.run(group, mine)
            found.update((name, print_of([own.value for own in owns])) for name, owns in made.items())
        return found

    def unpaired(self, pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
        mine, others = {p.a for p in pairs}, {p.b for p in pairs}
        a, b = self.sides[0].side, self.sides[1].side
        return [n for n in a.activations if n not in mine], [n for n in b.activations if n not in others]

    # --- measuring ---------------------------------------------------------------------------------------------------

    def compared(self, pairs: Sequence[Pair]) -> list[Compared]:
        cuts = {p.b: p.a for p in pairs} | {y: x for x, y in self.inputs.items()}
        layers = Layers(*self.sides, cuts, *self.prints)
        found: list[Compared] = []
        for group in self._groups(pairs):
            found += self._measured(group, layers)
            log.info("%d of %d tensors compared", len(found), len(pairs))
        begins = self._beginning([c for c in found if c.begins], layers)
        found = [replace(c, begins=c.b in begins) for c in found]
        return self._without_noise(found, self._below(begins))

    def _groups(self, pairs: Sequence[Pair], room: int = 1) -> Iterable[list[Pair]]:
        """With ``room`` times the room for A's values, B's, and those of B's layers on A's."""
        held = {p.a: p for p in pairs}
        sizes = {p.a: self.sizes[0][p.a] + 2 * self.sizes[1].get(p.b, 0) for p in pairs if p.a in self.sizes[0]}
        for names in groups(held, sizes, self.budget // room):
            yield [held[n] for n in names]

    def _measured(self, group: Sequence[Pair], layers: Layers) -> list[Compared]:
        names = [p.b for p in group]
        mine = self.sides[0].values(list(dict.fromkeys([*(p.a for p in group), *layers.sources(names)])))
        others = self.sides[1].values(names)
        owns = layers.run([n for n in names if not layers.is_random(n)], mine)
        return [self._one(p, [v[p.a] for v in mine], [v[p.b] for v in others], owns.get(p.b), layers) for p in group]

    def _one(self, p: Pair, a: list[Value], b: list[Value], own: list[Own] | None, layers: Layers) -> Compared:
        summaries = _summary(a), _summary(b)
        b = self._seen(p, a, b)
        gap = gap_of(a, b, self.tolerance)
        alone = None if own is None else gap_of(a, self._seen(p, a, [o.value for o in own]), self.tolerance)
        operator, layer = _layer(self.sides[1].side, p.b, layers)
        mine = self.sides[0].side
        numbers = all(isinstance(x, np.ndarray) for x in (*a, *b))
        return Compared(
            p.a,
            p.b,
            p.by,
            (mine.operator(p.a), operator),
            (mine.label(p.a), layer),
            summaries,
            distance(a, b) if numbers and all(map(is_number, (*a, *b))) else None,
            gap.error,
            None if alone is None else alone.error,
            DRIFT if gap.reason else EQUAL,
            bool(alone is not None and alone.reason),
            _reason(gap, alone),
            self.told.rules.get(p.a, ()),
        )

    def _seen(self, p: Pair, a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
        """``b`` in the shape of ``a`` where it holds as many elements: inside a model shapes are its own affair."""
        if p.a in self.sides[0].side.outputs:
            return list(b)
        return [in_shape_of(x, y) for x, y in zip(a, b, strict=True)]

    # --- what rounding explains --------------------------------------------------------------------------------------

    def _beginning(self, suspects: Sequence[Compared], layers: Layers) -> set[str]:
        """B's tensors whose layers are off by themselves, by more than rounding does."""
        found: set[str] = set()
        for group in self._groups([Pair(c.a, c.b, c.by) for c in suspects]):
            names = [p.b for p in group]
            mine = self.sides[0].values(list(dict.fromkeys([*(p.a for p in group), *layers.sources(names)])))
            owns = layers.run(names, mine, MOVES)
            for p in group:
                for a, own in zip([v[p.a] for v in mine], owns.get(p.b, []), strict=False):
                    value, *others = self._seen(p, [a] * (1 + len(own.moved)), [own.value, *own.moved])
                    if not self._is_explained(a, value, others):
                        found.add(p.b)
        return found

    def _is_explained(self, a: Value, b: Value, moved: Sequence[Value]) -> bool:
        """``moved`` are what ``b`` becomes: what rounding does to it is taken for what it does to ``a``."""
        if not gap_of([a], [b], self.tolerance).reason:
            return True
        return explained(b, a, moved, self.tolerance)

    def _below(self, begins: set[str]) -> set[str]:
        """B's tensors that are computed from those, and these themselves: rounding need not explain them."""
        side, found = self.sides[1].side, set(begins)
        for node, names in zip(side.nodes, side.read, strict=True):
            if any(n in found for n in names):
                found.update(n for n in node.output if n)
        return found

    def _without_noise(self, found: Sequence[Compared], excepted: set[str]) -> list[Compared]:
        """Pairs that drift with no cause above them, and only as far as rounding moves them, are noise."""
        suspects = [c for c in found if c.verdict == DRIFT and c.b not in excepted]
        noise: set[str] = set()
        for group in self._groups([Pair(c.a, c.b, c.by) for c in suspects], room=2):
            names = [p.a for p in group]
            mine, others = self.sides[0].values(names), self.sides[1].values([p.b for p in group])
            moved = perturbed_runs(self.sides[0], names)
            for p in group:
                runs = [
                    (a[p.a], *self._seen(p, [a[p.a]], [b[p.b]]), [m[k][p.a] for m in moved])
                    for k, (a, b) in enumerate(zip(mine, others, strict=True))
                ]
                if all(
                    not gap_of([a], [b], self.tolerance).reason or explained(a, b, m, self.tolerance)
                    for a, b, m in runs
                ):
                    noise.add(p.b)
        return [
            replace(c, verdict=NOISE, reason="rounding alone moves it as far") if c.b in noise else c for c in found
        ]


def _reason(gap: Gap, alone: Gap | None) -> str:
    return gap.reason or ("" if alone is None else alone.reason)


def _summary(runs: Sequence[Value]) -> Summary | None:
    return summarize(runs) if all(isinstance(x, np.ndarray) for x in runs) else None


def _layer(side: Side, name: str, layers: Layers) -> tuple[str, str]:
    """Operator and name of the one node of a layer that holds weights; where there is none or are several, of the last."""
    weighty = [k for k in layers.nodes(name) if side.has_weights(k)]
    if len(weighty) == 1:
        name = next(n for n in side.nodes[weighty[0]].output if n)
    return side.operator(name), side.label(name)


__all__ = ["compare"]

"""One check of one region: what it is fed, and what its two sides' values say."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import onnx_graphsurgeon as gs
from onnx import TensorProto

from surgeon_passes.index import node_label
from surgeon_passes.ops.traits import ELEMENTWISE
from surgeon_passes.region import Exactness, Tolerances, Verdict
from surgeon_passes.runtime import Array, RuntimeFailure, Session, Value
from surgeon_passes.verify import inputs as made_up
from surgeon_passes.verify.assemble import Piece, assemble
from surgeon_passes.verify.compare import MANY, Difference, Pair, agreements, beyond_noise, compare, is_float, mean_gap
from surgeon_passes.verify.reference import ReferenceSession
from surgeon_passes.verify.resize import Shape
from surgeon_passes.verify.shapes import Candidates

Agreed: TypeAlias = Mapping[tuple[str, str, int], Difference]
"""By names of the outputs, before and after, and axis of the channels."""

_NOISE_RUNS = 4
_NOISE_FACTOR = 4.0
_NOISE_LIMIT = 1000.0
"""Noise beyond this many bounds: the region amplifies rounding too much to be judged."""
_LOCAL = re.compile(r"r\d+~([a-z]+\d+\w*)")
_INDEX_TYPES = (TensorProto.INT32, TensorProto.INT64)
_PRODUCTS = frozenset({"MatMul", "Gemm", "Einsum", "LayerNormalization", "MatMulInteger"})
_MOVES = frozenset(
    {"Transpose", "Identity", "Concat", "Flatten", "MatMul", "Gemm", "Conv", "ReduceSum", "ReduceMax", "ReduceMin"}
)

_FEW_TURNS = 4
"""How often loops turn at most on made-up inputs, once a region has been compared with all its turns."""
_MAX_ELEMENTS = 1 << 28
"""Of made-up inputs of one region: a gigabyte of float32."""


@dataclass(eq=False, slots=True)
class Trial:
    """A region at one precision. ``error``, ``mean`` and ``tensor`` are the worst so far; ``verdict`` is set in the end."""

    piece: Piece
    candidates: Candidates
    bound: float
    kinds: tuple[str, ...]
    tolerances: Tolerances
    exactness: Exactness
    reference: bool = False
    integers: str = "small"
    scale: int = 0
    """position in ``inputs.LARGE``"""
    finite: bool = True
    compared: int = 0
    """elements that were compared"""
    error: float = 0.0
    mean: float = 0.0
    tensor: str = ""
    note: str = ""
    verdict: Verdict | None = None
    real: list[dict[int, Array]] = field(default_factory=list)
    """activations by input position"""

    usual: dict[str, Array] = field(default_factory=dict)
    """outputs of the original on normal inputs"""
    resolution: float = 0.0
    """relative step of the half-precision type that new constants were rounded to, else 0"""
    noise_factor: float = _NOISE_FACTOR
    has_products: bool = field(init=False, default=False)
    makes_zeros_positive: bool = field(init=False, default=False)
    """ONNX Runtime's Where gives 0 for the -0.0 that it picks"""
    index_limits: dict[int, int] = field(init=False, default_factory=dict)
    """by input position: the size of the axis that its values pick from"""

    def __post_init__(self) -> None:
        self.index_limits = _index_limits(self.piece)
        self.makes_zeros_positive = any(i.node.op == "Where" for i in self.piece.sides.images())
        self.has_products = any(i.node.op in _PRODUCTS for i in self.piece.sides.images())

    def reset(self) -> None:
        self.scale, self.compared, self.error, self.mean, self.tensor = 0, 0, 0.0, 0.0, ""
        self.verdict, self.finite = None, True
        self.usual.clear()

    def takes(self, kind: str, attempt: int) -> bool:
        """Whether inputs of this kind are to be tried at the shapes of this number.

        Where every operator works on each place alone, values show all at one size, and another size shows what is
        written for one.
        """
        return kind in self.kinds and (kind == "normal" or not attempt or not self.candidates.alike)

    # --- feeds -------------------------------------------------------------------------------------------------------

    def feeds(
        self, shapes: Sequence[Shape], attempt: int, kind: str, real: Mapping[int, Array] | None = None
    ) -> dict[str, Array]:
        """Boundary inputs by name. ``real`` are activations; of those only discrete ones are used unless kind is "data"."""
        found = self._trips(kind)
        if sum(math.prod(shape) for shape in shapes) > _MAX_ELEMENTS:
            raise RuntimeFailure(f"its inputs would have over {_MAX_ELEMENTS} elements at these sizes")
        for position, (dtype, shape) in enumerate(zip(self.piece.feed_types, shapes, strict=True)):
            name = self.piece.input_name(position)
            array = (real or {}).get(position)
            if array is not None and (kind == "data" or not is_float(array)):
                found[name] = array
            elif position in self.index_limits and kind != "zeros" and self.integers == "small":
                stream = 1 + 8 * position + 97 * attempt + len(kind)
                found[name] = made_up.indices(dtype, shape, stream, self.index_limits[position])
            else:
                made = "normal" if kind == "data" else kind
                found[name] = made_up.make(
                    made, dtype, shape, 1 + 8 * position + 97 * attempt, made_up.LARGE[self.scale], self.integers
                )
        return found

    def _trips(self, kind: str) -> dict[str, Array]:
        """Trip counts of loops. One turn is the same function of its number and the state as any other."""
        most = None if kind == "data" or not self.compared else _FEW_TURNS
        return {n: x if most is None else np.asarray(np.minimum(x, most), x.dtype) for n, x in self.piece.trips.items()}

    def index_names(self) -> list[str]:
        """Names of the boundary inputs that may be indices or sizes."""
        sides = self.piece.sides
        return [str(t.name) for t, d in zip(sides.inputs, self.piece.feed_types, strict=True) if d in _INDEX_TYPES]

    def has_indices(self) -> bool:
        return any(dtype in _INDEX_TYPES for dtype in self.piece.feed_types)

    def is_arithmetic(self) -> bool:
        """Whether integers of any size are legal everywhere in the region."""
        return all(i.node.op in ELEMENTWISE or i.node.op in _MOVES for i in self.piece.sides.images())

    # --- judging -----------------------------------------------------------------------------------------------------

    def overflows(self, kind: str, values: Mapping[str, Value]) -> bool:
        """Whether the original left the finite range only because the input was large."""
        if kind == "normal":
            self.finite = self.finite and all(_all_finite(values[b]) for b, _ in self.piece.outputs)
            return False
        return kind == "large" and self.finite and not all(_all_finite(values[b]) for b, _ in self.piece.outputs)

    def judge(
        self,
        kind: str,
        feeds: Mapping[str, Array],
        values: Mapping[str, Value],
        graph: gs.Graph,
        known: Agreed = MappingProxyType({}),
    ) -> None:
        """Compare the outputs of one run; sets ``verdict`` where they refute the region. ``known`` is what :func:`agreed` has
        told already."""
        for place, (before, after) in enumerate(self.piece.outputs):
            name = str(self.piece.sides.region.outputs[place][0].name)
            if self._are_made_up_sizes(kind, values[before], values[after]):
                self.verdict = Verdict("unverified", None, name, "it was empty at sizes that were made up; give --data")
                return
            found = self._difference(kind, before, after, feeds, values, graph, known)
            self.compared += _size(values[before])
            if found.reason:
                status = "unverified" if found.reason.startswith("rounding") else "refuted"
                mean = mean_gap(values[before], values[after])
                self.verdict = Verdict(status, found.error, name, f"{kind} inputs: {found.reason}", mean)
                return
            if found.error > self.error or not self.tensor:
                self.error, self.tensor = max(found.error, self.error), name
                self.mean = mean_gap(values[before], values[after]) or 0.0 if found.error else 0.0

    def _are_made_up_sizes(self, kind: str, before: Value, after: Value) -> bool:
        """Whether both are empty, of one rank, of sizes that may be the made-up numbers that were fed: any is legal."""
        if kind == "data" or not (isinstance(before, np.ndarray) and isinstance(after, np.ndarray)):
            return False
        sized = before.ndim == after.ndim and before.shape != after.shape
        return before.size == after.size == 0 and sized and self.has_indices()

    def _difference(
        self,
        kind: str,
        before: str,
        after: str,
        feeds: Mapping[str, Array],
        values: Mapping[str, Value],
        graph: gs.Graph,
        known: Agreed,
    ) -> Difference:
        """The worst difference over the axes on which channels may lie."""
        a, b = values[before], values[after]
        if self.makes_zeros_positive:
            a, b = (v + 0 if isinstance(v, np.ndarray) and v.dtype.kind == "f" else v for v in (a, b))
        if kind == "normal" and isinstance(a, np.ndarray) and is_float(a):
            self.usual[before] = a
        worst = Difference()
        for axis in self._channel_axes(a):
            found = known.get((before, after, axis)) or compare(
                a, b, self.exactness, self.bound, self.tolerances.absolute, axis
            )
            if found.reason and found.rounding:
                found = self._beyond_noise(kind, before, feeds, values, after, found, graph, axis)
            if found.reason:
                return found
            worst = max(worst, found, key=lambda d: d.error)
        return worst

    def pairs(self, values: Mapping[str, Value]) -> Iterator[tuple[tuple[str, str, int], Pair]]:
        """What is to be compared as it is, by names of the outputs and axis of the channels."""
        if not self.makes_zeros_positive:
            for before, after in self.piece.outputs:
                for axis in self._channel_axes(values[before]):
                    yield (before, after, axis), Pair(values[before], values[after], self.exactness, self.bound, axis)

    def _channel_axes(self, value: Value) -> tuple[int, ...]:
        """Axis 1; the last one, too, where a product puts its features there."""
        if isinstance(value, np.ndarray) and value.ndim > 2 and self.has_products:
            return (1, value.ndim - 1)
        return (1,)

    def _beyond_noise(
        self,
        kind: str,
        before: str,
        feeds: Mapping[str, Array],
        values: Mapping[str, Value],
        after: str,
        found: Difference,
        graph: gs.Graph,
        axis: int,
    ) -> Difference:
        """What is left of a difference when rounding inside the original is taken out of it."""
        a, b = values[before], values[after]
        if not isinstance(a, np.ndarray):
            return found

        def beyond(perturbed: Sequence[Array]) -> tuple[Difference, float]:
            return beyond_noise(
                a,
                b,
                perturbed,
                self.bound,
                self.tolerances.absolute,
                self.noise_factor,
                axis,
                usual=self.usual.get(before),
                resolution=self.resolution,
            )

        if kind != "normal":  # small beside the channel's usual scale: noise could only allow more
            left, _ = beyond(())
            if not left.reason:
                return left
        try:
            left, level = beyond(self._perturbed(before, feeds, graph))
        except RuntimeFailure:
            return found
        if (
            kind == "normal"
            and not left.reason
            and level > _NOISE_LIMIT * self.bound
            and level > self.tolerances.approximate
        ):
            return Difference(left.error, f"rounding alone moves this output by {level:.1e} of its scale")
        return left

    def _perturbed(self, output: str, feeds: Mapping[str, Array], graph: gs.Graph) -> list[Array]:
        made = assemble([self.piece], graph, (0,), fed_constants=True)
        session = (
            ReferenceSession(made.model, made.external)
            if self.reference
            else Session(made.model, external=made.external)
        )
        names = [*map(self.piece.input_name, range(len(self.piece.sides.inputs))), *self.piece.trips]
        own = {n: feeds[n] for n in names}
        fed = {v.name for v in made.model.graph.input}
        constants = self.piece.constant_arrays(fed)
        found = []
        for run in range(_NOISE_RUNS):
            moved = {
                n: made_up.one_ulp(x, 31 * run + 7 * number)
                for number, (n, x) in enumerate({**own, **constants}.items())
            }
            found.append(session.run(moved, [output])[output])
        return found

    def finish(self) -> Verdict:
        """The verdict of a trial that nothing refuted."""
        if self.verdict is None:
            if not self.compared and self.piece.outputs:
                self.verdict = Verdict("unverified", None, "", "every output was empty; give --data")
            else:
                self.verdict = Verdict("verified", self.error, self.tensor, self.note, self.mean)
        return self.verdict

    def explain(self, failure: RuntimeFailure) -> str:
        """ONNX Runtime's reason, with the model's names in place of ours."""
        sides = self.piece.sides

        def original(found: re.Match[str]) -> str:
            local = found.group(1)
            if local[1:2] == "n":
                images = sides.after if local[0] == "a" else sides.before
                return node_label(images[int(local[2:])].node)
            return sides.original_name(local)

        return _LOCAL.sub(original, str(failure))


def agreed(trials: Sequence[Trial], values: Mapping[str, Value]) -> Agreed:
    """What can be told of one run's outputs of many trials together: differences within the bound."""
    if len(trials) < MANY:
        return {}
    pairs = dict(pair for trial in trials for pair in trial.pairs(values))
    found = zip(pairs, agreements(list(pairs.values())), strict=True)
    return {key: difference for key, difference in found if difference is not None}


def _index_limits(piece: Piece) -> dict[int, int]:
    """Boundary inputs that a Gather reads as indices, with the size of the axis that they pick from."""
    place = {id(t): i for i, t in enumerate(piece.sides.inputs)}
    found: dict[int, int] = {}
    for image in piece.sides.images():
        if image.node.op not in ("Gather", "GatherElements") or len(image.inputs) < 2:
            continue
        data, position = image.inputs[0], place.get(id(image.inputs[1]))
        shape = data.shape if isinstance(data, gs.Constant) else None
        axis = image.node.attrs.get("axis", 0)
        if position is None or shape is None or not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
            continue
        if shape[axis]:
            found[position] = min(found.get(position, shape[axis]), int(shape[axis]))
    return found


def _all_finite(value: Value) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_all_finite(v) for v in value)
    return not isinstance(value, np.ndarray) or value.dtype.kind != "f" or bool(np.isfinite(value).all())


def _size(value: Value) -> int:
    if isinstance(value, (list, tuple)):
        return sum(_size(v) for v in value) or 1
    return int(value.size) if isinstance(value, np.ndarray) else 1

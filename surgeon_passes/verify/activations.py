"""Real values of tensors inside a model, from one run of the original."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from surgeon_passes.runtime import RuntimeFailure, Value
from surgeon_passes.verify.claims import Observed, as_shape, may_be_asked, sizes_of, with_shapes
from surgeon_passes.verify.feeds import Sample, generate_samples
from surgeon_passes.verify.segments import Model, open_model, read_model


class Activations:
    """Values of the original's main-graph tensors on given feeds, or on those that ``generate`` makes up.

    Nothing runs until values are asked for; what was fetched is kept. ``failure`` is why there are none, or "".
    """

    def __init__(
        self,
        model: Model,
        feeds: Sequence[Mapping[str, Value]] | None = None,
        generate: Callable[[], Sequence[Sample]] | None = None,
    ) -> None:
        self.has_data = bool(feeds)
        self.failure = ""
        self._model = model
        self._generate = generate or (lambda: generate_samples(model))
        self._feeds: list[dict[str, Value]] = [dict(f) for f in feeds or ()]
        self._made: set[str] | None = None
        self._kept: list[dict[str, Value]] = []
        self._announced: dict[str, None] = {}
        self._outputs: set[str] = set()
        self._shapes: dict[str, list[tuple[int, ...]]] = {}

    def announce(self, names: Iterable[str]) -> None:
        """Names that will be asked for: the next run that must be made brings them all."""
        self._announced.update(dict.fromkeys(names))

    def release(self) -> None:
        """Forget what was fetched; feeds stay."""
        self._announced.clear()
        self._kept = [dict(f) for f in self._feeds] if self._made is not None else []

    def fetch(self, names: Iterable[str]) -> None:
        """Make sure of ``names`` in one run; those that the original lacks are ignored."""
        if self.failure:
            return
        try:
            self._prepare()
            missing = [n for n in dict.fromkeys(names) if n in (self._made or ()) and n not in self._kept[0]]
            if missing:
                wanted = [n for n in {**dict.fromkeys(missing), **self._announced} if n in (self._made or ())]
                extra = [n for n in wanted if n not in self._outputs]
                runner = open_model(self._model, extra_outputs=extra)
                for kept, feeds in zip(self._kept, self._feeds, strict=True):
                    kept.update(runner.run(feeds, wanted))
        except RuntimeFailure as failure:
            self.failure = f"the original does not run: {failure}"

    def _prepare(self) -> None:
        """Feeds, and the names that can be asked for."""
        if self._made is not None:
            return
        proto, _ = read_model(self._model)
        if not self._feeds:
            samples = self._generate()
            self._feeds = [dict(sample.feeds) for sample in samples]
            seen = set[str]().union(*(sample.shapes for sample in samples))
            self._shapes = {name: [sample.shapes[name] for sample in samples] for name in seen}
        self._made = {n for node in proto.graph.node for n in node.output if n}
        self._outputs = {o.name for o in proto.graph.output}
        self._kept = [dict(f) for f in self._feeds]

    def shapes(self, names: Iterable[str]) -> list[Observed]:
        """For each set of feeds the named dims of the inputs, and the shapes of ``names``, as far as the original has them.

        [] where it does not run.
        """
        try:
            self._prepare()
            wanted = [n for n in dict.fromkeys(names) if n in (self._made or ())]
            missing = [n for n in wanted if n not in self._shapes]
            if missing:
                proto, weights = read_model(self._model)
                if not self._shapes:  # all that may be asked for, in one run
                    missing = list(dict.fromkeys([*missing, *may_be_asked(proto)]))
                seeing, outputs = with_shapes(proto, missing)
                runner = open_model((seeing, weights), shapes_first=True)
                runs = [runner.run(feeds, outputs) for feeds in self._feeds]
                for name, output in zip(missing, outputs, strict=True):
                    self._shapes[name] = [as_shape(run[output]) for run in runs]
        except RuntimeFailure:
            return []
        proto, _ = read_model(self._model)
        rows = [{n: self._shapes[n][k] for n in wanted} for k in range(len(self._feeds))]
        return [(sizes_of(proto, feeds), row) for feeds, row in zip(self._feeds, rows, strict=True)]

    def of(self, names: Sequence[str]) -> list[dict[str, Value]]:
        """For each set of feeds the values of ``names``; names the original lacks are left out. [] after a failure."""
        self.fetch(names)
        if self.failure:
            return []
        return [{n: kept[n] for n in names if n in kept} for kept in self._kept]

"""Random models with what they are run with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import onnx
from hypothesis import strategies as st

from .blocks import BLOCKS, example
from .choices import Choices, Drawn, flip, odds
from .dress import dressed
from .examples import examples
from .fragment import Array
from .grow import Grower

OPSETS = (17, 20, 23, 13, 18, 11, 21, 9, 7, 24, 15, 22, 12, 10, 8, 14, 16, 19)
OFF = ("ort", "npu", "batch_norm", "compact")
"""sets of rules that are off by default"""


@dataclass
class Case:
    """``sets`` are added to the default ones, ``skip`` names rules that are left out; ``options`` are those of Rewrite."""

    model: onnx.ModelProto
    feeds: list[dict[str, Array]]
    sets: tuple[str, ...] = ()
    options: dict[str, bool] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    is_real: bool = False
    """whether inputs cannot be made up"""

    def __repr__(self) -> str:
        text = onnx.printer.to_text(self.model)
        return f"Case(sets={self.sets}, options={self.options}, skip={self.skip}, sources={self.sources},\n{text})"


@cache
def names_at(opset: int, chosen: str) -> tuple[str, ...]:
    """Rules of the default sets or of one of the others, of those that hold at that opset."""
    return tuple(
        name
        for name, e in examples().items()
        if e.rule.is_for(opset) and (not set(e.rule.sets) & set(OFF) or set(e.rule.sets) & {chosen})
    )


@cache
def names_of(chosen: str, opset: int) -> tuple[str, ...]:
    return tuple(n for n in names_at(opset, chosen) if set(examples()[n].rule.sets) & {chosen})


def case(choices: Choices, opsets: Sequence[int] = OPSETS) -> Case:
    """A model of some fragments, six of ten the examples of rules."""
    opset = choices.pick(opsets)
    chosen = choices.pick(("", "", "", *OFF))
    grower = Grower(choices, opset, fixed=choices.number(0, 3) == 0)
    options: dict[str, bool] = {}
    sources = []
    for _ in range(choices.number(1, 7)):
        if choices.number(0, 9) < 6:
            own = names_of(chosen, opset) if chosen and flip(choices) else ()
            fragment, found = example(grower, own or names_at(opset, chosen))
            options.update(found.needs)
        else:
            fragment = choices.pick(BLOCKS)(grower)
        if grower.commit(fragment):
            sources.append(fragment.source)
    model, feeds = grower.model()
    if odds(choices, 3):
        model = dressed(choices, model)
    sets = (chosen,) if chosen else ()
    return Case(model, feeds, sets, options, tuple(sources), _skipped(choices, grower, chosen))


def _skipped(choices: Choices, grower: Grower, chosen: str) -> tuple[str, ...]:
    """Some rules stand back now and then, so that others come to their places."""
    if not odds(choices, 4):
        return ()
    names = names_at(grower.opset, chosen)
    return tuple(dict.fromkeys(choices.pick(names) for _ in range(choices.number(1, 40))))


@st.composite
def cases(draw: st.DrawFn, opsets: Sequence[int] = OPSETS) -> Case:
    """Cases for a test: what fails is made smaller."""
    return case(Drawn(draw), opsets)

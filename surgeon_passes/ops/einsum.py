"""Einsum, operand by operand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Size = Any


def contractions(equation: str, shapes: Sequence[Sequence[Size]]) -> Iterator[list[Size]]:
    """From the left, as ONNX Runtime does it: for each operand but the first the sizes of all labels that stand in it or in
    what is left of those before it. A label is summed once nothing behind needs it.

    Raises ValueError where equation and shapes do not fit together.
    """
    terms, result = _terms(equation, [len(shape) for shape in shapes])
    sizes: dict[str, Size] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, size in zip(term, shape, strict=True):
            if label not in sizes or sizes[label] == 1:
                sizes[label] = size
    held = set(terms[0])
    for place, term in enumerate(terms[1:], 1):
        held |= set(term)
        yield [sizes[label] for label in sorted(held)]
        needed = set(result).union(*terms[place + 1 :])
        held &= needed


def _terms(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """Labels of each operand and of the result; axes under an ellipsis are numbered from the right."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = [_labels(text, rank) for text, rank in zip(left.split(","), ranks, strict=True)]
    if arrow:
        most = max((sum(not label.isalpha() for label in term) for term in terms), default=0)
        return terms, _labels(right, len(right.replace("...", "")) + (most if "..." in right else 0))
    flat = [label for term in terms for label in term]
    return terms, sorted({label for label in flat if not label.isalpha() or flat.count(label) == 1})


def _labels(text: str, rank: int) -> list[str]:
    before, dots, after = text.partition("...")
    hidden = rank - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        raise ValueError(f"'{text}' does not fit rank {rank}")
    return [*before, *(f"{hidden - k}." for k in range(hidden)), *after]

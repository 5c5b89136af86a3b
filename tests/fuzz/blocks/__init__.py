"""What graphs are put together of, by subject. A block takes a Grower and gives a Fragment."""

from __future__ import annotations

from collections.abc import Callable

from ..fragment import Fragment
from ..grow import Grower
from . import conv, embedded, integers, linear, numbers, shapes

Block = Callable[[Grower], Fragment]

BLOCKS: tuple[Block, ...] = (
    *conv.BLOCKS,
    *linear.BLOCKS,
    *shapes.BLOCKS,
    *numbers.BLOCKS,
    *integers.BLOCKS,
)
example = embedded.example

"""RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Sequence

from surgeon_passes.values.dims import Dim, Shape
from surgeon_passes.values.operands import Operands
from surgeon_passes.values.registry import shape_of


@shape_of("RNN", "GRU", "LSTM", since=7)
def recurrent(n: Operands) -> Sequence[Shape | None]:
    """Y [seq, directions, batch, hidden], Y_h and Y_c [directions, batch, hidden]; batch first with layout = 1."""
    first, second, _ = n.known_shape(0)
    directions = 2 if n.attr("direction", "forward") == "bidirectional" else 1
    hidden = _hidden(n)
    if n.attr("layout", 0):
        return [(first, second, directions, hidden), *[(first, directions, hidden)] * 2]
    return [(first, directions, second, hidden), *[(directions, second, hidden)] * 2]


def _hidden(n: Operands) -> Dim:
    if n.view.has_attr("hidden_size"):
        return int(n.attr("hidden_size"))
    weights = n.shape(2)
    return None if weights is None else weights[-1]

"""If: what both branches agree on."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_graphsurgeon as gs

from surgeon_passes.values import dims
from surgeon_passes.values.dims import Shape
from surgeon_passes.values.operands import Operands
from surgeon_passes.values.registry import shape_of


@shape_of("If")
def either(n: Operands) -> Sequence[Shape | None]:
    branches = [n.attr("then_branch"), n.attr("else_branch")]
    outputs = [t for b in branches if isinstance(b, gs.Graph) for t in b.outputs]
    shapes = [dims.type_shape(entry) for entry in n.types_of(*outputs)]
    count = len(shapes) // 2
    return [_agreed(a, b) for a, b in zip(shapes[:count], shapes[count:], strict=True)]


def _agreed(a: Shape | None, b: Shape | None) -> Shape | None:
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if dims.same(x, y) else None for x, y in zip(a, b, strict=True))

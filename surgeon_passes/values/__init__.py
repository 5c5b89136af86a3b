"""The shape evaluator: what is known of a tensor before the model runs. Knows operators, not rules.

``Evaluator.value`` gives an ndarray (fully known), a :class:`Partial` (an integer tensor with symbolic or unknown elements)
or None; ``TypeMap.type_of`` gives dtype and shape, with dims that are ints, :class:`Poly` or None. An operator's values are
taught in ``handlers/``, its shapes in ``shapes/``, one small function each; importing these registers them.
"""

from surgeon_passes.values import dims, handlers, shapes
from surgeon_passes.values.dims import Dim, Shape
from surgeon_passes.values.engine import Evaluator, ReadLog
from surgeon_passes.values.lattice import Partial, Value
from surgeon_passes.values.ramps import Ramp
from surgeon_passes.values.symbols import Poly
from surgeon_passes.values.targets import static_target
from surgeon_passes.values.types import StaleShape, TypeMap

__all__ = [
    "Dim",
    "Evaluator",
    "Partial",
    "Poly",
    "Ramp",
    "ReadLog",
    "Shape",
    "StaleShape",
    "TypeMap",
    "Value",
    "dims",
    "handlers",
    "shapes",
    "static_target",
]

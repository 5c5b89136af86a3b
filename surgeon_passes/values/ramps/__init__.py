"""Tensors that a formula gives although their size is not known; importing the handlers registers them."""

from surgeon_passes.values.ramps import handlers
from surgeon_passes.values.ramps.core import Ramp, Ramps

__all__ = ["Ramp", "Ramps", "handlers"]

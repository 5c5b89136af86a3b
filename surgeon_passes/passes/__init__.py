"""The passes: frozen dataclasses whose fields are their options. Know no command line."""

from surgeon_passes.passes.base import Pass
from surgeon_passes.passes.cleanup import Cleanup
from surgeon_passes.passes.constants import Constants
from surgeon_passes.passes.duplicates import Duplicates
from surgeon_passes.passes.edits import make_edit
from surgeon_passes.passes.fold import Fold
from surgeon_passes.passes.functions import InlineFunctions
from surgeon_passes.passes.onnxsim import Onnxsim
from surgeon_passes.passes.opset import ConvertOpset
from surgeon_passes.passes.prepare import Preparation
from surgeon_passes.passes.rewrite import Rewrite
from surgeon_passes.passes.settle import settle
from surgeon_passes.passes.sizes import Sizes
from surgeon_passes.passes.specialize import Specialize
from surgeon_passes.passes.state import State, Verify, remove_dead

PASSES: tuple[type[Pass], ...] = (
    Onnxsim,
    InlineFunctions,
    ConvertOpset,
    Specialize,
    Fold,
    Rewrite,
    Sizes,
    Duplicates,
    Cleanup,
    Constants,
)
"""All of them, in the order of the default pipeline; the first three on request."""

__all__ = [
    "PASSES",
    "Cleanup",
    "Constants",
    "ConvertOpset",
    "Duplicates",
    "Fold",
    "InlineFunctions",
    "Onnxsim",
    "Pass",
    "Preparation",
    "Rewrite",
    "Sizes",
    "Specialize",
    "State",
    "Verify",
    "make_edit",
    "remove_dead",
    "settle",
]

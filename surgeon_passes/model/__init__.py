"""Files, protobuf, external data, gs import and export, and what gs would lose. Knows no rules."""

from surgeon_passes.model.constants import array_of
from surgeon_passes.model.elements import numpy_dtype, onnx_dtype
from surgeon_passes.model.export import export_light, export_model
from surgeon_passes.model.extras import Extras, Model
from surgeon_passes.model.importer import import_model
from surgeon_passes.model.weights import Weights

__all__ = [
    "Extras",
    "Model",
    "Weights",
    "array_of",
    "export_light",
    "export_model",
    "import_model",
    "numpy_dtype",
    "onnx_dtype",
]

"""Every rewrite is checked in ONNX Runtime: regions while a model is rewritten, the whole model at the end.

Importing this does not load ONNX Runtime.
"""

from surgeon_passes.verify.activations import Activations
from surgeon_passes.verify.batches import check
from surgeon_passes.verify.claims import may_be_asked
from surgeon_passes.verify.compare import Difference, compare
from surgeon_passes.verify.endcheck import EndCheck, check_samples, compare_models, end_check, without_inputs
from surgeon_passes.verify.feeds import Sample, generate_feeds, generate_samples, load_data, observed_samples
from surgeon_passes.verify.segments import SegmentedSession, open_model

__all__ = [
    "Activations",
    "Difference",
    "EndCheck",
    "Sample",
    "SegmentedSession",
    "check",
    "check_samples",
    "compare",
    "compare_models",
    "end_check",
    "generate_feeds",
    "generate_samples",
    "load_data",
    "may_be_asked",
    "observed_samples",
    "open_model",
    "without_inputs",
]

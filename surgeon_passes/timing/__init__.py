"""How long original and result take in ONNX Runtime, and which rules cost time instead of saving it."""

from surgeon_passes.timing.latency import Latency, Times, measure

__all__ = ["Latency", "Times", "measure"]

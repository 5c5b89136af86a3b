"""Models run in turn in ONNX Runtime: latency of original and result, and rules that cost time instead of saving it."""

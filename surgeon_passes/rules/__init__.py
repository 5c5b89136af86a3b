"""Rules: pattern dataclasses, text syntax, matcher, rewriter with its journal, registry. Knows no ONNX Runtime."""

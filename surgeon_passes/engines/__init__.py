"""Where ONNX Runtime runs: in this process, or in one of its own that may die without harm.

Importing this loads neither onnx nor ONNX Runtime.
"""

from surgeon_passes.engines.isolation import Isolate, isolated
from surgeon_passes.engines.plan import Engine, Plan, libraries, open_engine, with_libraries

__all__ = ["Engine", "Isolate", "Plan", "isolated", "libraries", "open_engine", "with_libraries"]

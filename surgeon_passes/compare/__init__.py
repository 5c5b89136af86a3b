"""Two models layer by layer: which tensor is which, how far apart they are, and where that begins."""

from surgeon_passes.compare.comparison import Compared, Comparison, OperatorDrift
from surgeon_passes.compare.run import compare
from surgeon_passes.compare.runtimes import Runner, Runtime, whole

__all__ = ["Compared", "Comparison", "OperatorDrift", "Runner", "Runtime", "compare", "whole"]

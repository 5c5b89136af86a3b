"""Baselines: what a model was like, so that a new export that is not like it is noticed."""

from surgeon_passes.drift.baseline import baseline_of, path_beside, read_baseline, write_baseline
from surgeon_passes.drift.check import Drift, check

__all__ = ["Drift", "baseline_of", "check", "path_beside", "read_baseline", "write_baseline"]

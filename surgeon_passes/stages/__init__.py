"""A run pass by pass: what each has changed, how far results drift, and what a user's own metric says."""

from surgeon_passes.stages.stage import Stage, Stages

__all__ = ["Stage", "Stages"]

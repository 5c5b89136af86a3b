"""Decisions in; text out. Knows nothing of the engine."""

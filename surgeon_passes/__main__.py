"""``python -m surgeon_passes``."""

from surgeon_passes.cli import entry

entry()

"""``python -m surgeon_passes``."""

from surgeon_passes.cli import main

main(prog_name="surgeon-passes")

"""Specialize, Fold, Rewrite, Cleanup: frozen dataclasses whose fields are their options. Know no command line."""

from surgeon_passes.passes.base import Pass
from surgeon_passes.passes.cleanup import Cleanup
from surgeon_passes.passes.fold import Fold
from surgeon_passes.passes.rewrite import Rewrite
from surgeon_passes.passes.specialize import Specialize
from surgeon_passes.passes.state import State, Verify

__all__ = ["Cleanup", "Fold", "Pass", "Rewrite", "Specialize", "State", "Verify"]

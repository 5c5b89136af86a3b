"""Verified rewrite rules for ONNX models on onnx-graphsurgeon.

    import surgeon_passes as sp
    result = sp.optimize("model.onnx", shapes={"images": [1, 3, 640, 640]})
    print(result.report())
    result.save("model_static.onnx")

Names are loaded when they are used: importing the package loads neither ONNX Runtime nor onnx.
"""

from __future__ import annotations

import importlib
import logging
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surgeon_passes.compare import Comparison, compare
    from surgeon_passes.decisions import Decision
    from surgeon_passes.engines import Isolate
    from surgeon_passes.errors import ModelError, RuleError, SurgeonError, UsageError
    from surgeon_passes.explain import explain
    from surgeon_passes.grouping import Group, groups
    from surgeon_passes.onnxsim import onnxsim_rewriter
    from surgeon_passes.operators import Operator
    from surgeon_passes.passes import (
        Cleanup,
        Constants,
        ConvertOpset,
        Duplicates,
        Fold,
        InlineFunctions,
        Onnxsim,
        Pass,
        Rewrite,
        Sizes,
        Specialize,
        Verify,
    )
    from surgeon_passes.pipeline import Pipeline, optimize
    from surgeon_passes.region import Exactness, Tolerances
    from surgeon_passes.result import Result
    from surgeon_passes.rules.match import Leaf, Match, Operand
    from surgeon_passes.rules.registry import Registry
    from surgeon_passes.rules.rule import Decline, Replacement, Rule, rule
    from surgeon_passes.selection import Only
    from surgeon_passes.stages import Stage, Stages
    from surgeon_passes.values import Evaluator

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())  # else warnings would go to stderr

_HOMES = {
    "compare": ("Comparison", "compare"),
    "decisions": ("Decision",),
    "engines": ("Isolate",),
    "errors": ("ModelError", "RuleError", "SurgeonError", "UsageError"),
    "passes": (
        "Cleanup",
        "Constants",
        "ConvertOpset",
        "Duplicates",
        "Fold",
        "InlineFunctions",
        "Onnxsim",
        "Pass",
        "Rewrite",
        "Sizes",
        "Specialize",
        "Verify",
    ),
    "pipeline": ("Pipeline", "optimize"),
    "explain": ("explain",),
    "grouping": ("Group", "groups"),
    "onnxsim": ("onnxsim_rewriter",),
    "operators": ("Operator",),
    "selection": ("Only",),
    "stages": ("Stage", "Stages"),
    "region": ("Exactness", "Tolerances"),
    "result": ("Result",),
    "rules.match": ("Leaf", "Match", "Operand"),
    "rules.registry": ("Registry",),
    "rules.rule": ("Decline", "Replacement", "Rule", "rule"),
    "values": ("Evaluator",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Cleanup",
    "Comparison",
    "Constants",
    "ConvertOpset",
    "Decision",
    "Decline",
    "Duplicates",
    "Evaluator",
    "Exactness",
    "Fold",
    "Group",
    "InlineFunctions",
    "Isolate",
    "Leaf",
    "Match",
    "ModelError",
    "Only",
    "Onnxsim",
    "Operand",
    "Operator",
    "Pass",
    "Pipeline",
    "Registry",
    "Replacement",
    "Result",
    "Rewrite",
    "Rule",
    "RuleError",
    "Sizes",
    "Specialize",
    "Stage",
    "Stages",
    "SurgeonError",
    "Tolerances",
    "UsageError",
    "Verify",
    "compare",
    "explain",
    "groups",
    "onnxsim_rewriter",
    "optimize",
    "rule",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'surgeon_passes' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"surgeon_passes.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Some modules are called as the function that they hold: the function is what the package has by that name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in _HOME_OF):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

"""ONNX Runtime in this process, for the checks: imported only when a session is made."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from surgeon_passes import watch
from surgeon_passes.engines.plan import External, Plan, Value
from surgeon_passes.errors import RuntimeFailure, UsageError

RUNTIME = "ONNX Runtime"

_LEVELS = {
    "off": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
_PREFIX = re.compile(r"^\s*\[ONNXRuntimeError\]\s*:\s*\d+\s*:\s*(\w+)\s*:\s*")
_SOURCE = re.compile(r"/\S*?onnxruntime\S*?:\d+\s*")


def _failure(error: Exception) -> RuntimeFailure:
    text = str(error)
    found = _PREFIX.match(text)
    if found:
        text = text[found.end() :]
    text = " ".join(_SOURCE.sub("", text).split()) or type(error).__name__
    return RuntimeFailure(text if len(text) <= 400 else text[:397] + "...", found.group(1) if found else "")


@cache
def _ort() -> Any:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    return onnxruntime


def version() -> str:
    """The version of ONNX Runtime that checks."""
    return str(_ort().__version__)


def _options(plan: Plan) -> Any:
    ort = _ort()
    options = ort.SessionOptions()
    options.intra_op_num_threads = plan.threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _LEVELS[plan.level])
    options.log_severity_level = 4
    if plan.shapes_first:
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    if plan.threads > 1:  # else the threads of one session go on spinning while another session runs
        options.add_session_config_entry("session.force_spinning_stop", "1")
    if plan.level != "all":  # sessions that check run once or twice: what pays only later is left out
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.enable_mem_pattern = False  # a plan of the first run's memory: quadratic in what lives at once
    return options


def _ort_value(given: External) -> Any:
    make = _ort().OrtValue
    array = np.require(given.array, requirements=["C", "A"])
    if not given.elem_type:
        return make.ortvalue_from_numpy(array)
    return make.ortvalue_from_numpy_with_onnx_type(array, given.elem_type)


def _register(options: Any, library: str) -> None:
    try:
        options.register_custom_ops_library(library)
    except Exception as error:
        reason = str(_failure(error))
        raise UsageError(f"--custom-ops {library}: ONNX Runtime cannot load it: {reason}") from error


class LocalEngine:
    """A session. Raises RuntimeFailure where the model does not load."""

    def __init__(self, plan: Plan) -> None:
        options = _options(plan)
        for library in plan.libraries:
            _register(options, library)
        self._fed = plan.fed
        self._kept = {name: _ort_value(given) for name, given in plan.external.items()}
        try:
            if self._kept:
                options.add_external_initializers(list(self._kept), list(self._kept.values()))
                if plan.level == "off":  # nothing rewrites initializers: they are used in place, not copied
                    for name, value in self._kept.items():
                        options.add_initializer(name, value)
            with watch.within(RUNTIME):
                self._session = _ort().InferenceSession(plan.source, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise _failure(error) from error
        self.inputs = {i.name: (str(i.type), list(i.shape)) for i in self._session.get_inputs()}
        self.outputs = {o.name: str(o.type) for o in self._session.get_outputs()}

    def run(self, names: Sequence[str], feeds: Mapping[str, Value]) -> list[Value]:
        try:
            with watch.within(RUNTIME):
                return list(self._session.run(list(names), {**self._fed, **feeds}))
        except Exception as error:
            raise _failure(error) from error

"""The process in which ONNX Runtime may die: it opens sessions, runs them, and forgets them."""

from __future__ import annotations

import json
import sys
from typing import Any

from surgeon_passes import memory
from surgeon_passes.child import Reply, serve
from surgeon_passes.engines.isolation import plan_of
from surgeon_passes.engines.local import LocalEngine
from surgeon_passes.errors import RuntimeFailure, UsageError


class Worker:
    """Answers "open" and "run"; ``drop`` in either names sessions that are over."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._engines: dict[int, LocalEngine] = {}
        memory.bound(job["memory"])

    def answer(self, command: dict[str, Any]) -> Reply:
        for number in command["drop"]:
            self._engines.pop(number, None)
        try:
            return self._open(command) if command["do"] == "open" else self._run(command)
        except UsageError as error:
            return {"misused": str(error)}
        except RuntimeFailure as failure:
            return {"refused": str(failure), "code": failure.code}
        except MemoryError:
            return {"refused": "there is not enough memory", "code": "MEMORY"}

    def _open(self, command: dict[str, Any]) -> Reply:
        engine = self._engines[command["number"]] = LocalEngine(plan_of(command))
        return {"inputs": engine.inputs, "outputs": engine.outputs}

    def _run(self, command: dict[str, Any]) -> Reply:
        return {"values": self._engines[command["number"]].run(command["names"], command["feeds"])}


if __name__ == "__main__":
    serve(lambda: Worker(json.loads(sys.argv[1])).answer)

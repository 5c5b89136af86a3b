"""A child for tests: answers what it is told, prints where it should not, complains, hangs and ends on demand."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from surgeon_passes.child import serve
from surgeon_passes.errors import UsageError


def answer(command: dict[str, Any]) -> dict[str, Any]:
    match command["do"]:
        case "echo":
            print("this is no answer")
            sys.stderr.write("a complaint\n" * 10_000)
            return {"said": command["text"]}
        case "fail":
            raise UsageError("a line of ours")
        case "err":
            raise KeyError("odd")
        case "hang":
            signal.pause()
        case "abort":
            os.abort()
    sys.stderr.write("the last words\n")
    sys.exit(3)


if __name__ == "__main__":
    if "broken" in sys.argv[1]:
        serve(lambda: {}["no operator"])
    serve(lambda: answer)

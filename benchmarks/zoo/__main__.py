"""Export the networks and say what each holds: ``python -m benchmarks.zoo [NAME …]``."""

from __future__ import annotations

import sys

import onnx

from benchmarks.zoo import files


def main() -> None:
    for label, path in files(sys.argv[1:]):
        nodes = onnx.load(path).graph.node
        print(f"{label:<44} {sum(n.op_type != 'Constant' for n in nodes):>5} nodes  {path}")


if __name__ == "__main__":
    main()

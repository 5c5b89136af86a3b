"""On which real and exported models each rule fires: ``python -m benchmarks.rules [NAME …]``.

Models: the wheels of packages.json, the folder that SURGEON_MODELS names and, where torch is installed, the networks of
``benchmarks/zoo``; each with the dims of its file, with fixed ones where it has open ones, and with the sets of rules that
are off by default, one at a time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx

from benchmarks.entries import is_dynamic, models, some
from surgeon_passes.cli.common import guarded, say

EXCEPTIONS = {
    "drop_dropout": "torch's exporters leave a Dropout of inference out",
    "drop_dropout_with_mask": "torch's exporters leave a Dropout of inference out",
    "merge_squeeze_unsqueeze": "in exports drop_reshape and merge_into_reshape come first; people write the pair by hand",
    "merge_unsqueeze_squeeze": "in exports drop_reshape and merge_into_reshape come first; people write the pair by hand",
}
"""Rules that fire on none of these models, and why they are kept."""

Fired = Mapping[str, Sequence[str]]
"""Names of models by name of rule."""


def tasks(names: Sequence[str]) -> Iterator[tuple[str, Path, dict[str, list[int]] | None]]:
    """Label, file and fixed shapes of every run."""
    for entry, path in models(names):
        yield entry["name"], path, None
        if is_dynamic(entry):
            yield entry["name"], path, entry["static_inputs"]
    try:
        from benchmarks.zoo import files

        for label, path in files(list(names)):
            yield label, path, None
    except ModuleNotFoundError as missing:
        print(f"{missing.name} is not installed: no exported networks", file=sys.stderr)


def fired(task: tuple[str, Path, dict[str, list[int]] | None]) -> tuple[str, set[str]]:
    """The model, and the rules that were applied to it, unverified."""
    import surgeon_passes as sp
    from surgeon_passes.pipeline import default_passes

    label, path, shapes = task
    result = sp.optimize(path, shapes, verify="off")
    found = {decision.rule for decision in result.applied}
    held = operators(result.proto) | operators(result.original)
    for sets, roots in optional_rules().items():
        if roots & held:
            rewrite = sp.Rewrite(*sp.Rewrite().sets, *sets, approximate=True, allow_lossy_casts=True)
            passes = [rewrite if isinstance(p, sp.Rewrite) else p for p in default_passes(shapes)]
            found |= {d.rule for d in sp.Pipeline(*passes).run(path, verify="off").applied}
    return label, found


def operators(proto: onnx.ModelProto | None) -> set[str]:
    """Operators of the main graph and of functions."""
    assert proto is not None
    return {node.op_type for nodes in (proto.graph.node, *(f.node for f in proto.functions)) for node in nodes}


def optional_rules() -> dict[tuple[str, ...], set[str]]:
    """Sets to ask for, and the operators at which their rules are rooted; under () what the default sets do on request."""
    import surgeon_passes as sp

    default = set(sp.Rewrite().sets)
    found: dict[tuple[str, ...], set[str]] = {(): {"Cast"}}
    for rule in sp.Registry.installed():
        roots = {op.name for op in rule.pattern.facts.roots}
        if not default & set(rule.sets):
            for name in rule.sets:
                found.setdefault((name,), set()).update(roots)
        elif rule.exactness is sp.Exactness.APPROXIMATE:
            found[()] |= roots
    return found


def collect(names: Sequence[str], jobs: int) -> Fired:
    """Every built-in rule, and the models on which it fired."""
    import surgeon_passes as sp

    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        results = list(pool.imap_unordered(fired, some(tasks(names), names)))
    return {
        rule.name: sorted({label for label, rules in results if rule.name in rules}) for rule in sp.Registry.installed()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a model's name")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = collect(options.names, options.jobs)
    if options.json:
        say(json.dumps(found, indent=1))
        return 0
    for rule, labels in found.items():
        shown = ", ".join(labels[:3]) + (f" and {len(labels) - 3} more" if len(labels) > 3 else "")
        say(f"{rule:<44} {len(labels):>3}  {shown}")
    never = [rule for rule, labels in found.items() if not labels]
    say(f"{len(found)} rules; on no model: {', '.join(never) or 'none'}")
    for rule in () if options.names else never:  # on some models alone most rules have nothing to do
        say(f"{rule}: {EXCEPTIONS.get(rule, 'NO REASON IS KNOWN')}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main, debug=False))

"""The built-in rules, one family a file, through the same door as anyone's plugin.

Every rule explains itself in its docstring: *Algebra*, *Declines when*, *Example*.
"""

FAMILIES = (
    "elimination",  # first: what does nothing must not hide a pattern from the rules below
    "pointwise",
    "cast",
    "concat",  # then data movement, for the same reason
    "pad",
    "slice",
    "reshape",
    "squeeze",
    "transpose",
    "expand",
    "broadcast",
    "resize",
    "uniform",
    "counting",
    "batch_norm",  # a Conv must have taken in its BatchNormalization …
    "affine",  # … and its scale before branches are summed
    "linear",  # constants are in weight and bias by now
    "decomposed",  # written-out operators: none of the above makes or breaks one
    "reparam",  # last: a branch is merged only when it is as short as it gets
    "npu_activation",  # target sets, off by default; of opposing rules only one side takes part in a run
    "npu_normalization",
    "npu_einsum",
    "npu_indexing",
    "npu_attention",
    "ort_gelu",
    "ort",
)
"""Modules in the default order of their rules."""

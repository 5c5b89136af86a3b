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
    "constant_chain",  # what no linear operator took in
    "affine_before",  # … and may take in what stands in front of it
    "linear",  # constants are in weight and bias by now
    "linear_branches",  # a sum of layers is one layer before a Gemm takes in the sum
    "gemm",  # what the weight itself cannot take in
    "clip",  # written-out operators: none of the above makes or breaks one
    "activation",
    "piecewise",
    "softmax",
    "normalization",
    "channel_normalization",
    "reduction",
    "rearrange",
    "rotary",
    "attention",
    "border",  # a written border is padding …
    "sequence",  # … and what is in a row becomes one …
    "reparam",  # … before branches are summed: each is as short as it gets
    "transposed_branches",
    "stacked",
    "npu_activation",  # target sets, off by default; of opposing rules only one side takes part in a run
    "npu_normalization",
    "npu_einsum",
    "npu_indexing",
    "npu_attention",
    "ort_gelu",
    "ort",
)
"""Modules in the default order of their rules."""

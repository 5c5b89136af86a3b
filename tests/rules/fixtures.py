"""Rules written as text, as the built-in ones are: for the tests of every stage that a rule goes through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class RuleText(NamedTuple):
    pattern: str
    rewrite: str | Mapping[str, str]
    has_function: bool = True


RULES: dict[str, RuleText] = {
    "fold_batch_norm_into_grouped_conv_transpose": RuleText(
        pattern="""
            c = ConvTranspose(x, w: const, b?: const)<group=@group>
            y = BatchNormalization(c, gamma: const, beta: const, mean: const, var: const)
        """,
        rewrite="y = ConvTranspose(x, W, B)<@c>",
    ),
    "merge_parallel_branches": RuleText(
        pattern="""
            branch(x) = Conv(x, w: const, b?: const)
                      | BatchNormalization(x, scale: const, bias: const, mean: const, var: const)
                      | x
            y = sum(branch(x)...)                   # any tree of Add / Sum
        """,
        rewrite="y = Conv(x, W, B)<@geometry>",
    ),
    "merge_conv_sequence": RuleText(
        pattern="""
            a = Conv(x, w1: const, b1?: const)<group=1>
            y = Conv(a, w2: const, b2?: const)<group=1>
        """,
        rewrite="y = Conv(x, W, B)<@y>",
    ),
    "merge_transposes": RuleText(
        pattern="""
            a = Transpose(x)<perm=@first>
            y = Transpose(a)<perm=@second>
        """,
        rewrite={"drop": "y = x", "merge": "y = Transpose(x)<perm=@perm>"},
    ),
    "make_reshape_static": RuleText(
        pattern="y = Reshape(x, t: partial)<allowzero=0>",
        rewrite="y = Reshape(x, T)",
    ),
    "fuse_gelu": RuleText(
        pattern="""
            d = Div(x, 1.4142135) | Mul(x, 0.70710678)
            y = prod(x, 0.5, sum(Erf(d), 1))
        """,
        rewrite='y = Gelu(x)<approximate="none">',
        has_function=False,
    ),
    "fuse_layer_normalization": RuleText(
        pattern="""
            mu = ReduceMean(x, axes: const)<keepdims=1>
            d = Sub(x, mu)
            square = Pow(d, 2) | Mul(d, d)
            variance = ReduceMean(square, axes: const)<keepdims=1>
            s = Sqrt(Add(variance, eps: const))
            n = Div(d, s) | Mul(d, Reciprocal(s))
            scaled = Mul(n, scale: const) | n
            y = Add(scaled, bias: const)
              | Mul(n, scale: const)
              | Div(d, s)
              | Mul(d, Reciprocal(s))
        """,
        rewrite="y = LayerNormalization(x, Scale, Bias)<axis=@axis, epsilon=@epsilon>",
    ),
    "move_pad_into_conv": RuleText(
        pattern="""
            p = Pad(x, amounts: const, value?: const, axes?: const)<mode="constant">
            y = Conv(p, w, b?)
        """,
        rewrite="y = Conv(x, w, b)<@y, pads=@P>",
    ),
    "drop_split_concat": RuleText(
        pattern="""
            parts... = Split(x, sizes?)<axis=@axis>
            y = Concat(parts...)<axis=@axis>
        """,
        rewrite="y = x",
        has_function=False,
    ),
    "drop_dropout": RuleText(
        pattern="y, mask? = Dropout(x, ratio?: const, training?: const)",
        rewrite={
            "mask_unused": "y = x",
            "mask_used": """
                y = x
                mask = ConstantOfShape(Shape(x))<value=@truth>
            """,
        },
    ),
    "merge_clips": RuleText(
        pattern="""
            a = Clip(x, low1?: const, high1?: const)
            y = Clip(a, low2?: const, high2?: const)
        """,
        rewrite="y = Clip(x, Low, High)",
    ),
    "merge_slices": RuleText(
        pattern="""
            a = Slice(x, starts1: const, ends1: const, axes1?: const, steps1?: const)
            y = Slice(a, starts2: const, ends2: const, axes2?: const, steps2?: const)
        """,
        rewrite="y = Slice(x, Starts, Ends, Axes, Steps)",
    ),
    "merge_squeeze_unsqueeze": RuleText(
        pattern="""
            s = Squeeze(x, gone?: const)
            y = Unsqueeze(s, back: const)
        """,
        rewrite={"drop": "y = x", "reshape": "y = Reshape(x, Target)"},
    ),
    "fuse_rotary_embedding": RuleText(
        pattern="""
            first, second = Split(x, halves?: const)<axis=-1>
            turned = Concat(Neg(second), first)<axis=-1>
            y = sum(prod(x, cos), prod(turned, sin))
        """,
        rewrite="y = RotaryEmbedding(x, Cos, Sin)",
    ),
}
"""Real rules: the ground that the language has to cover."""

GRAMMAR: dict[str, RuleText] = {
    "onnx_text": RuleText(
        pattern="""
            [node_1] a = Relu|com.microsoft.Gelu (x: unshared)
            [node_2] b = Clip (a, "", high)
            y, rest... = Split <axis: int = 1, num_outputs: int = 2> (b, )
        """,
        rewrite="""
            c = Clip(x, , high)
            y, rest = Split(@a(c)<@a>)<@y, axis = 1>
        """,
    ),
    "sum_of_many": RuleText(
        pattern="""
            half = [0.5, [1e-5, -inf], true]
            y = sum(x, Max(half, others...), rest...)
        """,
        rewrite="y = Sum(x, half, Max(others...), rest...)",
        has_function=False,
    ),
}
"""Corners of the grammar that no rule above needs."""

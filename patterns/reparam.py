"""Parallel linear branches on one tensor become one convolution: RepVGG, MobileOne, ACNet and their kin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from surgeon_passes import Decline, Leaf, Match, Replacement, rule

from ._affine_branch import AffineBranch, cheapest, merge, merged_cost
from ._branch_steps import frame_of, read_branch, sizes_of, steps_between, weights_of


@rule(
    pattern="""
        branch(x) = Conv(
                        Conv(Conv(x, w3, b3?) | x, w2, b2?) | AveragePool(x) | Mul|Div(x, k: const)
                        | BatchNormalization(x, scale, bias, mean, var) | x,
                        w, b?)
                  | BatchNormalization(
                        AveragePool(Conv(x, w, b?) | x) | Mul|Div(x, k: const) | x, scale, bias, mean, var)
                  | AveragePool(Conv(x, w, b?) | x)
                  | Mul|Div(AveragePool(x) | BatchNormalization(x, scale, bias, mean, var) | x, k: const)
                  | x
        y = sum(branch(x)...)
    """,
    rewrite="y = Conv(x, W, B)<@geometry>",
    exactness="rounding",
    sets=("reparam",),
    recursive=True,
    tag="merged",
)
def merge_parallel_branches(m: Match) -> Replacement:
    """A sum of convolutions, BatchNormalizations and the bare input, all of one tensor, is one Conv.

    Algebra
        convolution is linear in its kernel: Σ (k_i*x + b_i) = (Σ k_i)*x + Σ b_i, each kernel laid into the union of all
        taps at its own offset (1x1 at the centre of a padded 3x3, at the corner where the pads say so);
        a BatchNormalization is the depthwise 1x1 kernel s with bias beta - s·mean, the bare input the kernel 1;
        a branch with more groups is a block-diagonal one with fewer; one output channel broadcasts over all.
        Branches of equal stride and equal pads minus kernel reach are equally large for every input size;
        where the input's size is known, being equally large there is enough.

    Declines when
        fewer than two branches can be merged, or none of them is a Conv: strides, sizes or channels differ, a weight is
        not constant, a BatchNormalization trains, or var + epsilon <= 0 in some channel;
        the union of the kernels costs more than the branches do (1x3 + 3x1 is a 3x3).
        Branches that cannot take part stay and are added to the result.

    Example
        before:
            g (float[1,1,H,W] x) => (float[1,1,H,W] y) {
                w3 = Constant<value = float[1,1,3,1] {1.0, 2.0, 3.0}>()
                w1 = Constant<value = float[1,1,1,1] {4.0}>()
                b1 = Constant<value = float[1] {0.5}>()
                three = Conv<pads = [1, 0, 1, 0]>(x, w3)
                one = Conv(x, w1, b1)
                both = Add(three, one)
                y = Add(both, x)
            }
        after:
            g (float[1,1,H,W] x) => (float[1,1,H,W] y) {
                w = Constant<value = float[1,1,3,1] {1.0, 7.0, 3.0}>()
                b = Constant<value = float[1] {0.5}>()
                y = Conv<pads = [1, 0, 1, 0], kernel_shape = [3, 1], strides = [1, 1], dilations = [1, 1], group = 1>(x, w, b)
            }
    """
    sizes = sizes_of(m.x)
    readable, reasons = _read(m)
    chosen = _choose(readable, sizes, reasons)
    taken = {id(leaf) for leaf, _ in chosen}
    result = merge([branch for _, branch in chosen])
    bias = result.bias if result.bias.any() or any(_has_bias(leaf) for leaf, _ in chosen) else None
    return Replacement(
        W=result.kernel,
        B=bias,
        geometry=result.attributes(),
        leave=[leaf for leaf in m.branches if id(leaf) not in taken],
    )


Sizes = Sequence[object] | None
Readable = list[tuple[Leaf, AffineBranch]]


def _has_bias(leaf: Leaf) -> bool:
    return any(step.op == "Conv" and step.operand(2) is not None for step in leaf.steps)


def _has_conv(leaf: Leaf) -> bool:
    return any(step.op == "Conv" for step in leaf.steps)


def _read(m: Match) -> tuple[Readable, list[str]]:
    """Leaves as branches, convolutions first; what stopped the others."""
    chains = [leaf.steps for leaf in m.branches]
    frame, budget = frame_of(chains, m.x), sum(map(weights_of, chains))
    found: Readable = []
    reasons: list[str] = []
    for leaf in sorted(m.branches, key=lambda leaf: not _has_conv(leaf)):
        try:
            found.append((leaf, read_branch(leaf.steps, frame, budget)))
        except Decline as decline:
            reasons.append(f"{leaf.out.name}: {decline}")
    if not any(_has_conv(leaf) for leaf, _ in found):
        raise Decline("; ".join(["no branch is a Conv that can be merged", *reasons]))
    return found, reasons


def _choose(readable: Readable, sizes: Sizes, reasons: list[str]) -> Readable:
    """The largest set of branches that fit together and cost no more merged. Raises Decline where there is none."""
    outputs = max(branch.outputs for _, branch in readable)
    classes: dict[object, Readable] = defaultdict(list)
    for leaf, branch in readable:
        # One output channel is broadcast by the sum; a bare input of one channel, too.
        channels = outputs if branch.outputs == 1 and branch.group == 1 else branch.outputs
        classes[branch.sizing(sizes), channels].append((leaf, branch))
    able = [c for c in classes.values() if len(c) > 1 and any(_has_conv(leaf) for leaf, _ in c)]
    if not able:
        raise Decline(
            "; ".join(
                ["no two branches fit together", _differences([branch for _, branch in readable], sizes), *reasons]
            )
        )
    for members in sorted(able, key=len, reverse=True):
        positions = cheapest([branch for _, branch in members])
        chosen = [members[i] for i in positions]
        if len(chosen) > 1 and any(_has_conv(leaf) for leaf, _ in chosen):
            return chosen
    branches = [branch for _, branch in able[0]]
    before, after = sum(b.cost for b in branches), merged_cost(branches)
    raise Decline("; ".join([f"merged they would cost {after / before:.3g}x ({before} to {after} weights)", *reasons]))


def _differences(branches: Sequence[AffineBranch], sizes: Sizes) -> str:
    if len(branches) < 2:
        return "only one can be merged"
    found = []
    if len({b.strides for b in branches}) > 1:
        found.append("strides " + " and ".join(sorted({str(list(b.strides)) for b in branches})))
    elif len({b.sizing(sizes) for b in branches}) > 1:
        found.append("output sizes differ")
    if len({b.outputs for b in branches}) > 1:
        found.append("channels " + " and ".join(map(str, sorted({b.outputs for b in branches}))))
    return ", ".join(found) or "none is a Conv"


@rule(
    pattern="""
        c = Conv(x, w: const, b?: const)
        d = Conv(x, v: const, e?: const)
          | BatchNormalization(AveragePool(x) | x, scale: const, bias: const, mean: const, var: const)
          | AveragePool(x) | Mul|Div(x, k: const) | x
        y = Sub(c, d) | Sub(d, c)
    """,
    rewrite="y = Conv(x, W, B)<@geometry>",
    exactness="rounding",
    sets=("reparam",),
    recursive=True,
    tag="merged",
)
def merge_branch_difference(m: Match) -> Replacement:
    """A Conv less another linear branch on the same tensor (the token mixer of FastViT), or that less the Conv, is one Conv.

    Algebra
        that of merge_parallel_branches, the kernel and the bias of what is taken away negated

    Declines when
        strides, sizes or channels differ; the union of the kernels costs more than both do;
        a weight is not finite, a BatchNormalization trains, or var + epsilon <= 0 in some channel;
        a branch has another user.

    Example
        before:
            g (float[1,1,H] x) => (float[1,1,H] y) {
                w = Constant<value = float[1,1,3] {1.0, 2.0, 3.0}>()
                c = Conv<pads = [1, 1]>(x, w)
                y = Sub(c, x)
            }
        after:
            g (float[1,1,H] x) => (float[1,1,H] y) {
                w = Constant<value = float[1,1,3] {1.0, 1.0, 3.0}>()
                y = Conv<pads = [1, 1], kernel_shape = [3], strides = [1], dilations = [1], group = 1>(x, w)
            }
    """
    first, second = (steps_between(m.x, t) for t in (m.c, m.d))
    frame = frame_of([first], m.x)
    budget = weights_of(first) + weights_of(second)
    branches = [read_branch(steps, frame, budget) for steps in (first, second)]
    minuend = m.y.node.input(0)
    taken = 1 if minuend is m.c.tensor else 0
    branches[taken] = replace(branches[taken], kernel=-branches[taken].kernel, bias=-branches[taken].bias)
    sizes = sizes_of(m.x)
    if branches[0].sizing(sizes) != branches[1].sizing(sizes) or branches[0].outputs != branches[1].outputs:
        raise Decline(f"no two branches fit together; {_differences(branches, sizes)}")
    before, after = sum(b.cost for b in branches), merged_cost(branches)
    if after > before:
        raise Decline(f"merged they would cost {after / before:.3g}x ({before} to {after} weights)")
    result = merge(branches)
    has_bias = result.bias.any() or m.b is not None
    return Replacement(W=result.kernel, B=result.bias if has_bias else None, geometry=result.attributes())

"""Inference BatchNormalization into the linear operator in front of it; by itself, on request, into a Mul and an Add.

A BatchNormalization whose statistics are constant is ``y -> s·y + t`` on each index of axis 1, with
``s = gamma / sqrt(var + epsilon)`` and ``t = beta - s·mean``. A linear operator whose output channels lie there takes
``s`` into its weight and ``t`` into its bias. All is computed in float64 and rounded once.
"""

from __future__ import annotations

from surgeon_passes import Decline, Match, Replacement, rule

from ._arrays import Affine, Floats, along, batch_norm, channel_vector, finite, output_channels, product, scale_outputs


def _affine(m: Match) -> Affine:
    return batch_norm(m.y, m.gamma, m.beta, m.mean, m.var)


@rule(
    pattern="""
        c = Conv(x, w: const, b?: const)
        y = BatchNormalization(c, gamma: const, beta: const, mean: const, var: const)
    """,
    rewrite="y = Conv(x, W, B)<@c>",
    exactness="rounding",
    sets=("fusion",),
    tag="bn_folded",
)
def fold_batch_norm_into_conv(m: Match) -> Replacement:
    """Conv then inference BatchNormalization is one Conv, in any rank and with any group.

    Algebra
        s = gamma / sqrt(var + epsilon);  W = s·w per output channel;  B = s·(b - mean) + beta

    Declines when
        the BatchNormalization still trains (training_mode = 1, or its statistics are used);
        var + epsilon <= 0 in some channel (the original gives NaN there: not ours to repair);
        weight, bias or a statistic is not constant, is empty, or holds NaN or infinities.

    Example
        before:
            g (float[1,1,H,W] x) => (float[1,2,H,W] y) {
                w = Constant<value = float[2,1,1,1] {1.0, 2.0}>()
                gamma = Constant<value = float[2] {2.0, 3.0}>()
                beta = Constant<value = float[2] {0.5, 0.0}>()
                mean = Constant<value = float[2] {1.0, 2.0}>()
                var = Constant<value = float[2] {3.0, 8.0}>()
                c = Conv(x, w)
                y = BatchNormalization<epsilon = 1.0>(c, gamma, beta, mean, var)
            }
        after:
            g (float[1,1,H,W] x) => (float[1,2,H,W] y) {
                w = Constant<value = float[2,1,1,1] {1.0, 2.0}>()
                b = Constant<value = float[2] {-0.5, -2.0}>()
                y = Conv(x, w, b)
            }
    """
    return _fold_convolution(m)


@rule(
    pattern="""
        c = ConvTranspose(x, w: const, b?: const)
        y = BatchNormalization(c, gamma: const, beta: const, mean: const, var: const)
    """,
    rewrite="y = ConvTranspose(x, W, B)<@c>",
    exactness="rounding",
    sets=("fusion",),
    tag="bn_folded",
)
def fold_batch_norm_into_conv_transpose(m: Match) -> Replacement:
    """ConvTranspose then inference BatchNormalization is one ConvTranspose.

    Algebra
        s = gamma / sqrt(var + epsilon);  B = s·(b - mean) + beta;
        the weight is [C_in, C_out/group, k…]: W[i, o] = s[g(i)·C_out/group + o]·w[i, o], g(i) the group of row i

    Declines when
        the BatchNormalization still trains (training_mode = 1, or its statistics are used);
        var + epsilon <= 0 in some channel (the original gives NaN there: not ours to repair);
        weight, bias or a statistic is not constant, is empty, or holds NaN or infinities.

    Example
        before:
            g (float[1,2,H,W] x) => (float[1,2,H2,W2] y) {
                w = Constant<value = float[2,1,1,2] {1.0, 2.0, 3.0, 4.0}>()
                gamma = Constant<value = float[2] {2.0, 3.0}>()
                beta = Constant<value = float[2] {0.5, 0.0}>()
                mean = Constant<value = float[2] {1.0, 2.0}>()
                var = Constant<value = float[2] {0.0, 8.0}>()
                c = ConvTranspose<group = 2>(x, w)
                y = BatchNormalization<epsilon = 1.0>(c, gamma, beta, mean, var)
            }
        after:
            g (float[1,2,H,W] x) => (float[1,2,H2,W2] y) {
                w = Constant<value = float[2,1,1,2] {2.0, 4.0, 3.0, 4.0}>()
                b = Constant<value = float[2] {-1.5, -2.0}>()
                y = ConvTranspose<group = 2>(x, w, b)
            }
    """
    return _fold_convolution(m)


def _fold_convolution(m: Match) -> Replacement:
    op, group = m.c.op, m.c.attr("group")
    weight = finite(m.w)
    affine = _affine(m)
    affine.require_channels(output_channels(op, weight, group), f"the {op}")
    bias = affine.scale * finite(m.b) + affine.shift if m.b is not None else affine.shift
    return Replacement(W=scale_outputs(op, weight, affine.scale, group), B=bias)


@rule(
    pattern="""
        c = Gemm(x, w: const, b?: const)
        y = BatchNormalization(c, gamma: const, beta: const, mean: const, var: const)
    """,
    rewrite="y = Gemm(x, W, B)<@c, beta=1.0>",
    exactness="rounding",
    sets=("fusion",),
    opset=(7, None),
    tag="bn_folded",
)
def fold_batch_norm_into_gemm(m: Match) -> Replacement:
    """Gemm then inference BatchNormalization is one Gemm.

    Algebra
        the BatchNormalization is s·y + t per column: s·(alpha·A·W + beta·C) + t = alpha·A·(W·diag(s)) + (s·beta·C + t);
        with transB the rows of W are scaled

    Declines when
        the BatchNormalization still trains, or var + epsilon <= 0 in some channel;
        weight, bias or a statistic is not constant, is empty, or holds NaN or infinities;
        the bias is not one number a column ([M, 1] runs along the rows).

    Example
        before:
            g (float[N,1] x) => (float[N,2] y) {
                w = Constant<value = float[2,1] {1.0, 2.0}>()
                b = Constant<value = float[2] {1.0, 1.0}>()
                gamma = Constant<value = float[2] {2.0, 3.0}>()
                beta = Constant<value = float[2] {0.5, 0.0}>()
                mean = Constant<value = float[2] {1.0, 2.0}>()
                var = Constant<value = float[2] {3.0, 8.0}>()
                c = Gemm<transB = 1, beta = 2.0>(x, w, b)
                y = BatchNormalization<epsilon = 1.0>(c, gamma, beta, mean, var)
            }
        after:
            g (float[N,1] x) => (float[N,2] y) {
                w = Constant<value = float[2,1] {1.0, 2.0}>()
                b = Constant<value = float[2] {1.5, 0.0}>()
                y = Gemm<transB = 1, beta = 1.0>(x, w, b)
            }
    """
    weight = finite(m.w)
    axis = 0 if m.c.attr("transB") else 1
    affine = _affine(m)
    affine.require_channels(weight.shape[axis], "the Gemm")
    bias = affine.shift
    if m.b is not None and m.c.attr("beta") != 0:
        held = channel_vector(m.b, affine.channels, axis=1, rank=2)
        bias = affine.scale * m.c.attr("beta") * held + affine.shift
    return Replacement(W=product(weight, along(affine.scale, axis, 2)), B=bias)


@rule(
    pattern="""
        c = MatMul(x, w: const) | Add(MatMul(x, w: const), b: const)
        y = BatchNormalization(c, gamma: const, beta: const, mean: const, var: const)
    """,
    rewrite="y = Gemm(x, W, B)",
    exactness="rounding",
    sets=("fusion",),
    opset=(7, None),
    tag="bn_folded",
)
def fold_batch_norm_into_matmul(m: Match) -> Replacement:
    """A MatMul of matrices, with or without a bias, then inference BatchNormalization is one Gemm.

    Algebra
        BN(A·w + b) = A·(w·diag(s)) + s·(b - mean) + beta

    Declines when
        the product is not known to be a matrix: BatchNormalization works on axis 1, which is the last one only there;
        the BatchNormalization still trains, or var + epsilon <= 0 in some channel;
        weight, bias or a statistic is not constant, is empty, or holds NaN or infinities;
        the bias is not one number a column.

    Example
        before:
            g (float[N,1] x) => (float[N,2] y) {
                w = Constant<value = float[1,2] {1.0, 2.0}>()
                b = Constant<value = float[2] {1.0, 1.0}>()
                gamma = Constant<value = float[2] {2.0, 3.0}>()
                beta = Constant<value = float[2] {0.5, 0.0}>()
                mean = Constant<value = float[2] {1.0, 2.0}>()
                var = Constant<value = float[2] {3.0, 8.0}>()
                p = MatMul(x, w)
                c = Add(b, p)
                y = BatchNormalization<epsilon = 1.0>(c, gamma, beta, mean, var)
            }
        after:
            g (float[N,1] x) => (float[N,2] y) {
                w = Constant<value = float[1,2] {1.0, 2.0}>()
                b = Constant<value = float[2] {0.5, -1.0}>()
                y = Gemm(x, w, b)
            }
    """
    weight = finite(m.w)
    rank = m.x.rank
    if weight.ndim != 2 or rank != 2:
        shown = "of unknown rank" if rank is None else f"of rank {max(rank, weight.ndim)}"
        raise Decline(f"the MatMul is {shown}: the BatchNormalization's axis 1 is its last axis only in rank 2")
    return _scale_columns(m, weight, rank=2)


@rule(
    pattern="""
        c = MatMul(x, w: const) | Add(MatMul(x, w: const), b: const)
        t = Transpose(c)<perm=@perm>
        y = BatchNormalization(t, gamma: const, beta: const, mean: const, var: const)
    """,
    rewrite="y = Transpose(Add(MatMul(x, W), B))<@t>",
    exactness="rounding",
    sets=("fusion",),
    opset=(7, None),
    tag="bn_folded",
)
def fold_batch_norm_into_transposed_matmul(m: Match) -> Replacement:
    """A Linear layer whose features are moved to axis 1 for a BatchNormalization takes it in, in any rank.

    Algebra
        where perm[1] is the last axis, BN(transpose(A·w + b)) = transpose(A·(w·diag(s)) + s·(b - mean) + beta)

    Declines when
        perm does not bring the last axis to place 1;
        the BatchNormalization still trains, or var + epsilon <= 0 in some channel;
        weight, bias or a statistic is not constant, is empty, or holds NaN or infinities;
        the bias is not one number a feature.

    Example
        before:
            g (float[N,T,1] x) => (float[N,2,T] y) {
                w = Constant<value = float[1,2] {1.0, 2.0}>()
                gamma = Constant<value = float[2] {2.0, 3.0}>()
                beta = Constant<value = float[2] {0.5, 0.0}>()
                mean = Constant<value = float[2] {1.0, 2.0}>()
                var = Constant<value = float[2] {3.0, 8.0}>()
                c = MatMul(x, w)
                t = Transpose<perm = [0, 2, 1]>(c)
                y = BatchNormalization<epsilon = 1.0>(t, gamma, beta, mean, var)
            }
        after:
            g (float[N,T,1] x) => (float[N,2,T] y) {
                w = Constant<value = float[1,2] {1.0, 2.0}>()
                b = Constant<value = float[2] {-0.5, -2.0}>()
                p = MatMul(x, w)
                c = Add(p, b)
                y = Transpose<perm = [0, 2, 1]>(c)
            }
    """
    weight = finite(m.w)
    perm = m.attr("perm")
    if weight.ndim != 2 or perm is None or len(perm) < 2 or perm[1] != len(perm) - 1:
        raise Decline(f"perm {perm} does not bring the MatMul's last axis to axis 1")
    return _scale_columns(m, weight, rank=len(perm))


def _scale_columns(m: Match, weight: Floats, rank: int) -> Replacement:
    affine = _affine(m)
    affine.require_channels(weight.shape[1], "the MatMul")
    bias = affine.shift
    if m.b is not None:
        bias = affine.scale * channel_vector(m.b, affine.channels, axis=rank - 1, rank=rank) + affine.shift
    return Replacement(W=product(weight, affine.scale), B=bias)


# --- on request ----------------------------------------------------------------------------------------------------------


@rule(
    pattern="y = BatchNormalization(x, gamma: const, beta: const, mean: const, var: const)",
    rewrite={"both": "y = Add(Mul(x, S), T)", "scale": "y = Mul(x, S)"},
    exactness="rounding",
    sets=("batch_norm",),
    opset=(7, None),
    may_grow=True,
    tag="bn_written",
)
def write_batch_norm_as_mul_add(m: Match) -> Replacement:
    """Inference BatchNormalization by itself is a Mul and an Add: for compilers without one. Off by default.

    Algebra
        s = gamma / sqrt(var + epsilon);  y = s·x + (beta - s·mean), both [C, 1, …]

    Declines when
        the BatchNormalization still trains, or var + epsilon <= 0 in some channel;
        a statistic is not constant, or holds NaN or infinities; the rank of x is unknown.

    Example
        before:
            g (float[N,2,W] x) => (float[N,2,W] y) {
                gamma = Constant<value = float[2] {2.0, 3.0}>()
                beta = Constant<value = float[2] {0.5, 0.0}>()
                mean = Constant<value = float[2] {1.0, 2.0}>()
                var = Constant<value = float[2] {3.0, 8.0}>()
                y = BatchNormalization<epsilon = 1.0>(x, gamma, beta, mean, var)
            }
        after:
            g (float[N,2,W] x) => (float[N,2,W] y) {
                s = Constant<value = float[2,1] {1.0, 1.0}>()
                t = Constant<value = float[2,1] {-0.5, -2.0}>()
                p = Mul(x, s)
                y = Add(p, t)
            }
    """
    rank = m.x.rank
    if rank is None or rank < 2:
        raise Decline(f"the rank of '{m.x.name}' is unknown, or below 2")
    affine = _affine(m)
    scale, shift = (along(v, 0, rank - 1) for v in (affine.scale, affine.shift))
    return Replacement("both", S=scale, T=shift) if affine.shifts else Replacement("scale", S=scale)

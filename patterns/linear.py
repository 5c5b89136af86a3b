"""Linear layers: one Gemm where they act on matrices, MatMul and Add where they act on the last axis of more dims.

A Gemm that is wrapped in two Reshapes needs the sizes of its input to restore them: MatMul does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._arrays import GEMM_TYPES, Floats, floats
from ._dims import ints, same_shape


@rule(
    pattern="""
        p = MatMul(x, w: const)
        y = Add(p, b: const)
    """,
    rewrite="y = Gemm(x, w, b)",
    exactness="rounding",
    sets=("fusion",),
    opset=(7, None),
)
def fuse_linear(m: Match) -> Replacement:
    """A MatMul of matrices and the bias that is added to it are one Gemm.

    Algebra
        Gemm(x, w, b) = x·w + b, with b broadcast to the product's shape

    Declines when
        x or w is no matrix, or the rank of x is unknown;
        the bias may enlarge the product: it has more dims, or one besides 1 that the product is not known to have;
        the type is none that ONNX Runtime has a Gemm for;
        the product is used elsewhere.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                w = Constant<value = float[2,2] {1.0, 2.0, 3.0, 4.0}>()
                b = Constant<value = float[2] {0.5, 1.0}>()
                p = MatMul(x, w)
                y = Add(p, b)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                w = Constant<value = float[2,2] {1.0, 2.0, 3.0, 4.0}>()
                b = Constant<value = float[2] {0.5, 1.0}>()
                y = Gemm(x, w, b)
            }
    """
    if m.x.rank is None:
        raise Decline(f"the rank of '{m.x.name}' is unknown")
    if m.x.rank != 2 or m.w.rank != 2:
        raise Decline
    _require_gemm_type(m.w)
    _require_within(m.b, (m.x.shape[0], m.w.shape[1]))
    return Replacement()


def _require_gemm_type(weight: Operand) -> None:
    if weight.dtype not in GEMM_TYPES:
        raise Decline(f"ONNX Runtime has no Gemm for the type of '{weight.name}'")


def _require_within(bias: Operand, product: tuple[Any, ...]) -> None:
    """That a constant broadcasts to the shape of a matrix and does not enlarge it."""
    shape = bias.value.shape
    dims = list(zip(reversed(shape), reversed(product), strict=False))
    if len(shape) > 2 or any(d not in (1, own) for d, own in dims):
        raise Decline(f"the bias '{bias.name}' of shape {list(shape)} may enlarge the product")


# --- Reshape, Gemm, Reshape ----------------------------------------------------------------------------------------------


@rule(
    pattern="""
        f = Reshape(x, rows) | Flatten(x)
        g = Gemm(f, w: const, b?: const)<transA=0>
        y = Reshape(g, t)
    """,
    rewrite={"bias": "y = Add(MatMul(x, W), B)", "plain": "y = MatMul(x, W)"},
    exactness="rounding",
    sets=("fusion",),
    opset=(7, None),
    tag="unflattened",
)
def unflatten_linear(m: Match) -> Replacement:
    """A Gemm between a Reshape to rows and a Reshape back is a MatMul and an Add on x itself.

    Algebra
        each row of the matrix is the last axis of x at one place, and the result stands at that place again:
        y[…, :] = alpha·x[…, :]·W + beta·b; no size of x is needed for that

    Declines when
        the rows are not certainly x's last axis, or the result does not certainly have x's other dims;
        the bias is not one number a feature;
        a transposed weight is used elsewhere, so that a second copy would be held;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N,T,2] x) => (float[N,T,3] y) {
                rows = Constant<value = int64[2] {-1, 2}>()
                w = Constant<value = float[2,3] {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}>()
                b = Constant<value = float[3] {0.5, 1.0, 1.5}>()
                zero = Constant<value = int64[1] {0}>()
                one = Constant<value = int64[1] {1}>()
                three = Constant<value = int64[1] {3}>()
                shape = Shape(x)
                n = Gather(shape, zero)
                t = Gather(shape, one)
                back = Concat<axis = 0>(n, t, three)
                f = Reshape(x, rows)
                g = Gemm(f, w, b)
                y = Reshape(g, back)
            }
        after:
            g (float[N,T,2] x) => (float[N,T,3] y) {
                w = Constant<value = float[2,3] {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}>()
                b = Constant<value = float[3] {0.5, 1.0, 1.5}>()
                p = MatMul(x, w)
                y = Add(p, b)
            }
    """
    transposed = bool(m.g.attr("transB"))
    weight = floats(m.w).T if transposed else floats(m.w)
    features, outputs = weight.shape
    _require_rows(m.x, m.f, features)
    if not _restores(m, outputs):
        raise Decline(f"'{m.y.name}' does not certainly have the leading dims of '{m.x.name}'")
    if transposed and m.w.is_shared:
        raise Decline(f"the weight '{m.w.name}' has other users: transposing it would keep a second copy")
    alpha = m.g.attr("alpha")
    values = {"W": m.w if alpha == 1 and not transposed else alpha * weight}
    bias = _feature_bias(m.b, outputs, m.g.attr("beta"))
    return Replacement("plain", **values) if bias is None else Replacement("bias", **values, B=bias)


def _require_rows(x: Operand, flat: Operand, features: int) -> None:
    """That the rows of ``flat`` are x's last axis, ``features`` long."""
    shape, rows = x.shape, flat.shape
    if not shape or shape[-1] != features or features == 0:
        raise Decline(f"the last dim of '{x.name}' is not known to be {features}")
    if rows is None or len(rows) != 2:
        raise Decline(f"'{flat.name}' is not known to be a matrix")
    if rows[1] != features:
        raise Decline(f"the rows of '{flat.name}' are not known to be {features} long")


def _restores(m: Match, outputs: int) -> bool:
    """Whether ``y`` certainly has x's dims, the last one replaced."""
    m.value("t")  # where it is computed, the verification covers how
    shape = m.x.shape
    return shape is not None and outputs > 0 and same_shape((*shape[:-1], outputs), m.y.shape)


def _feature_bias(bias: Operand | None, outputs: int, beta: float = 1) -> Floats | Operand | None:
    """beta·bias as [outputs] or one number; None where there is none. Raises Decline for one that varies over rows."""
    if bias is None or beta == 0:
        return None
    values = floats(bias)
    if values.size != 1 and not values.shape[-1] == values.size == outputs:
        raise Decline(f"the bias '{bias.name}' of shape {list(values.shape)} is not one number a feature")
    return bias if beta == 1 and values.ndim < 2 else beta * values.reshape(-1)


# --- before heads are split ----------------------------------------------------------------------------------------------


@rule(
    pattern="""
        p = MatMul(x, w: const)
        s = Add(p, b: const)
        y = Reshape(s, t: const)
    """,
    rewrite="y = Reshape(Gemm(Reshape(x, Rows), w, B), T)<@y>",
    exactness="rounding",
    sets=("fusion",),
    opset=(7, None),
    tag="flattened",
)
def flatten_linear(m: Match) -> Replacement:
    """A linear layer whose result is reshaped anyway is a Gemm on the rows of x, where another layer reads those rows too.

    Algebra
        y[…, :] = x[…, :]·W + b row by row, and the last Reshape says the shape; Reshape(x, [-1, K]) is then one node for
        all layers that read x (query, key and value)

    Declines when
        no other such layer reads x: nothing would be shared;
        the Reshape restores x's own dims (unflatten_linear undoes that), or a 0 in its target copies a dim not known;
        x has fewer than three dims; the bias is not one number a feature;
        the inner results are used elsewhere.

    Example
        before:
            g (float[3,2,2] x) => (float[6,2,1] y, float[2,3,2] z) {
                w = Constant<value = float[2,2] {1.0, 2.0, 3.0, 4.0}>()
                b = Constant<value = float[2] {0.5, 1.0}>()
                t = Constant<value = int64[3] {6, -1, 1}>()
                p = MatMul(x, w)
                s = Add(p, b)
                y = Reshape(s, t)
                rows = Constant<value = int64[2] {-1, 2}>()
                back = Constant<value = int64[3] {2, 3, 2}>()
                f = Reshape(x, rows)
                h = Gemm(f, w, b)
                z = Reshape(h, back)
            }
        after:
            g (float[3,2,2] x) => (float[6,2,1] y, float[2,3,2] z) {
                w = Constant<value = float[2,2] {1.0, 2.0, 3.0, 4.0}>()
                b = Constant<value = float[2] {0.5, 1.0}>()
                t = Constant<value = int64[3] {6, -1, 1}>()
                rows = Constant<value = int64[2] {-1, 2}>()
                q = Reshape(x, rows)
                g = Gemm(q, w, b)
                y = Reshape(g, t)
                back = Constant<value = int64[3] {2, 3, 2}>()
                f = Reshape(x, rows)
                h = Gemm(f, w, b)
                z = Reshape(h, back)
            }
    """
    bias = _flat_bias(m, m.w, m.b)
    if not any(_is_linear(node, m) for node in m.x.consumers if all(node is not own for own in m.matched)):
        raise Decline(f"no other linear layer reads the rows of '{m.x.name}'")
    return Replacement(Rows=_rows(m.w), B=bias, T=_flat_target(m, m.w))


@rule(
    pattern="""
        h = Add(MatMul(x, w: const), c: const)
        u = Relu|LeakyRelu|Elu|Selu|Sigmoid|HardSigmoid|HardSwish|Tanh|Gelu|Softplus|Erf(h)
        p = MatMul(u, v: const)
        s = Add(p, b: const)
        y = Reshape(s, t: const)
    """,
    rewrite="y = Reshape(Gemm(@u(Gemm(Reshape(x, Rows), w, C))<@u>, v, B), T)<@y>",
    exactness="rounding",
    sets=("fusion",),
    opset=(7, None),
    tag="flattened",
)
def flatten_two_linears(m: Match) -> Replacement:
    """Two linear layers with an activation between them, whose result is reshaped anyway, are two Gemms on the rows of x.

    Algebra
        every step works row by row, and the last Reshape says the shape: one Reshape to rows saves two Adds

    Declines when
        the Reshape restores x's own dims, or a 0 in its target copies a dim not known;
        x has fewer than three dims; a bias is not one number a feature;
        the inner results are used elsewhere.

    Example
        before:
            g (float[N,2,2] x) => (float[M] y) {
                w = Constant<value = float[2,2] {1.0, 2.0, 3.0, 4.0}>()
                c = Constant<value = float[2] {0.5, 1.0}>()
                v = Constant<value = float[2,1] {1.0, -1.0}>()
                b = Constant<value = float[1] {0.25}>()
                t = Constant<value = int64[1] {-1}>()
                o = MatMul(x, w)
                h = Add(o, c)
                u = Relu(h)
                p = MatMul(u, v)
                s = Add(p, b)
                y = Reshape(s, t)
            }
        after:
            g (float[N,2,2] x) => (float[M] y) {
                w = Constant<value = float[2,2] {1.0, 2.0, 3.0, 4.0}>()
                c = Constant<value = float[2] {0.5, 1.0}>()
                v = Constant<value = float[2,1] {1.0, -1.0}>()
                b = Constant<value = float[1] {0.25}>()
                t = Constant<value = int64[1] {-1}>()
                rows = Constant<value = int64[2] {-1, 2}>()
                f = Reshape(x, rows)
                h = Gemm(f, w, c)
                u = Relu(h)
                s = Gemm(u, v, b)
                y = Reshape(s, t)
            }
    """
    inner, outer = _flat_bias(m, m.w, m.c), _flat_bias(m, m.v, m.b)
    return Replacement(Rows=_rows(m.w), C=inner, B=outer, T=_flat_target(m, m.v))


def _flat_bias(m: Match, weight: Operand, bias: Operand) -> Floats | Operand | None:
    """The bias of a layer that can be a Gemm on the rows of x. Raises Decline where it cannot."""
    if m.x.rank is None or m.x.rank < 3 or weight.rank != 2:
        raise Decline
    if 0 in weight.value.shape:
        raise Decline("the layer is empty")
    _require_gemm_type(weight)
    if bias.value.ndim > m.x.rank:
        raise Decline(f"the bias '{bias.name}' raises the rank")
    return _feature_bias(bias, weight.value.shape[1])


def _rows(weight: Operand) -> Any:
    return np.array([-1, weight.value.shape[0]], np.int64)


def _flat_target(m: Match, weight: Operand) -> Any:
    """The target of the last Reshape, for the matrix that is there now."""
    if _restores(m, weight.value.shape[1]):
        raise Decline("the Reshape gives back the shape that it gets")
    return np.array(ints(m.t) if m.y.attr("allowzero") else _without_copies(m), np.int64)


def _without_copies(m: Match) -> list[int]:
    """The target with the size, or -1, for each 0: the dims that it copies are no longer there."""
    found = ints(m.t)
    shape = m.s.shape or ()
    for place, entry in enumerate(found):
        if entry == 0:
            dim = shape[place] if place < len(shape) else None
            found[place] = dim if isinstance(dim, int) and dim > 0 else -1
    if found.count(-1) > 1:
        raise Decline(f"a 0 in the target {ints(m.t)} copies a dim of '{m.s.name}' that is not known")
    return found


def _is_linear(node: Any, m: Match) -> bool:
    """Whether ``node``, a reader of x, is a linear layer before a constant Reshape, or the Reshape before a Gemm."""
    first = Operand(node.outputs[0], m.context)
    if node.op == "Reshape":
        return first.rank == 2 and any(c.op == "Gemm" for c in first.consumers)
    if node.op != "MatMul" or node.inputs[0] is not m.x.tensor:
        return False
    total = _only_reader(first, "Add", m)
    shaped = None if total is None else _only_reader(total, "Reshape", m)
    return shaped is not None and isinstance(Operand(shaped.node.node.inputs[1], m.context).value, np.ndarray)


def _only_reader(tensor: Operand, op: str, m: Match) -> Operand | None:
    """The result of the node that alone reads ``tensor``, where it is of this operator."""
    readers = tensor.consumers
    if tensor.is_shared or len(readers) != 1 or readers[0].op != op:
        return None
    return Operand(readers[0].outputs[0], m.context)

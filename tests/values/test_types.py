"""Types: onnx's inference on a light copy, hints that may be stale, refinement, contradictions, writing back."""

from __future__ import annotations

from unittest import mock

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto, helper

from surgeon_passes.errors import ContradictionError
from surgeon_passes.index import GraphIndex
from surgeon_passes.model import import_model
from surgeon_passes.region import TensorType
from surgeon_passes.values import Evaluator, Partial, Poly, TypeMap
from surgeon_passes.values.inference import model_types
from surgeon_passes.values.registry import Entry
from tests.values.build import dims, evaluator, model, run

F32 = np.float32


def hint(proto, name, shape, elem_type=TensorProto.FLOAT):
    proto.graph.value_info.append(helper.make_tensor_value_info(name, elem_type, shape))
    return proto


def test_stale_value_info_is_recomputed_and_reported():
    proto = model(
        "(float[4,3] x) => (float[] y) { h = MatMul(x, w) s = Shape(h) n = Gather(s, i0) f = Cast<to=1>(n) y = Div(h, f) }",
        w=np.ones((3, 2), F32),
        i0=np.int64(0),
    )
    ev = evaluator(hint(proto, "h", [1, 2]))
    assert dims(ev, "h") == ["4", "2"]
    assert ev.value("n").tolist() == 4
    assert [str(s) for s in ev.types.stale()] == ["'h' is declared [1, 2] and computed [4, 2]"]


def test_stale_outputs_are_reported_and_never_believed():
    proto = model("(float[4,3] x) => (float[1,3] y) { y = Relu(x) s = Shape(y) }")
    ev = evaluator(proto)
    assert ev.value("s").tolist() == [4, 3]
    assert [s.tensor for s in ev.types.stale()] == ["y"]


def test_right_hints_are_no_contradiction():
    proto = model("(float[N,3] x) => (float[N,3] y) { h = Relu(x) y = Relu(h) }")
    assert evaluator(hint(proto, "h", ["M", 3])).types.stale() == []


def test_hints_of_plain_graphsurgeon_graphs():
    proto = hint(model("(float[4,3] x) => (float[a,b] y) { h = Relu(x) y = Relu(h) }"), "h", [1, 3])
    types = TypeMap(gs.import_onnx(proto))
    assert [s.tensor for s in types.stale()] == ["h"]


def test_names_of_inputs_are_symbols_and_those_that_onnx_invents_are_not():
    ev = evaluator(
        model("(float[batch,3] x, float[unk__0] z) => (y, n) { y = Concat<axis=0>(x, x) c = NonZero(z) n = Neg(c) }")
    )
    assert dims(ev, "x") == ["batch", "3"]
    assert dims(ev, "z") == ["unk__0"]  # the file's own name
    assert dims(ev, "y") == ["2*batch", "3"]
    assert dims(ev, "n") == ["1", "~c.1"]  # a name of ours


def test_any_text_is_one_symbol():
    proto = model("(float[N] x) => (y) { y = Relu(x) }")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "floor(N/2) + 1"
    assert dims(evaluator(proto), "y") == ["floor(N/2) + 1"]


def test_negative_dims_are_unnamed():
    proto = model("(float[N,3] x) => (y) { y = Relu(x) }")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert dims(evaluator(proto), "y") == ["x.0", "3"]


def test_custom_operators_keep_dtype_and_rank_of_a_hint():
    proto = model("(float[N,3] x) => (float[] y) { y = Relu(h) }")
    proto.opset_import.append(helper.make_opsetid("my", 1))
    proto.graph.node.insert(0, helper.make_node("Thing", ["x"], ["h"], domain="my"))
    hint(proto, "h", [7, 3])
    known = TensorType(TensorProto.FLOAT, (Poly.symbol("~h.0"), Poly.symbol("~h.1")))
    for ev in (evaluator(proto), Evaluator(gs.import_onnx(proto))):
        assert ev.types.type_of(ev.tensor("h")) == known
        assert ev.types.type_of(ev.tensor("y")) == known


def test_bodies_see_outer_types():
    proto = model("(bool c, float[N,4,H] x) => (float[] y) { h = MaxPool<kernel_shape=[2], strides=[2]>(x) y = If(c) <"
                  "then_branch = a () => (float[9] o) { o = Relu(h) },"
                  "else_branch = b () => (float[9] p) { z = Sigmoid(h) p = Neg(z) }> }")  # fmt: skip
    ev = evaluator(proto)
    for name in ("o", "p", "y"):
        assert dims(ev, name) == ["N", "4", "floordiv(H, 2)"]


def test_branches_that_differ():
    proto = model("(bool c, float[N,4] x) => (float[] y) { y = If(c) <"
                  "then_branch = a () => (o) { o = Relu(x) },"
                  "else_branch = b () => (p) { p = Concat<axis=0>(x, x) }> }")  # fmt: skip
    assert dims(evaluator(proto), "y") == ["~y.0", "4"]


def test_scan_bodies():
    proto = model("(float[T,4] x, float[4] s) => (float[] a, float[] b) { a, b = Scan<num_scan_inputs=1, "
                  "body = g (float[9] st, float[9] xi) => (st2, o) { st2 = Add(st, xi) o = Relu(st2) }>(s, x) }")  # fmt: skip
    ev = evaluator(proto)
    assert dims(ev, "xi") == ["4"]
    assert dims(ev, "st2") == ["4"]
    assert dims(ev, "b") == ["T", "4"]


def test_kinds_other_than_tensors():
    ev = evaluator(
        model(
            "(float[2] x) => (float[] y) { s = SequenceConstruct(x, x) i = Constant<value_int=0>() y = SequenceAt(s, i) }"
        )
    )
    assert ev.types.type_of(ev.tensor("s")).kind == "sequence"
    assert ev.types.type_of(ev.tensor("y")).dtype == TensorProto.FLOAT


def test_large_weights_do_not_take_part_in_inference():
    big = np.ones((64, 4096), F32)
    proto = model("(float[N,64] x, bool c) => (float[] y, float[] z) { k = Constant<value = float[1] {1.0}>() "
                  "y0 = MatMul(x, w) y = Add(y0, k) z = If(c) <then_branch = a () => (o) { o = MatMul(x, v) }, "
                  "else_branch = b () => (p) { p = Relu(y0) }> }", w=big)  # fmt: skip
    proto.graph.node[0].attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(np.ones((1, 4096), F32), "k"))
    body = proto.graph.node[3].attribute[0].g
    body.initializer.append(onnx.numpy_helper.from_array(big, "v"))
    seen = []
    infer = onnx.shape_inference.infer_shapes

    def spy(light, **options):
        seen.append(light.ByteSize())
        return infer(light, **options)

    with mock.patch("surgeon_passes.values.inference.shape_inference.infer_shapes", spy):
        ev = evaluator(proto)
    for name in ("y", "z", "o", "p"):
        assert dims(ev, name) == ["N", "4096"]
    assert seen[0] < 2000


def test_inference_that_fails_leaves_the_shape_functions():
    proto = model("(float[N,3] x) => (float[] y) { h = Relu(x) y = Concat<axis=1>(h, x) }")
    error = onnx.shape_inference.InferenceError("no")
    with mock.patch("surgeon_passes.values.inference.shape_inference.infer_shapes", side_effect=error):
        ev = evaluator(proto)
    found = ev.types.type_of(ev.tensor("y"))
    assert (found.dtype, [str(d) for d in found.shape]) == (TensorProto.FLOAT, ["N", "6"])


@pytest.mark.parametrize("wrong", [(4, 3), (5, 3, 1)])
def test_a_contradiction_names_the_node(wrong):
    ev = evaluator(model("(float[5,3] x) => (float[] y) { y = Relu(x) }"))
    entry = Entry(lambda n: [wrong], 1, None)
    with (
        mock.patch("surgeon_passes.values.registry.shape_entry", return_value=entry),
        pytest.raises(ContradictionError, match=r"Relu -> 'y': onnx infers \[5, 3\] for 'y', the shape evaluator"),
    ):
        ev.types.type_of(ev.tensor("y"))


MISINFERRED = [
    (
        "(float[1,1,4] x, float[1,1,3] w) => (float[1,1,L] z) "
        '{ y = ConvTranspose <auto_pad = "SAME_UPPER", strides = [2], output_padding = [1]> (x, w) z = Relu(y) }',
        17,
        (1, 1, 8),
    ),
    (
        '(float[1,2,3] x, float[4,3,5] w) => (float[A,2,5] z) { y = Einsum <equation = "bij,bjk->bik"> (x, w) z = Relu(y) }',
        17,
        (4, 2, 5),
    ),
    ("(float[1,2,1,3] x) => (float[2,3] z) { y = Squeeze <axes = [2, 0]> (x) z = Relu(y) }", 9, (2, 3)),
]


@pytest.mark.parametrize(("text", "opset", "shape"), MISINFERRED)
def test_what_onnx_infers_otherwise_than_onnx_runtime_computes(text, opset, shape):
    """Where this changes, onnx has mended its inference."""
    proto = model(text, opset)
    x = [np.ones([d.dim_value for d in i.type.tensor_type.shape.dim], np.float32) for i in proto.graph.input]
    (real,) = run(proto, dict(zip([i.name for i in proto.graph.input], x, strict=True)))
    assert real.shape == shape
    ev = evaluator(proto)
    assert [ev.types.type_of(ev.tensor(name)).shape for name in ("y", "z")] == [shape, shape]


def test_set_overrides():
    ev = evaluator(model("(float[5,3] x) => (float[] y) { y = Relu(x) s = Shape(y) }"))
    ev.types.set(ev.tensor("y"), TensorType(1, (Poly.symbol("K"), 3)))
    assert [str(e) for e in ev.value("s").elements] == ["K", "3"]


def test_store_writes_what_graphsurgeon_can_hold():
    proto = model("(float[N,4,H] x) => (float[a,b,c] y) { m = MaxPool<kernel_shape=[2], strides=[2]>(x) t = Transpose(x) "
                  "b = Cast<to=16>(x) y = Relu(m) }")  # fmt: skip
    imported = import_model(proto)
    types = TypeMap(imported.graph, extras=imported.extras, strict=True)
    types.store()
    tensors = imported.graph.tensors()
    assert (tensors["m"].dtype, tensors["m"].shape) == (np.float32, ["N", 4, None])
    assert tensors["t"].shape == ["H", 4, "N"]
    assert tensors["b"].dtype == TensorProto.BFLOAT16
    assert tensors["y"].shape == ["a", "b", "c"]  # the model's interface is not touched


# --- what exporters write ----------------------------------------------------------------------------------------------


def test_flatten_idiom():
    ev = evaluator(model("(float[N,3,4,4] x) => (float[] y) { s = Shape(x) d = Gather(s, i0) u = Unsqueeze(d, a0) "
                         "t = Concat<axis=0>(u, m1) y = Reshape(x, t) }",
                         i0=np.int64(0), a0=np.array([0]), m1=np.array([-1])))  # fmt: skip
    assert dims(ev, "y") == ["N", "48"]


def test_shape_start_then_slice_and_gather():
    ev = evaluator(model("(float[2,3,4,5] x) => (int64[] y) { s = Shape<start=1>(x) y = Slice(s, a, b) g = Gather(s, one) }",
                         a=np.array([1]), b=np.array([3]), one=np.int64(1)))  # fmt: skip
    assert ev.value("y").tolist() == [4, 5]
    assert ev.value("g").tolist() == 4


def test_zero_in_a_computed_target_copies_from_its_own_input():
    ev = evaluator(model("(float[N,6,4] x) => (float[] y) { m = Reshape(x, s1) s = Shape(x) n = Gather(s, i0) "
                         "t = Concat<axis=0>(zero, n, m1) y = Reshape(m, t) }",
                         s1=np.array([3, -1, 8]), i0=np.array([0]), zero=np.array([0]), m1=np.array([-1])))  # fmt: skip
    assert dims(ev, "m") == ["3", "N", "8"]
    assert dims(ev, "y") == ["3", "N", "8"]


def test_literal_zero_with_allowzero():
    ev = evaluator(model("(float[0,4,3] x) => (float[] y) { m = Reshape(x, s1) y = Reshape<allowzero=1>(m, s2) }",
                         s1=np.array([2, 6, -1]), s2=np.array([0, 0, 5])))  # fmt: skip
    assert dims(ev, "m") == ["2", "6", "0"]
    assert dims(ev, "y") == ["0", "0", "5"]


def test_expand_over_a_dim_that_may_be_one():
    ev = evaluator(model("(float[N,3] x) => (float[] y, float[] z) { y = Expand(x, e1) z = Expand(x, e2) }",
                         e1=np.array([1, 3]), e2=np.array([2, 3])))  # fmt: skip
    assert dims(ev, "y") == ["N", "3"]
    assert dims(ev, "z") == ["2", "3"]


def test_minus_one_mask_of_expand():
    ev = evaluator(model("(float[2,3,1] x) => (float[] y) { ts = Shape(t) o = ConstantOfShape<value = int64[1] {1}>(ts) "
                         "n = Mul(o, m1) m = Equal(t, n) t2 = Where(m, o, t) y = Expand(x, t2) }",
                         t=np.array([-1, 3, 4]), m1=np.int64(-1)))  # fmt: skip
    assert ev.value("t2").tolist() == [1, 3, 4]
    assert dims(ev, "y") == ["2", "3", "4"]


def test_resize_with_scaled_sizes():
    ev = evaluator(model("(float[N,2,5,6] x) => (float[] y) { s = Shape(x) h = Gather(s, i2) nc = Slice(s, z, two) "
                         "hf = Cast<to=1>(h) hm = Mul(hf, sc) hl = Floor(hm) hi = Cast<to=7>(hl) "
                         "sz = Concat<axis=0>(nc, hi, hi) y = Resize<mode=\"linear\">(x, , , sz) }",
                         i2=np.array([2]), z=np.array([0]), two=np.array([2]), sc=F32(1.5)))  # fmt: skip
    assert dims(ev, "y") == ["N", "2", "7", "7"]


def test_range_of_a_static_dim():
    ev = evaluator(model("(float[B,5] x) => (int64[] r, int64[] q) { s = Shape(x) n = Gather(s, i1) r = Range(z, n, o) "
                         "b = Gather(s, z) q = Range(z, b, o) }",
                         i1=np.int64(1), z=np.int64(0), o=np.int64(1)))  # fmt: skip
    assert ev.value("r").tolist() == [0, 1, 2, 3, 4]
    assert dims(ev, "q") == ["B"]


def test_size_and_product_of_the_shape():
    ev = evaluator(model("(float[2,3,4] x) => (n, p) { n = Size(x) s = Shape(x) p = ReduceProd<keepdims=0>(s) }"))
    assert ev.value("n").tolist() == 24
    assert ev.value("p").tolist() == 24


def test_nonzero_is_never_static():
    ev = evaluator(model("(float[4] x) => (n) { z = NonZero(x) s = Shape(z) n = Gather(s, i1) o = ConstantOfShape(n) }",
                         i1=np.array([1])))  # fmt: skip
    assert isinstance(ev.value("n"), Partial)
    assert dims(ev, "o") == ["~z.1"]


def test_empty_shape_arithmetic():
    ev = evaluator(model("(float[2,3] x) => (float[] y) { s = Shape(x) e = Slice(s, z, z) e2 = Mul(e, two) "
                         "t = Concat<axis=0>(e2, six) y = Reshape(x, t) }",
                         z=np.array([0]), two=np.array([2]), six=np.array([6])))  # fmt: skip
    assert ev.value("e2").shape == (0,)
    assert ev.value("t").tolist() == [6]


def test_evaluator_of_a_plain_graph():
    graph = gs.import_onnx(model("(float[N,3] x) => (s) { s = Shape(x) }"))
    assert [str(e) for e in Evaluator(graph).value("s").elements] == ["N", "3"]


def test_stft_is_one_sided_unless_it_says_otherwise():
    """onnx's own inference gives the shape of both sides."""
    proto = model("(float[1,128,1] x) => (y, z) { y = STFT(x, step, , length) z = STFT<onesided=0>(x, step, , length) }",
                  step=np.int64(8), length=np.int64(16))  # fmt: skip
    ev = evaluator(proto)
    assert dims(ev, "y") == ["1", "15", "9", "2"]
    assert dims(ev, "z") == ["1", "15", "16", "2"]
    x = np.random.default_rng(0).normal(size=(1, 128, 1)).astype(F32)
    assert [a.shape for a in run(proto, {"x": x})] == [(1, 15, 9, 2), (1, 15, 16, 2)]


# --- without inferring the whole model ---------------------------------------------------------------------------------

ALONE = [
    "(float[N,4,H] x) => (float[a,b,c] y, int64[d] s) { m = MaxPool<kernel_shape=[2], strides=[2]>(x) t = Transpose(x) "
    "b = Cast<to=16>(x) y = Relu(m) s = Shape(t) k = Constant<value_float = 2.0>() q, z, p = DynamicQuantizeLinear(x) }",
    "(float[N,4] x, float k) => (float[a,b] y) { z = NonZero(x) r = Range(k, k, k) u, n = Unique(x) f, i = TopK(x, one) "
    "c = ConstantOfShape(one) d = ConstantOfShape<value = int64[1] {3}>(one) y = Sub(x, x) }",
    "(float[2,3,D] x, float[1,16,D] w, float[1,16,4] r) => (float[a,b,c,d] y) "
    "{ y, h, c = LSTM<hidden_size=4>(x, w, r) l = Less(x, x) v = Where(l, x, x) e = Einsum<equation=\"...ij->...ji\">(x) }",
    "(bool c, float[N,4] x) => (float[a,b] y) { z = Neg(x) y, w, v = If(c)<"
    "then_branch = t () => (float[e,f] r, float[g,h] s, int64[k] n) { r = Abs(z) "
    "m = Concat<axis=0>(x, x) s = Relu(m) n = Shape(r) },"
    "else_branch = f () => (float[e,f] p, float[g,h] q, int64[l] o) { p = If(c)<"
    "then_branch = t2 () => (float[e,f] u) { u = Neg(z) }, else_branch = e2 () => (float[e,f] i) { i = Abs(x) }> "
    "q = Sqrt(x) o = Shape(q) }> }",
    "(bool c, float[N,4] x) => (float[a,b] y) { u = If(c)<then_branch = t () => (float[e] r) "
    "{ r = ReduceSum<keepdims=0>(x, one) }, "
    "else_branch = f () => (float[g,h] s) { s = Abs(x) }> y = Neg(x) w = Identity(u) }",
]  # fmt: skip


@pytest.mark.parametrize("text", ALONE)
def test_types_are_the_same_where_the_whole_model_is_not_inferred(text):
    def types(whole):
        imported = import_model(model(text, one=np.array([1])))
        found = TypeMap(imported.graph, extras=imported.extras, strict=True, whole=whole)
        made = [t for n in imported.graph.nodes for t in n.outputs]
        return {t.name: (e.dtype, str(e.shape), e.kind) for t in made for e in [found.type_of(t)]}

    assert types(whole=False) == types(whole=True)
    assert None not in {dtype for dtype, _, _ in types(whole=False).values()}


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("(float[N,4] x) => (float[a,b] y) { y = Relu(x) }", 0),
        ("(float[N,4] x) => (float[a,b] y) { s = SequenceConstruct(x, x) y = SequenceAt(s, i0) }", 1),
        ("(bool c, float[N,4] x) => (float[a,b] y) "
         "{ y = If(c)<then_branch = t () => (float[e,f] r) { r = Neg(x) }, else_branch = f () => (float[e,f] r) "
         "{ r = Abs(x) }> }", 0),
        ("(bool c, float[N,4] x) => (float[a,b] y) "
         "{ y = Loop(i0, c, x)<body = t (int64 k, bool g, float[e,f] p) => (bool h, float[e,f] r) "
         "{ h = Identity(g) r = Neg(p) }> }", 1),
    ],
)  # fmt: skip
def test_the_whole_model_is_inferred_where_bodies_or_sequences_need_it(text, calls):
    imported = import_model(model(text, i0=np.int64(0)))
    with mock.patch("surgeon_passes.values.types.model_types", wraps=model_types) as spy:
        types = TypeMap(imported.graph, extras=imported.extras, whole=False)
    assert spy.call_count == calls
    entry = types.type_of(imported.graph.outputs[0])
    assert (entry.dtype, [str(d) for d in entry.shape]) == (TensorProto.FLOAT, ["N", "4"])


# --- after edits -------------------------------------------------------------------------------------------------------


def renewed(put):
    """Types before and after ``b`` reads another tensor; and which nodes were evaluated for it."""
    text = """(float[N,4] x, float[N,4] same, float[M,4] other) => (float[a,b] y) {
        a = Relu(x) b = Relu(a) s = Shape(b) c = Relu(b) d = Reshape(c, s) y = Neg(d)
    }"""
    imported = import_model(model(text))
    types = TypeMap(imported.graph, extras=imported.extras, whole=False)
    types.store()
    evaluator = Evaluator(imported.graph, types=types)
    tensors = {t.name: t for t in types.index.tensors()}
    evaluator.value(tensors["s"])
    types.index.take_touched()
    types.index.set_input(types.index.producer(tensors["b"]), 0, tensors[put])
    with mock.patch.object(types.solver, "_differs_now", wraps=types.solver._differs_now) as spy:
        assert types.renew()
    shapes = {name: [str(d) for d in types.type_of(tensors[name]).shape] for name in ("b", "c", "d", "y")}
    return [call.args[0].outputs[0].name for call in spy.call_args_list], shapes, tensors, evaluator


def test_what_reads_the_same_as_before_is_not_evaluated_again():
    visited, shapes, _, _ = renewed("same")
    assert visited == ["b"]
    assert set(map(tuple, shapes.values())) == {("N", "4")}


def test_what_follows_from_an_edit_is_evaluated_again_and_stored():
    visited, shapes, tensors, evaluator = renewed("other")
    assert visited == ["b", "s", "c", "d", "y"]
    assert set(map(tuple, shapes.values())) == {("M", "4")}
    assert tensors["d"].shape == ["M", 4]
    assert [str(e) for e in evaluator.value(tensors["s"]).elements] == ["M", "4"]


def test_a_model_with_bodies_is_inferred_as_a_whole_again():
    imported = import_model(model("(bool c, float[N,4] x) => (float[a,b] y) { y = If(c)<then_branch = t () => (float[e,f] r) "
                                  "{ r = Neg(x) }, else_branch = f () => (float[e,f] r) { r = Abs(x) }> }"))  # fmt: skip
    assert not TypeMap(imported.graph, extras=imported.extras, whole=False).renew()


def test_old_forms_are_read_with_the_ranks_that_are_stored() -> None:
    proto = model("(float[2,3] x) => (float[2,3] y) { a = Exp(x) y = Softmax<axis = 1>(a) }", opset=11)
    del proto.graph.value_info[:]
    graph = import_model(proto).graph
    index = GraphIndex(graph)
    softmax = graph.nodes[1]
    softmax.inputs[0].shape = None
    assert not index.view(softmax).regular  # over how many axes it goes is not known
    TypeMap(graph, index).store()
    assert index.view(softmax).regular

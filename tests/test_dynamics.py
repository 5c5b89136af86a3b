"""What keeps a result dynamic: data or sizes, at which node, and what would have to be fixed."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

import surgeon_passes as sp
from surgeon_passes.dynamics import find_dynamic
from surgeon_passes.passes import State
from surgeon_passes.pipeline import load
from surgeon_passes.report.dynamic import DataDependent, Dynamic, ShapeDependent
from surgeon_passes.rules.registry import Registry
from tests.models import model, seconds


def dynamic(text: str, opset: int = 17, shapes: Any = None, **constants: Any) -> Dynamic:
    result = sp.optimize(model(text, opset, **constants), shapes, verify="off")
    assert result.checker_error == ""
    return result.dynamic


def only(found: tuple[Any, ...]) -> Any:
    assert len(found) == 1, found
    return found[0]


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


# --- data ----------------------------------------------------------------------------------------------------------------


def test_nonzero_and_all_that_it_makes_dynamic() -> None:
    found = dynamic("""g (float[4] x, float[N,4] z) => (int64[K,1] y, float[N,4] w)
        { [nz] i = NonZero (x)  t = Transpose <perm = [1, 0]> (i)  y = Abs (t)  w = Relu (z) }""")
    source = only(found.data_dependent)
    assert source == DataDependent(
        "NonZero 'nz'", "NonZero", "", "how many elements are not zero is data", ("i", "t", "y")
    )
    assert found.shape_dependent == ()


@pytest.mark.parametrize(
    ("body", "output", "constants", "reason"),
    [
        ("y, z = TopK (x, n)", "float[K] y", {}, "K is computed from data (input 'n')"),
        ("y = Unique <axis = 0> (x)", "float[K] y", {}, "how many elements differ is data"),
        (
            "b = Greater (x, o) y = Compress (x, b)",
            "float[K] y",
            {"o": np.float32(0)},
            "how many elements its condition",
        ),
        (
            "s = Squeeze (n) y = Range (o, s, l)",
            "int64[K] y",
            {"o": np.int64(0), "l": np.int64(1)},
            "limit is computed",
        ),
        ("y = ConstantOfShape (n)", "float[K] y", {}, "input is computed from data (input 'n')"),
        ("a = Reshape (x, two) y = Expand (a, n)", "float[8,K] y", {"two": ints(8, 1)}, "shape is computed from data"),
        ("y = Tile (x, n)", "float[K] y", {}, "repeats is computed from data (input 'n')"),
        ("y = Slice (x, o, n)", "float[K] y", {"o": ints(0)}, "ends is computed from data (input 'n')"),
        (
            "c = Concat <axis = 0> (n, l) y = Reshape (x, c)",
            "float[K,L] y",
            {"l": ints(-1)},
            "shape is computed from data",
        ),
        ("p = Concat <axis = 0> (n, n) y = Pad (x, p)", "float[K] y", {}, "pads is computed from data (input 'n')"),
        ("q, y = Split (x, n)", "float[K] y", {}, "split is computed"),
    ],
)
def test_why_a_size_is_data(body: str, output: str, constants: Any, reason: str) -> None:
    size = 2 if "Split" in body else 1
    found = dynamic(f"g (float[8] x, int64[{size}] n) => ({output}) {{ {body} }}", **constants)
    source = only(found.data_dependent)
    assert source.reason.startswith(reason)
    assert "y" in source.tensors
    assert found.shape_dependent == found.unknown == ()


def test_boxes_that_are_kept() -> None:
    found = dynamic(
        """g (float[1,6,4] boxes, float[1,1,6] scores) => (float[K,4] y)
        { s = NonMaxSuppression (boxes, scores, most)  i = Slice (s, two, three, one)  f = Squeeze (i, one)
          b = Squeeze (boxes, zero)  y = Gather (b, f) }""",
        most=ints(3), zero=ints(0), one=ints(1), two=ints(2), three=ints(3),
    )  # fmt: skip
    source = only(found.data_dependent)
    assert (source.op, source.tensors) == ("NonMaxSuppression", ("s", "i", "f", "y"))


def test_a_branch_that_data_choose() -> None:
    text = """g (float[4] x, bool c) => (float[K] y) {
        [choice] y = If (c) <then_branch = t () => (float[4] p) { p = Relu (x) },
                             else_branch = e () => (float[8] q) { q = Concat <axis = 0> (x, x) }>
    }"""
    found = dynamic(text)
    source = only(found.data_dependent)
    assert source.node == "If 'choice'"
    assert source.reason == "its branches give different shapes, and the condition is computed from data (input 'c')"
    assert source.tensors == ("y",)
    same = text.replace("float[8] q", "float[4] q").replace("Concat <axis = 0> (x, x)", "Neg (x)")
    assert dynamic(same) == Dynamic()


LOOP = """g (int64 n, bool go, float[4] x) => (float[K,4] y) {
    [turns] y = Loop (n, go) <body = b (int64 i, bool held) => (bool again, float[4] s)
        { again = Identity (held)  s = Relu (x) }>
}"""


def test_a_loop_whose_turns_data_count() -> None:
    source = only(dynamic(LOOP).data_dependent)
    assert source.reason == "the number of its turns is computed from data (input 'n')"
    assert source.tensors == ("y",)


def test_inside_a_branch() -> None:
    found = dynamic("""g (float[4] x, bool c) => (int64[1,K] y) {
        [choice] y = If (c) <then_branch = t () => (int64[1,K] p) { [nz] p = NonZero (x) },
                             else_branch = e () => (int64[1,L] q) { a = Neg (x)  [other] q = NonZero (a) }>
    }""")
    places = {(s.node, s.graph): s.tensors for s in found.data_dependent}
    assert places["NonZero 'nz'", "choice/then_branch"][0] == "p"
    assert places["NonZero 'other'", "choice/else_branch"][0] == "q"
    assert "y" in {name for names in places.values() for name in names}


def test_each_source_has_its_own_tensors() -> None:
    found = dynamic("""g (float[4] a, float[4] b) => (int64[1,K] y, int64[1,L] z, int64[1,M] w)
        { y = NonZero (a)  z = NonZero (b)  w = Concat <axis = 1> (y, z) }""")
    assert [s.tensors for s in found.data_dependent] == [("y", "w"), ("z", "w")]


# --- sizes ---------------------------------------------------------------------------------------------------------------

RANGE = """g (float[N,T] x) => (int64[T] y)
    { s = Shape <start = 1, end = 2> (x)  t = Squeeze (s)  [count] y = Range (zero, t, one) }"""


def test_what_a_size_needs() -> None:
    found = dynamic(RANGE, zero=np.int64(0), one=np.int64(1))
    assert found.data_dependent == found.unknown == ()
    by_op = {s.op: s for s in found.shape_dependent}
    assert by_op["Range"] == ShapeDependent(
        "Range 'count'", "Range", "", "computes limit from sizes: needs T of input 'x'", ("T of input 'x'",)
    )
    assert by_op["Shape"].needs == ("T of input 'x'",)


def test_nothing_is_left_at_fixed_sizes() -> None:
    assert dynamic(RANGE, shapes={"x": {"T": 4, "N": 1}}, zero=np.int64(0), one=np.int64(1)) == Dynamic()


def test_a_dim_without_a_name() -> None:
    found = dynamic(RANGE.replace("float[N,T]", "float[N,?]"), zero=np.int64(0), one=np.int64(1))
    assert {s.needs for s in found.shape_dependent} == {("dim 1 of input 'x'",)}
    assert found.unknown == ()


def test_the_first_of_several_dims_is_named_in_the_order_of_the_inputs() -> None:
    found = dynamic(
        """g (float[B,S] x, float[H,W] z) => (float[W,S,B] y)
        { a = Shape <start = 1> (z)  b = Shape <start = 1> (x)  c = Shape <end = 1> (x)  d = Concat <axis = 0> (a, b, c)
          y = Expand (k, d) }""",
        k=np.float32(1),
    )
    (expand,) = (s for s in found.shape_dependent if s.op == "Expand")
    assert expand.needs == ("B of input 'x'", "S of input 'x'", "W of input 'z'")
    assert expand.reason == "computes shape from sizes: needs B of input 'x' and 2 more"


def test_a_name_that_several_inputs_share_is_the_first_ones() -> None:
    found = dynamic("g (float[B,S] x, float[B,S] z) => (int64[2] s, float[B,S] y) { s = Shape (z)  y = Add (x, z) }")
    assert only(found.shape_dependent).needs == ("B of input 'x'", "S of input 'x'")


def test_through_floats_where_no_value_is_known() -> None:
    found = dynamic(
        """g (float[1,3,H,W] x, float[1,3,P,Q] z) => (float[1,3,A,B] y)
        { s = Shape <start = 2> (z)  f = Cast <to = 1> (s)  e = Exp (f)  g = Cast <to = 7> (e)
          c = Concat <axis = 0> (k, g)  y = Resize <mode = "nearest"> (x, , , c) }""",
        k=ints(1, 3),
    )
    (resize,) = (s for s in found.shape_dependent if s.op == "Resize")
    assert resize.needs == ("P of input 'z'", "Q of input 'z'")
    assert found.data_dependent == ()


def test_a_size_that_data_made() -> None:
    found = dynamic(
        """g (float[4] x) => (int64[K] y)
        { [nz] i = NonZero (x)  s = Shape <start = 1> (i)  t = Squeeze (s)  y = Range (zero, t, one) }""",
        zero=np.int64(0), one=np.int64(1),
    )  # fmt: skip
    assert only(found.data_dependent).tensors == ("i", "y")
    (count,) = (s for s in found.shape_dependent if s.op == "Range")
    assert count.needs == ("the size of 'i', which NonZero 'nz' makes from data",)


# --- neither -------------------------------------------------------------------------------------------------------------


def test_operators_that_nobody_knows() -> None:
    proto = model("g (float[N,4] x) => (float[N,4] y) { [own] a = Relu (x)  y = Neg (a) }")
    proto.graph.node[0].domain = "some.where"
    proto.opset_import.add(domain="some.where", version=1)
    found = sp.optimize(proto, verify="off").dynamic
    assert found.data_dependent == found.shape_dependent == ()
    unknown = only(found.unknown)
    assert (unknown.node, unknown.tensors) == ("Relu 'own'", ("a",))


def test_a_static_model_has_nothing_to_tell() -> None:
    result = sp.optimize(model("g (float[2,4] x) => (float[2,4] y) { y = Relu (x) }"), verify="off")
    assert result.is_static
    assert result.dynamic == Dynamic()


def long_chain(length: int) -> Any:
    steps = " ".join(
        f"s{i} = Shape (t{i}) f{i} = Cast <to = 1> (s{i}) e{i} = Exp (f{i}) g{i} = Cast <to = 7> (e{i}) "
        f"t{i + 1} = Reshape (t{i}, g{i})"
        for i in range(length)
    )
    return model(f"g (float[N,?] t0) => (float[P,Q] t{length}) {{ {steps} }}")


def finding(length: int) -> float:
    state = State(load(long_chain(length)), Registry(), sp.Verify(mode="off"))
    state.index.sync()
    found = find_dynamic(state.index, state.types, state.evaluator)
    assert {s.needs for s in found.shape_dependent} == {("N of input 't0'", "dim 1 of input 't0'")}
    return seconds(lambda: find_dynamic(state.index, state.types, state.evaluator))


def test_linear_along_a_chain_of_sizes() -> None:
    assert finding(400) < 30 * finding(50)


def test_a_chain_of_sources_holds_no_pairs_of_source_and_tensor() -> None:
    many = 30
    lines = [f"i{n} = NonZero(x{n}) x{n + 1} = Concat<axis = 1>(x{n}, i{n})" for n in range(many)]
    result = sp.optimize(model(f"g (int64[2,R] x0) => (int64[2,S] x{many}) {{ {' '.join(lines)} }}"), verify="off")
    sources = result.dynamic.data_dependent
    assert len(sources) == many
    assert [len(s.tensors) for s in sources] == [many - n + 1 for n in range(many)]
    assert sources[-1].tensors == (f"i{many - 1}", f"x{many}")
    assert sources[0].tensors[:3] == ("i0", "x1", "x2")
    plain = asdict(sources[-1])
    assert json.loads(json.dumps(plain))["tensors"] == [f"i{many - 1}", f"x{many}"]

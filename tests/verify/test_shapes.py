from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from surgeon_passes.region import TensorType
from surgeon_passes.verify.shapes import candidates

from .regions import FLOAT, Sym, nodes_of, region


def shapes_of(one: object, *types: TensorType, reducible: bool = True) -> list[tuple[tuple[int, ...], ...]]:
    inputs = list({t.name: t for i in one.before for t in i.inputs if not hasattr(t, "values")}.values())[: len(types)]  # type: ignore[attr-defined]
    return list(candidates(types, one.before, one.after, inputs, reducible).shapes)  # type: ignore[attr-defined]


def conv(size: int, attrs: str = "", kernel: int = 3) -> object:
    k = {"w": np.zeros((4, 2, kernel, kernel), np.float32)}
    return region(f"y = Conv{attrs}(x, w)", f"y2 = Conv{attrs}(x, w)", constants=k)


def static(*dims: int) -> TensorType:
    return TensorType(FLOAT, dims)


@pytest.mark.parametrize(
    ("attrs", "kernel", "small"),
    [("", 3, 7), ("<strides: ints = [2, 2]>", 7, 14), ("<dilations: ints = [6, 6]>", 3, 17), ("", 1, 5)],
)
def test_spatial_size_keeps_a_receptive_field_and_the_stride_remainder(attrs: str, kernel: int, small: int) -> None:
    found = shapes_of(conv(224, attrs, kernel), static(1, 2, 224, 224))
    assert found[0] == ((1, 2, small, small),)
    assert found[1] == ((1, 2, 224, 224),)


def test_beside_an_open_batch_the_spatial_size_is_reduced_too() -> None:
    found = shapes_of(conv(224), TensorType(FLOAT, (Sym("N"), 2, 224, 224)))
    assert [s[0][1:] for s in found[:3]] == [(2, 7, 7), (2, 7, 7), (2, 224, 224)]
    assert [s[0][0] for s in found[:2]] == [2, 3]
    flat = shapes_of(region("y = Flatten(x)", "y2 = Flatten(x)"), TensorType(FLOAT, (Sym("N"), 2, 64, 64)))
    assert flat[0][0][2:] == (64, 64)
    open_width = shapes_of(conv(224), TensorType(FLOAT, (1, 2, 224, Sym("W"))))
    assert open_width[0][0][2] == 224
    cone = shapes_of(conv(224), TensorType(FLOAT, (Sym("N"), 2, 224, 224)), reducible=False)
    assert cone[0][0][2:] == (224, 224)


def test_batches_are_small_where_places_are_computed_alike() -> None:
    image = TensorType(FLOAT, tuple(map(Sym, ("N", "C", "H", "W"))))
    found = shapes_of(conv(1), image)
    assert [s[0][0] for s in found[:2]] == [2, 3]
    assert found[0][0][2:] != found[1][0][2:] and found[1][0][2] * found[1][0][3] > 100
    mixed = region("y = Transpose<perm: ints = [2, 1, 0, 3]>(x)", "y2 = Transpose<perm: ints = [2, 1, 0, 3]>(x)")
    assert [s[0][0] for s in shapes_of(mixed, image)[:2]] != [2, 3]
    pooled = region("y = GlobalAveragePool(x)", "y2 = GlobalAveragePool(x)")
    assert [s[0][0] for s in shapes_of(pooled, TensorType(FLOAT, (Sym("N"), 8, 56, 56)))[:2]] == [3, 10]
    square = TensorType(FLOAT, (Sym("N"), 8, Sym("N"), 4))
    assert shapes_of(region("y = Relu(x)", "y2 = Relu(x)"), square)[0][0][0] == 3


def test_large_rows_are_few() -> None:
    one = region("y = Softmax(x)", "y2 = Softmax<axis: int = -1>(x)")
    assert [s[0][0] for s in shapes_of(one, TensorType(FLOAT, (Sym("N"), 512, 512)))[:3]] == [2, 3, 10]
    assert [s[0][0] for s in shapes_of(one, TensorType(FLOAT, (Sym("N"), 64, 64)))[:2]] == [3, 10]


def test_tries_are_made_as_they_are_asked_for() -> None:
    asked: list[int] = []

    class Counting(Sym):
        def evaluate(self, sizes: Mapping[str, int]) -> int:
            asked.append(sizes["N"])
            return super().evaluate(sizes)

    one = region("y = Add(x, z)", "y2 = Add(z, x)")
    types = [TensorType(FLOAT, (Sym("N"), 8, 4)), TensorType(FLOAT, (Counting("N", 2, 1), 8, 4))]
    found = candidates(types, one.before, one.after, list(one.before[0].inputs))
    few = found.first(found.wanted)
    made = len(asked)
    assert len(found.shapes) > 8 and len(asked) > 2 * made
    assert list(found.shapes[:2]) == few and found.wanted == 2


def test_odd_sizes_stay_odd_under_stride_two() -> None:
    found = shapes_of(conv(225, "<strides: ints = [2, 2]>"), static(1, 2, 225, 224))
    assert [s % 2 for s in found[0][0][2:]] == [1, 0]


def test_what_may_depend_on_the_size_keeps_it() -> None:
    mask = {"m": np.zeros((1, 1, 64, 64), np.float32)}
    assert len(shapes_of(region("y = Mul(x, m)", "y2 = Mul(m, x)", constants=mask), static(1, 2, 64, 64))) == 1
    assert len(shapes_of(region("y = Flatten(x)", "y2 = Flatten(x)"), static(1, 2, 64, 64))) == 1
    assert len(shapes_of(conv(64), static(1, 2, 64, 64), reducible=False)) == 1
    assert len(shapes_of(region("y = Relu(x)", "y2 = Relu(x)"), static(4, 128))) == 1


def test_a_broadcast_operand_keeps_its_ones() -> None:
    one = region("y = Mul(x, s)", "y2 = Mul(s, x)")
    assert shapes_of(one, static(1, 8, 56, 56), static(1, 8, 1, 1))[0] == ((1, 8, 5, 5), (1, 8, 1, 1))


def test_symbols_are_solved_at_distinct_sizes_that_keep_every_dim_positive() -> None:
    one = region("y = Add(x, z)", "y2 = Add(z, x)")
    found = shapes_of(one, TensorType(FLOAT, (Sym("N"), Sym("T", 2, -8))), TensorType(FLOAT, (1, Sym("T", 1, 0))))
    assert all(s[0][1] == 2 * s[1][1] - 8 >= 1 for s in found)
    assert len({s[0] for s in found[:2]}) == 2
    assert len(found) > 4


def test_hints_come_from_the_nodes() -> None:
    tensors: dict[str, object] = {}
    one = region(
        "y = MatMul(x, w)", "y2 = MatMul(x, w)", constants={"w": np.zeros((7, 9), np.float32)}, tensors=tensors
    )  # type: ignore[arg-type]
    assert shapes_of(one, TensorType(FLOAT, (None, None)))[0][0][1] == 7
    assert nodes_of("q = Relu(p)", {})[0].node.op == "Relu"
    assert shapes_of(conv(1), TensorType(FLOAT))[0][0][:2] == (2, 2)


def test_one_row_becomes_many_where_rows_do_not_meet() -> None:
    k = {"w": np.zeros((8, 4), np.float32), "b": np.zeros(4, np.float32), "p": np.zeros((5, 1, 8), np.float32)}
    one = region("a = MatMul(x, w)\ny = Add(a, b)", "y2 = Gemm(x, w, b)", constants=k)
    assert shapes_of(one, static(1, 8)) == [((16, 8),), ((1, 8),)]
    assert shapes_of(one, static(2, 8)) == [((2, 8),)]
    assert shapes_of(region("y = Add(x, p)", "y2 = Add(p, x)", constants=k), static(1, 1, 8)) == [((1, 1, 8),)]
    assert shapes_of(region("y = Softmax<axis: int = 0>(x)", "y2 = Softmax(x)"), static(1, 8)) == [((1, 8),)]
    pooled = region("y = GlobalAveragePool(x)", "y2 = GlobalAveragePool(x)")
    assert shapes_of(pooled, static(1, 8, 56, 56))[0] == ((16, 8, 5, 5),)


def test_sizes_that_nodes_say_hold_for_names_too() -> None:
    one = conv(1)
    found = shapes_of(one, TensorType(FLOAT, tuple(map(Sym, ("N", "C", "H", "W")))))
    assert [s[0][1] for s in found[:2]] == [2, 2]
    assert len({s[0] for s in found[:2]}) == 2
    assert any(s[0][1] != 2 for s in found)  # last: the constant may broadcast, or the dim
    dot = region("y = MatMul(x, w)", "y2 = MatMul(x, w)", constants={"w": np.zeros((7, 9), np.float32)})
    only = candidates([TensorType(FLOAT, (2, Sym("K")))], dot.before, dot.after, [dot.before[0].inputs[0]])
    assert only.shapes[0] == ((2, 7),)
    assert only.wanted == 1


def test_anonymous_sizes_are_guessed_alike_and_one_name_is_one_size() -> None:
    one = region("y = Add(x, z)", "y2 = Add(z, x)")
    free = [TensorType(FLOAT, (Sym("~a.0"), Sym("~a.1"))), TensorType(FLOAT, (Sym("~b.0"), Sym("~b.1")))]
    assert shapes_of(one, *free)[0] == ((2, 6), (2, 6))
    tied = [TensorType(FLOAT, (Sym("~a.1"), 3)), TensorType(FLOAT, (3, Sym("~a.1")))]
    assert shapes_of(one, *tied)[0] == ((2, 3), (3, 2))
    derived = [TensorType(FLOAT, (Sym("N"), Sym("~c.1", 2, 0)))]
    assert all(s[0][1] % 2 == 0 for s in shapes_of(region("y = Relu(x)", "y2 = Relu(x)"), *derived))

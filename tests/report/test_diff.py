"""What differs between two versions of a model."""

from __future__ import annotations

from surgeon_passes.report.diff import diff
from tests.models import model

OLD = """g (float[2,4] x, bool c) => (float[4,2] y) {
    [gone] a = Abs (x)
    [moved] b = Transpose <perm = [0, 1]> (a)
    [turned] d = Softmax (b)
    [choice] y = If (c) <then_branch = t () => (float[4,2] p) { [in] p = Transpose (d) },
                         else_branch = e () => (float[4,2] q) { [out] n = Neg (d)  [last] q = Transpose (n) }>
}"""


def test_equal_models_differ_in_nothing() -> None:
    assert diff(model(OLD, w=[1.0]), model(OLD, w=[1.0])) == []


def test_lines() -> None:
    new = OLD.replace("[gone] a = Abs (x)", "[came] a = Neg (x)").replace("perm = [0, 1]> (a)", "perm = [1, 0]> (x)")
    new = new.replace("[out] n = Neg (d)  [last] q = Transpose (n)", "[last] q = Transpose (d)")
    new = new.replace("d = Softmax (b)", "d = Softmax <axis = 0> (b)")
    assert diff(model(OLD, w=[1.0], v=[1]), model(new, w=[2.0], u=[[1, 2]])) == [
        "- Abs 'gone' ('x') -> 'a'",
        "+ Neg 'came' ('x') -> 'a'",
        "~ Transpose 'moved': input 0: 'a' -> 'x'; perm: [0, 1] -> [1, 0]",
        "~ Softmax 'turned': axis: none -> 0",
        "- Neg 'out' ('d') -> 'n' in choice/else_branch",
        "~ Transpose 'last': input 0: 'n' -> 'd' in choice/else_branch",
        "- initializer 'v' int64[1]",
        "+ initializer 'u' int64[1,2]",
        "~ initializer 'w' double[1]: other values",
    ]


def test_unnamed_nodes_are_told_by_their_results() -> None:
    old = model("g (float[2] x) => (float[2] y) { a = Abs (x) b = Abs (a) y = Neg (b) }")
    new = model("g (float[2] x) => (float[2] y) { a = Abs (x) y = Neg (a) }")
    assert diff(old, new) == ["- Abs ('a') -> 'b'", "~ Neg: input 0: 'b' -> 'a'"]


def test_an_operator_in_the_place_of_another() -> None:
    old = model("g (float[2] x) => (float[2] y) { [n] y = Abs (x) }")
    new = model("g (float[2] x) => (float[2] y) { [n] y = Neg (x) }")
    assert diff(old, new) == ["- Abs 'n' ('x') -> 'y'", "+ Neg 'n' ('x') -> 'y'"]


def test_dims_of_inputs() -> None:
    old = model("g (float[N,4] x) => (float[N,4] y) { y = Relu (x) }")
    new = model("g (float[2,4] x) => (float[2,4] y) { y = Relu (x) }")
    assert diff(old, new) == ["~ input 'x': [N, 4] -> [2, 4]"]

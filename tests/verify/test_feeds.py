from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from surgeon_passes.errors import UsageError
from surgeon_passes.runtime import RuntimeFailure
from surgeon_passes.verify import generate_feeds, load_data

from .test_endcheck import model

ONE = model("y = Relu(x)", "(float[N, 3, H, W] x) => (float[N, 3, H, W] y)")


def test_dynamic_dims_take_two_sizes() -> None:
    first, second = generate_feeds(ONE)
    assert first["x"].shape == (2, 3, 8, 8)
    assert second["x"].shape != first["x"].shape


def test_given_shapes_are_used() -> None:
    assert [f["x"].shape for f in generate_feeds(ONE, {"x": [1, 3, 5, 7]})] == [(1, 3, 5, 7)]
    assert all(f["x"].shape[2:] == (9, 11) for f in generate_feeds(ONE, {"H": 9, "W": 11}))
    assert all(f["x"].shape[2] == 9 for f in generate_feeds(ONE, {"x": {"H": 9}}))
    with pytest.raises(UsageError, match="input 'x' has rank 4; a shape of rank 3 was given"):
        generate_feeds(ONE, {"x": [1, 3, 5]})


def test_sizes_are_tried_until_the_model_runs() -> None:
    """The size must be a multiple of 32."""
    made = model(
        "a = MaxPool<kernel_shape = [32, 32], strides = [32, 32]>(x)\nb = Resize(a, roi, scales)\ny = Add(x, b)",
        "(float[1, 3, H, W] x) => (float[1, 3, H, W] y)", roi=np.float32([]), scales=np.float32([1, 1, 32, 32]),
    )  # fmt: skip
    assert [f["x"].shape[2:] for f in generate_feeds(made)] == [(32, 32), (64, 64)]


def test_integers_are_tried_until_they_are_legal() -> None:
    made = model(
        "t = Add(s, k)\ny = Reshape(x, t)", "(float[2, 3] x, int64[2] s) => (float[a, b] y)", k=np.array([7, 7])
    )
    with pytest.raises(RuntimeFailure, match="give --data"):
        generate_feeds(made)
    ok = model("e = Gather(t, i)\ny = Relu(e)", "(int64[N] i) => (float[N, 4] y)", t=np.zeros((2, 4), np.float32))
    assert set(generate_feeds(ok)[0]["i"].tolist()) <= {0, 1}


def test_equal_feeds_are_not_tried_twice() -> None:
    """A scalar is 0 or 1 however it is drawn."""
    made = model("t = Add(s, k)\ny = Reshape(x, t)", "(float[2, 3] x, int64 s) => (float[a, b] y)", k=np.array([7, 7]))
    tried: list[bytes] = []

    class Refuses:
        def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            tried.append(feeds["x"].tobytes() + feeds["s"].tobytes())
            raise RuntimeFailure("no")

    with pytest.raises(RuntimeFailure, match="no; give --data"):
        generate_feeds(made, runner=Refuses())  # type: ignore[arg-type]
    assert len(tried) == len(set(tried)) == 4


def test_every_element_type_and_determinism() -> None:
    made = model(
        "y = Identity(a)", "(float a, bool[3] b, string[2] s, uint8[4] u, float16[2] h, double[1] d) => (float y)"
    )
    one, two = generate_feeds(made)[0], generate_feeds(made)[0]
    assert {n: x.dtype.kind for n, x in one.items()} == {"a": "f", "b": "b", "s": "O", "u": "u", "h": "f", "d": "f"}
    assert all(np.array_equal(one[n], two[n]) for n in one)
    assert not np.array_equal(generate_feeds(made, seed=1)[0]["h"], one["h"])


def test_initializers_among_the_inputs_are_not_fed() -> None:
    made = model("y = Add(x, w)", "(float[2] x, float[2] w) => (float[2] y)", w=np.ones(2, np.float32))
    assert list(generate_feeds(made)[0]) == ["x"]


# --- given ---------------------------------------------------------------------------------------------------------------

X = np.zeros((1, 3, 4, 4), np.float32)


def test_npz_folder_and_callable(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X)
    assert load_data(tmp_path / "a.npz", ONE)[0]["x"].shape == X.shape
    folder = tmp_path / "npy"
    folder.mkdir()
    np.save(folder / "x.npy", X)
    assert list(load_data(folder, ONE)[0]) == ["x"]
    sets = tmp_path / "sets"
    sets.mkdir()
    for number in range(3):
        np.savez(sets / f"{number}.npz", x=X + number)
    assert [f["x"].max() for f in load_data(str(sets), ONE)] == [0, 1, 2]
    assert len(load_data(lambda: ({"x": X} for _ in range(2)), ONE)) == 2
    assert len(load_data(lambda: {"x": X}, ONE)) == 1


def test_file_names_stand_for_input_names(tmp_path: Path) -> None:
    made = model("y = Relu(x)", "(float[2] x) => (float[2] y)")
    made.graph.input[0].name = made.graph.node[0].input[0] = "in/x:0"
    np.save(tmp_path / "in_x_0.npy", np.zeros(2, np.float32))
    assert list(load_data(tmp_path, made)[0]) == ["in/x:0"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"z": X}, "the data names 'z'; the model's inputs are 'x'"),
        ({"x": X.astype(np.float64)}, "input 'x' is float32; the data gives float64"),
        ({"x": X[0]}, "input 'x' has rank 4; the data gives rank 3"),
        ({"x": X[:, :2]}, r"input 'x' is \['N', 3, 'H', 'W'\]; the data gives \[1, 2, 4, 4\]"),
    ],
)
def test_wrong_data_names_both_sides(data: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_data(lambda: data, ONE)


def test_missing_and_unreadable_data(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.npz is no \.npz file"):
        load_data(tmp_path / "none.npz")
    (tmp_path / "bad.npz").write_bytes(b"no zip")
    with pytest.raises(UsageError, match="cannot be read as numpy data"):
        load_data(tmp_path / "bad.npz")
    with pytest.raises(UsageError, match="holds no data"):
        load_data(_empty(tmp_path))
    with pytest.raises(UsageError, match="not list"):
        load_data(lambda: [[1]])


def _empty(path: Path) -> Path:
    folder = path / "empty"
    folder.mkdir()
    return folder


def test_one_dim_name_is_one_size() -> None:
    square = model("y = Relu(x)", "(float[N, N, 3] x) => (float[N, N, 3] y)")
    assert all(f["x"].shape[0] == f["x"].shape[1] for f in generate_feeds(square))


def test_ids_reach_beyond_the_first_rows() -> None:
    made = model(
        "y = Gather(table, ids)", "(int64[2, 16] ids) => (float[2, 16, 3] y)", table=np.zeros((200, 3), np.float32)
    )
    assert generate_feeds(made)[0]["ids"].max() > 50
    small = model(
        "y = Gather(table, ids)", "(int64[2, 16] ids) => (float[2, 16, 3] y)", table=np.zeros((2, 3), np.float32)
    )
    assert generate_feeds(small)[0]["ids"].max() == 1

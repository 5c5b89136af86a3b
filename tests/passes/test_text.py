"""Pipelines as text, and back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import surgeon_passes as sp
from surgeon_passes.passes import registry
from surgeon_passes.passes.state import State
from surgeon_passes.testing import model
from tests.rules.ground import make

EVERYTHING = sp.Pipeline(
    sp.InlineFunctions("pkg.*", "own.f"),
    sp.ConvertOpset(20),
    sp.Specialize({"images": [1, 3, 64, 64], "mask 'a'": {"N": 1, "a.b": 2}}),
    sp.Fold(max_bytes=4096),
    sp.Rewrite("shape", "drop_cast", skip=["pad"], approximate=True, allow_lossy_casts=True),
    sp.Sizes(),
    sp.Duplicates(),
    sp.Cleanup(),
    sp.Constants(),
    max_iterations=3,
)


@pytest.mark.parametrize("pipeline", [sp.Pipeline(), EVERYTHING], ids=["default", "everything"])
def test_a_file_reads_back_to_an_equal_pipeline(pipeline: sp.Pipeline, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(pipeline.to_toml())
    found = sp.Pipeline.from_toml(path)
    assert found == pipeline
    assert repr(found) == repr(pipeline)


def test_a_file_says_what_each_pass_is_for() -> None:
    lines = sp.Pipeline(sp.Fold(), sp.Specialize({"x": (1, 2)})).to_toml().splitlines()
    assert lines == [
        "max_iterations = 10",
        "",
        "[[pass]]",
        "# Constant nodes become initializers, shape arithmetic and constant expressions their values, known Ifs a branch",
        'name = "fold"',
        'max_bytes = "1MiB"',
        "",
        "[[pass]]",
        "# Give inputs fixed sizes",
        'name = "specialize"',
        "shapes = {x = [1, 2]}",
    ]


def test_pipelines_differ_by_options_order_and_rounds() -> None:
    base = sp.Pipeline(sp.Fold(), sp.Rewrite())
    assert base == sp.Pipeline(sp.Fold("1MiB"), sp.Rewrite())
    others = [
        sp.Pipeline(sp.Fold("2MiB"), sp.Rewrite()),
        sp.Pipeline(sp.Rewrite(), sp.Fold()),
        sp.Pipeline(sp.Fold(), sp.Rewrite(), max_iterations=9),
        sp.Pipeline(sp.Fold()),
    ]
    assert all(base != other for other in others)


def test_one_line_says_a_pipeline() -> None:
    text = " specialize, fold{max_bytes=4KiB} ,rewrite{ sets = shape+fusion, skip=drop_cast , approximate=true}"
    text += ",opset{version=18}"
    assert sp.Pipeline.parse(text, {"x": {"N": 1}}) == sp.Pipeline(
        sp.Specialize({"x": {"N": 1}}),
        sp.Fold("4KiB"),
        sp.Rewrite("shape", "fusion", skip=["drop_cast"], approximate=True),
        sp.ConvertOpset(18),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "pipeline '': a pass is wanted at the end, as in fold or fold{max_bytes=1MiB}"),
        ("fold,", "pipeline 'fold,': a pass is wanted at the end"),
        ("fold,,sizes", "a pass is wanted at ',sizes'"),
        ("fold{max_bytes=1", "a pass is wanted at 'fold{max_bytes=1'"),
        ("fold sizes", "a pass is wanted at 'fold sizes'"),
        ("flod", "no pass is called 'flod' (did you mean 'fold'?)"),
        ("fold{bytes=1}", "pass fold has no option 'bytes' (did you mean 'max_bytes'?) (its options: max_bytes)"),
        ("fold{max_bytes}", "pass fold: 'max_bytes' is no option; write NAME=VALUE"),
        ("fold{max_bytes=1,max_bytes=2}", "pass fold: option 'max_bytes' is given twice"),
        ("cleanup{x=1}", "pass cleanup has no option 'x' (its options: none)"),
        ("rewrite{approximate=yes}", "pass rewrite: approximate is 'yes', not true or false"),
        ("rewrite{rules=x}", "pass rewrite has no option 'rules'"),
        ("opset{version=new}", "pass opset: version is 'new', not a number"),
        ("specialize{shapes=x}", "pass specialize: shapes are given by -i, or in a pipeline file"),
    ],
)
def test_what_is_no_pipeline_is_said_in_one_line(text: str, says: str) -> None:
    with pytest.raises(sp.UsageError) as error:
        sp.Pipeline.parse(text)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_iterations = ", "own.toml: not TOML: Invalid value (at end of document)"),
        ("", "own.toml: no pass: write a table [[pass]]"),
        ("pass = 'fold'", "own.toml: no pass: write a table [[pass]]"),
        ("passes = 1", "own.toml: a pipeline has no 'passes' (did you mean 'pass'?) (it has: max_iterations, pass)"),
        ("[[pass]]\nmax_bytes = 1", "own.toml: pass 1 has no name"),
        ("[[pass]]\nname = 'flod'", "own.toml: no pass is called 'flod' (did you mean 'fold'?)"),
        ("[[pass]]\nname = 'rewrite'\nsets = 'shape'", "own.toml: pass rewrite: sets is 'shape', not a list"),
        ("[[pass]]\nname = 'rewrite'\napproximate = 1", "own.toml: pass rewrite: approximate is 1, not true or false"),
        ("[[pass]]\nname = 'opset'\nversion = true", "own.toml: pass opset: version is True, not a whole number"),
        ("max_iterations = 0\n[[pass]]\nname = 'fold'", "own.toml: max_iterations is 0, not a whole number from 1 on"),
        ("[[pass]]\nname = 'specialize'\nshapes = 3", "own.toml: pass specialize: shapes is 3, not a table"),
    ],
)
def test_what_is_no_pipeline_file_is_said_with_its_name(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(sp.UsageError) as error:
        sp.Pipeline.from_toml(tmp_path / "own.toml")
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("name = 'specialize'\nshapes = {x = 5}", "input 'x': 5 is no shape; give sizes"),
        ("name = 'fold'\nmax_bytes = 1.5", "max_bytes is '1.5', not a number of bytes"),
        ("name = 'fold'\nmax_bytes = true", "max_bytes is 'True', not a number of bytes"),
        ("name = 'rewrite'\nskip = [1]", "pass rewrite: skip is 1, not text"),
        ("name = 'inline'\npatterns = [1]", "pass inline: patterns is 1, not text"),
        ("name = 'rewrite'\nrules = ['x']", "pass rewrite has no option 'rules' (its options"),
    ],
)
def test_values_of_another_kind_are_said(line: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(f"[[pass]]\n{line}\n")
    with pytest.raises(sp.UsageError) as error:
        sp.Pipeline.from_toml(tmp_path / "own.toml").run(model("g (float[N] x) => (float[N] y) { y = Relu(x) }"))
    assert says in str(error.value)


def test_nesting_without_end_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("a = " + "[" * 20_000)
    with pytest.raises(sp.UsageError, match=r"own\.toml: not TOML"):
        sp.Pipeline.from_toml(tmp_path / "own.toml")


def test_what_is_no_pass_is_refused() -> None:
    for wrong, says in ((5, "5 is no pass"), (sp.Fold, "Fold is no pass; give passes, as in Fold()")):
        with pytest.raises(sp.UsageError, match=re.escape(says)):
            sp.Pipeline(wrong)  # type: ignore[arg-type]
        with pytest.raises(sp.UsageError, match=re.escape(says)):
            sp.Pipeline().before("fold", wrong)  # type: ignore[arg-type]


def test_a_pass_of_others_that_fails_is_named() -> None:
    class Broken(sp.Pass):
        name = "broken"

        def run(self, state: State) -> bool:
            raise KeyError("gone")

    with pytest.raises(sp.UsageError, match="pass broken failed: KeyError: 'gone'"):
        sp.Pipeline(Broken()).run(model("g (float[N] x) => (float[N] y) { y = Relu(x) }"))


def test_a_missing_file_is_said() -> None:
    with pytest.raises(sp.ModelError, match=r"missing\.toml: cannot be read: .*No such file"):
        sp.Pipeline.from_toml("missing.toml")


def test_rules_that_are_objects_cannot_be_written() -> None:
    pipeline = sp.Pipeline(sp.Rewrite(make("y = Neg(Neg(x))", "y = x", name="pair", exactness="exact")))
    with pytest.raises(sp.UsageError, match=r"cannot be written to a file: name them in sets \(pair\)"):
        pipeline.to_toml()


# --- the door of passes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Own(sp.Pass):
    """Counts nodes: and says nothing."""

    name: ClassVar[str] = "own"
    limit: int = 3
    labels: tuple[str, ...] = ()

    def run(self, state: State) -> bool:
        return False


@dataclass(frozen=True)
class Free(Own):
    name: ClassVar[str] = "free"
    most: int | None = None
    sizes: tuple[int, ...] = ()
    share: float = 0.5


@dataclass(frozen=True)
class Rival(Own):
    name: ClassVar[str] = "fold"


class _Package:
    def __init__(self, name: str) -> None:
        self.name = name


class _Entry:
    """As importlib.metadata gives them."""

    def __init__(self, name: str, package: str, loaded: object) -> None:
        self.name, self.dist, self.value, self.loaded = name, _Package(package), f"{package}:{name}", loaded

    def load(self) -> object:
        if isinstance(self.loaded, Exception):
            raise self.loaded
        return self.loaded


def offer(monkeypatch: pytest.MonkeyPatch, *more: _Entry) -> None:
    """Install packages that offer passes, beside our own."""
    import surgeon_passes.passes as built_in

    entries = [*more, _Entry("builtin", "surgeon-passes", built_in)]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries if group == registry.GROUP else [])
    registry.pass_kinds.cache_clear()


@pytest.fixture(autouse=True)
def forget() -> object:
    yield
    registry.pass_kinds.cache_clear()


def test_packages_offer_passes_by_the_door_of_the_built_in_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, _Entry("own", "acme-passes", Own))
    assert next(iter(registry.pass_kinds())) == "onnxsim"  # ours first
    assert registry.find_pass("own") is Own
    found = sp.Pipeline.parse("fold,own{limit=5,labels=a+b}")
    assert found == sp.Pipeline(sp.Fold(), Own(limit=5, labels=("a", "b")))
    assert '# Counts nodes\nname = "own"\nlimit = 5\nlabels = ["a", "b"]' in found.to_toml()


def test_options_have_the_types_of_their_fields(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offer(monkeypatch, _Entry("free", "acme", Free))
    assert sp.Pipeline.parse("free{most=3,sizes=1+2,share=2}") == sp.Pipeline(Free(most=3, sizes=(1, 2), share=2.0))
    (tmp_path / "free.toml").write_text(sp.Pipeline(Free()).to_toml())
    assert sp.Pipeline.from_toml(tmp_path / "free.toml") == sp.Pipeline(Free())
    for line, says in (
        ("share = 'x'", "share is 'x', not a number"),
        ("sizes = ['a']", "sizes is 'a', not a whole number"),
    ):
        (tmp_path / "free.toml").write_text(f"[[pass]]\nname = 'free'\n{line}\n")
        with pytest.raises(sp.UsageError, match=says):
            sp.Pipeline.from_toml(tmp_path / "free.toml")
    with pytest.raises(sp.UsageError, match="None cannot be written to a file"):
        sp.Pipeline(sp.Specialize({"x": [1, None]})).to_toml()  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("loaded", "says"),
    [
        (Rival, "two passes are called 'fold': one from package surgeon-passes, one from package acme; uninstall one"),
        (ImportError("no acme"), "package acme, entry point 'own' cannot be loaded: ImportError: no acme"),
        (3, "package acme, entry point 'own': 3 is no pass: derive it from surgeon_passes.Pass"),
        (pytest, "package acme, entry point 'own': acme:own lists no passes; give it PASSES = (MyPass,)"),
    ],
)
def test_a_door_that_does_not_open_names_the_package(
    loaded: object, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, _Entry("own", "acme", loaded))
    with pytest.raises(sp.UsageError) as error:
        registry.find_pass("own")
    assert says in str(error.value)

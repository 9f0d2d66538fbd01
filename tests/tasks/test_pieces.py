from __future__ import annotations

import ast
import inspect
import json
import tomllib
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from twoloop.tasks.cut import without
from twoloop.tasks.disk import to_toml
from twoloop.tasks.seal import leaks
from twoloop.tasks.similar import fingerprints, resemblance
from twoloop.tasks.units import functions, stub_source

MODULES = [ast, inspect, json]


def test_stubbing_deletes_bodies_and_nothing_else() -> None:
    for module in MODULES:
        source = inspect.getsource(module)
        for function in functions("m.py", source):
            stubbed = stub_source(source, [function])
            assert stubbed.count(function.stub) == 1
            again = next(f for f in functions("m.py", stubbed) if f.qualname == function.qualname)
            assert again.body == function.stub
            lines, left = source.split("\n"), stubbed.split("\n")
            removed = function.last - function.first + 1
            assert left[: function.first - 1] == lines[: function.first - 1]
            assert left[function.first :] == lines[function.first - 1 + removed :]


def test_putting_the_body_back_restores_the_file() -> None:
    source = inspect.getsource(json)
    for function in functions("m.py", source):
        body = "\n".join(source.split("\n")[function.first - 1 : function.last])
        assert stub_source(source, [function]).replace(function.indent + function.stub, body) == source


def test_hidden_tests_are_cut_out_with_their_decorators_and_classes_stay_valid() -> None:
    source = "import x\n@x.mark\ndef test_a():\n    pass\n\nclass TestB:\n    def test_c(self):\n        pass\n"
    left = without(source, ["test_a", "TestB::test_c"])
    tree = ast.parse(left)
    assert [type(n).__name__ for n in tree.body] == ["Import", "ClassDef"]
    assert "test_c" not in left
    assert "mark" not in left


BODY = (
    "seen = set()\nfor item in items:\n    if key(item) not in seen:\n        seen.add(key(item))\n        yield item"
)


def test_a_copy_of_the_deleted_code_is_found_however_it_is_laid_out() -> None:
    planted = "x = 1\n\n\ndef copy(items,  key):\n" + "\n".join("        " + line for line in BODY.split("\n"))
    assert leaks([BODY], {"a.py": "x = 1", "notes.txt": planted}) == ["notes.txt"]
    assert leaks([BODY], {"a.py": inspect.getsource(json)}) == []


def test_resemblance_finds_renamed_layouts_and_leaves_strangers_alone() -> None:
    assert resemblance("return next(iter(seq))", "return next( iter(seq) )  # first") == 1.0
    assert resemblance("return next(iter(seq))", "return x.upper()") < 0.3


@given(st.lists(st.sampled_from("abcdefgh"), min_size=12, max_size=40), st.integers(0, 10))
def test_a_shared_run_of_tokens_always_shares_a_fingerprint(words: list[str], offset: int) -> None:
    code = " ".join(words)
    moved = " ".join(["z"] * offset + words + ["y"] * 3)
    assert fingerprints(code) & fingerprints(moved)


plain = st.recursive(
    st.one_of(st.text(max_size=8), st.integers(-(2**40), 2**40), st.booleans(), st.floats(-1e6, 1e6)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(min_size=1, max_size=6), plain, max_size=4))
def test_toml_reads_back_as_it_was_written(document: Mapping[str, Any]) -> None:
    assert tomllib.loads(to_toml(document)) == document

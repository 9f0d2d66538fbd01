from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoloop.agent.calls import parse, write
from twoloop.agent.products import product
from twoloop.agent.tools import splice

HARNESS = product("default")
line = st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S", "Zs")), max_size=20).map(str.strip)
block = st.lists(
    st.text(st.characters(codec="ascii", categories=("L", "N", "Zs")), max_size=20), min_size=1, max_size=5
)


@given(
    line, line.filter(bool), block.map("\n".join).map(lambda text: text.rstrip("\n"))
)  # a message ends with its text
def test_a_written_call_reads_back(path: str, old: str, new: str) -> None:
    arguments = {"path": path, "old": old, "new": new}
    parsed = parse(write("replace_in_file", arguments), HARNESS)
    assert parsed.error is None
    assert parsed.call is not None
    assert parsed.call.arguments == arguments


@given(st.text(max_size=200))
def test_any_text_has_an_answer(text: str) -> None:
    parsed = parse(text, HARNESS)
    assert (parsed.error is None) == (parsed.problem == "")
    assert parsed.call is not None or parsed.error == "malformed_call"


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("patch\npath: a.py", "unknown_tool", "no tool 'patch'"),
        ("Sure! Here it is", "malformed_call", "first line"),
        ("", "malformed_call", "first line"),
        ("read_file", "malformed_call", "missing argument 'path'"),
        ("read_file\nfile: a.py", "malformed_call", "expected path"),
        ("run_tests\nnow", "malformed_call", "expected no arguments"),
        ("replace_in_file\npath: a\nnew: b", "malformed_call", "missing argument 'old'"),
    ],
)
def test_faults_are_named(text: str, error: str, said: str) -> None:
    parsed = parse(text, HARNESS)
    assert parsed.error == error
    assert said in parsed.problem


def test_code_that_looks_like_a_parameter_stays_code() -> None:
    body = "if path:\n    old: int = 1\npath: str\nelse:\n    return 2"
    parsed = parse(f"replace_in_file\npath: a.py\nold: x\nnew:\n{body}", HARNESS)
    assert parsed.call is not None
    assert parsed.call.arguments["new"] == body


def test_optional_arguments_may_be_left_out() -> None:
    assert parse("finish", HARNESS).error is None
    assert parse("list_files", HARNESS).error is None


@pytest.mark.parametrize("new", ["a = 1\nreturn a", "    a = 1\n    return a", "\n        a = 1\n        return a\n"])
def test_replacements_take_the_indentation_of_what_they_replace(new: str) -> None:
    source = "def f():\n    raise X\n"
    assert splice(source, "raise X", new) == "def f():\n    a = 1\n    return a\n"


def test_a_replacement_inside_a_line_keeps_the_line() -> None:
    assert splice("x = old + 1", "old", "new") == "x = new + 1"

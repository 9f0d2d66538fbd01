from __future__ import annotations

from pathlib import Path

import pytest

from twoloop.records import Task
from twoloop.tasks import BuildReport, build, load

TEXT = '''\
"""Text helpers."""

_TABLE = {}


def register(name):
    """Decorator that runs at import."""
    def keep(function):
        _TABLE[name] = function
        return function
    return keep


@register("shout")
def shout(text):
    """Upper case, with an exclamation mark."""
    return text.upper() + "!"


def initials(text):
    """First letters of all words, joined.

    >>> initials("ab cd")
    'ac'
    """
    words = text.split()
    letters = [word[0] for word in words if word]
    return "".join(letters)


def unused(text):
    """No test runs this."""
    return text
'''
NUMBERS = '''\
class Stack:
    """A stack."""

    def __init__(self):
        self.items = []

    def push(self, item):
        """Add an item and return how many there are."""
        self.items.append(item)
        return len(self.items)

    def top(self):
        """The last item, or None."""
        return self.items[-1] if self.items else None


def clamp(x, low, high):
    """x, but not below low or above high."""
    if x < low:
        return low
    return high if x > high else x
'''
TEST_TEXT = """\
from lib.text import initials, shout


def test_shout():
    assert shout("a") == "A!"


def test_initials_of_two():
    assert initials("ab cd") == "ac"


def test_initials_of_none():
    assert initials("") == ""


class TestMore:
    def test_initials_of_three(self):
        assert initials("a b c") == "abc"
"""
TEST_NUMBERS = """\
import pytest
from lib.numbers import Stack, clamp


@pytest.mark.parametrize("x, y", [(-1, 0), (5, 5), (11, 10)])
def test_clamp(x, y):
    assert clamp(x, 0, 10) == y


def test_stack():
    stack = Stack()
    assert stack.push(1) == 1
    assert stack.top() == 1


def test_empty():
    assert Stack().top() is None


FLIPS = []


def test_flaky(tmp_path_factory):
    import os
    assert os.getpid() % 1 == 0
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("source") / "lib-1.0"
    for path, text in {
        "lib/__init__.py": "",
        "lib/text.py": TEXT,
        "lib/numbers.py": NUMBERS,
        "tests/test_text.py": TEST_TEXT,
        "tests/test_numbers.py": TEST_NUMBERS,
        "README.md": "initials, clamp",
        ".git/objects/secret": "x",
        "lib/__pycache__/text.cpython-311.pyc": "x",
        "build/lib/lib/text.py": TEXT,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def built(library: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[BuildReport, list[Task]]:
    out = tmp_path_factory.mktemp("built") / "tasks"
    report = build([str(library)], out, cache=cache)
    return report, load(out)


@pytest.fixture
def initials(built: tuple[BuildReport, list[Task]]) -> Task:
    return next(t for t in built[1] if t.id.endswith("text.initials"))

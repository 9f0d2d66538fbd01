"""Functions of a source tree: where they are, how they are stubbed, how a task speaks of them."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from twoloop.errors import TaskError
from twoloop.records import Unit

MAX_DOC_LINES, MAX_DOC_CHARACTERS = 12, 450


@dataclass(frozen=True)
class Function:
    """One function that could be deleted. Lines count from 1; the body runs from `first` to `last`, docstring apart."""

    path: str
    qualname: str
    first: int
    last: int
    head: str  # class line (for a method), decorators, signature, docstring, as they stand in the file
    indent: str  # of the body
    body: str  # dedented

    @property
    def stub(self) -> str:
        """What stands in for the body: unique in its file, so that an edit can name it."""
        return stub_of(self.qualname)

    def unit(self) -> Unit:
        return Unit(self.path, self.qualname, self.first, self.last - self.first + 1)


def stub_of(qualname: str) -> str:
    return f'raise NotImplementedError("{qualname}")'


def functions(path: str, source: str) -> list[Function]:
    """All top-level functions and methods with a body of its own lines. Empty when the file does not parse."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    lines = source.split("\n")
    found = []
    for node, owner in _definitions(tree):
        function = _function(path, lines, node, owner)
        if function is not None:
            found.append(function)
    names = [f.qualname for f in found]
    return [f for f in found if names.count(f.qualname) == 1]  # redefined under an `if`: which one is meant?


def _definitions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, ast.ClassDef | None]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node, None
        elif isinstance(node, ast.ClassDef):
            yield from ((inner, node) for inner in node.body if isinstance(inner, ast.FunctionDef))


def _function(path: str, lines: list[str], node: ast.FunctionDef, owner: ast.ClassDef | None) -> Function | None:
    documented = ast.get_docstring(node) is not None
    rest = node.body[1:] if documented else node.body
    if not rest or node.end_lineno is None:
        return None
    head_end = node.body[0].end_lineno if documented else rest[0].lineno - 1
    assert head_end is not None
    if head_end >= rest[0].lineno:
        return None  # body on the line of the signature
    start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    code = lines[rest[0].lineno - 1]
    indent = code[: len(code) - len(code.lstrip())]
    head = _trimmed(lines[start - 1 : head_end], documented)
    if owner is not None:
        head = f"{lines[owner.lineno - 1]}\n{head}"
    body = textwrap.dedent("\n".join(lines[head_end : node.end_lineno]))
    name = f"{owner.name}.{node.name}" if owner else node.name
    return Function(path, name, head_end + 1, node.end_lineno, head, indent, body.strip("\n"))


def _trimmed(lines: list[str], documented: bool) -> str:
    """The head with a long docstring cut at a line end."""
    whole = "\n".join(lines)
    if not documented or (len(lines) <= MAX_DOC_LINES and len(whole) <= MAX_DOC_CHARACTERS):
        return whole
    kept: list[str] = []
    for line in lines:
        if len(kept) >= MAX_DOC_LINES or sum(map(len, kept)) + len(line) > MAX_DOC_CHARACTERS:
            break
        kept.append(line)
    quote = "'''" if "'''" in whole and '"""' not in whole else '"""'
    last = lines[-1]
    return "\n".join(kept).rstrip() + "\n" + last[: len(last) - len(last.lstrip())] + f"...{quote}"


def stub_source(source: str, chosen: Sequence[Function]) -> str:
    """The file with the bodies of these functions deleted."""
    lines = source.split("\n")
    for function in sorted(chosen, key=lambda f: -f.first):
        lines[function.first - 1 : function.last] = [function.indent + function.stub]
    text = "\n".join(lines)
    try:
        ast.parse(text)
    except SyntaxError as problem:
        names = ", ".join(f.qualname for f in chosen)
        raise TaskError(f"stubbing {names} in {chosen[0].path} breaks the file: {problem}") from problem
    return text


def instruction(chosen: Sequence[Function]) -> str:
    """What the agent is asked. Short, so that a small model reads it."""
    return "\n".join(
        f"Implement `{f.qualname}` in `{f.path}`. Its body is `{f.stub}`.\n```python\n{f.head}\n```" for f in chosen
    )

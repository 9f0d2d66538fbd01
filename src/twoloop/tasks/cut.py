"""Taking test functions out of a test file, so that the hidden ones are absent and not merely forbidden."""

from __future__ import annotations

import ast
from collections.abc import Iterable


def function_of(node_id: str) -> str:
    """The test function of a node id: "tests/test_a.py::TestB::test_c[1]" -> "TestB::test_c"."""
    return node_id.partition("::")[2].partition("[")[0]


def file_of(node_id: str) -> str:
    return node_id.partition("::")[0]


def without(source: str, hidden: Iterable[str]) -> str:
    """The test file without these functions ("test_a" or "TestB::test_c")."""
    gone = set(hidden)
    lines = source.split("\n")
    spans: list[tuple[int, int, str]] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in gone:
            spans.append(_span(node, ""))
        elif isinstance(node, ast.ClassDef):
            methods = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
            chosen = [n for n in methods if f"{node.name}::{n.name}" in gone]
            left = len(node.body) - len(chosen)
            for i, method in enumerate(chosen):
                first = lines[method.lineno - 1]
                indent = first[: len(first) - len(first.lstrip())]
                spans.append(_span(method, f"{indent}pass" if left == 0 and i == 0 else ""))
    for start, end, instead in sorted(spans, reverse=True):
        lines[start - 1 : end] = [instead] if instead else []
    return "\n".join(lines)


def _span(node: ast.FunctionDef | ast.AsyncFunctionDef, instead: str) -> tuple[int, int, str]:
    assert node.end_lineno is not None
    return min([node.lineno, *(d.lineno for d in node.decorator_list)]), node.end_lineno, instead

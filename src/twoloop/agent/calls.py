"""The tool call as the model writes it: the tool's name on the first line, then one argument a line.

    replace_in_file
    path: pkg/mod.py
    old: raise NotImplementedError("first")
    new:
    return next(iter(seq))

An argument whose `key:` line is empty goes on over the lines below it, up to the tool's next parameter. A call ends
with its message. This is as short as a format can be that a small model writes without a slip.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from twoloop.agent.types import Harness, Tool
from twoloop.records import CallError, ToolCall

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
OPTIONAL = {"list_files": ("path",), "finish": ("message",)}


@dataclass(frozen=True)
class Parsed:
    """A call, or why there is none. `call` is set for unknown tools too, with no arguments."""

    call: ToolCall | None
    error: CallError | None = None
    problem: str = ""


def parse(text: str, harness: Harness) -> Parsed:
    """Read one agent message. Every text has an answer; nothing raises."""
    first, _, rest = text.strip("\n").partition("\n")
    name = first.strip()
    if not _NAME.fullmatch(name):
        return Parsed(None, "malformed_call", "the first line must be a tool's name and nothing else")
    tool = harness.tool(name)
    if tool is None:
        return Parsed(ToolCall(name, {}), "unknown_tool", f"there is no tool {name!r}")
    arguments, problem = _arguments(rest, tool)
    if problem:
        return Parsed(ToolCall(name, arguments), "malformed_call", problem)
    return Parsed(ToolCall(name, arguments))


def _arguments(text: str, tool: Tool) -> tuple[dict[str, str], str]:
    """The arguments by name, and what is wrong with them ("" when nothing is)."""
    lines: dict[str, list[str]] = {}
    current: str | None = None
    for line in text.split("\n") if text else []:
        key, colon, value = line.partition(":")
        if colon and key in tool.parameters and key not in lines and _follows(key, current, tool):
            current = key
            lines[key] = [value.strip()] if value.strip() else []
        elif current is not None:
            lines[current].append(line)
        elif line.strip():
            expected = ", ".join(tool.parameters) or "no arguments"
            return {}, f"expected {expected}, got {line.strip()[:40]!r}"
    arguments = {key: "\n".join(value) for key, value in lines.items()}
    missing = [p for p in tool.parameters if p not in arguments and p not in OPTIONAL.get(tool.action, ())]
    return arguments, f"missing argument {missing[0]!r}" if missing else ""


def _follows(key: str, current: str | None, tool: Tool) -> bool:
    """Parameters come in the tool's order, so that a block may hold lines that look like earlier ones."""
    return current is None or tool.parameters.index(key) > tool.parameters.index(current)


def write(name: str, arguments: dict[str, str]) -> str:
    """The text of a call; `parse` reads it back."""
    lines = [name]
    for key, value in arguments.items():
        block = "\n" in value or value != value.strip()
        lines.append(f"{key}:\n{value}" if block else f"{key}: {value}")
    return "\n".join(lines)

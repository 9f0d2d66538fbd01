"""The products whose agents we run: a harness each. `default` is what the seed checkpoint knows by heart; `renamed` is
the same product after a release that renamed every tool and does not list them, the situation that real users hit."""

from __future__ import annotations

from twoloop.agent.types import Action, Harness, Tool
from twoloop.errors import ConfigError

PARAMETERS: dict[Action, tuple[str, ...]] = {
    "list_files": ("path",),
    "read_file": ("path",),
    "write_file": ("path", "content"),
    "replace_in_file": ("path", "old", "new"),
    "run_tests": (),
    "shell": ("command",),
    "finish": ("message",),
}
DEFAULT_NAMES: dict[Action, str] = {
    "list_files": "list_files",
    "read_file": "read_file",
    "write_file": "write_file",
    "replace_in_file": "replace_in_file",
    "run_tests": "run_tests",
    "finish": "finish",
}
RENAMED: dict[Action, str] = {
    "list_files": "tree",
    "read_file": "view",
    "write_file": "save",
    "replace_in_file": "patch",
    "run_tests": "check",
    "finish": "submit",
}


def harness(name: str, names: dict[Action, str], *, list_tools: bool = False) -> Harness:
    """A harness with these tools. `shell` is absent unless named."""
    tools = tuple(Tool(label, action, PARAMETERS[action]) for action, label in names.items())
    return Harness(name, tools, list_tools)


def product(name: str) -> Harness:
    """One of the harnesses that ship with twoloop, by name."""
    known = {"default": DEFAULT_NAMES, "renamed": RENAMED}
    if name not in known:
        raise ConfigError(f"unknown harness {name!r}", fix=f"Use one of: {', '.join(known)}.")
    return harness(name, known[name])


def signature(tool: Tool) -> str:
    return f"{tool.name}({', '.join(tool.parameters)})"


def tool_list(product: Harness) -> str:
    """The tools in one line, as prompts and hints show them."""
    return ", ".join(signature(tool) for tool in product.tools)


def system_prompt(product: Harness) -> str:
    text = "You are a coding agent. Each message is one tool call: the tool's name, then its arguments, one a line."
    return f"{text}\nTools: {tool_list(product)}" if product.list_tools else text

"""The harness's contracts: what tools a product offers, what the agent works in, how a session is bounded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol

from twoloop.sandbox.types import Sandbox

Action = Literal["list_files", "read_file", "write_file", "replace_in_file", "run_tests", "shell", "finish"]


@dataclass(frozen=True)
class Tool:
    """One tool as a product offers it: the `name` that the model must call, and the `action` behind it."""

    name: str
    action: Action
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Harness:
    """A product's agent: its tools, whether the prompt lists them, and the bounds of a session."""

    name: str
    tools: tuple[Tool, ...]
    list_tools: bool = False
    max_turns: int = 6
    max_errors: int = 3  # consecutive failed calls that end a session
    max_turn_tokens: int = 80
    max_context: int = 1024  # tokens

    def tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def named(self, action: Action) -> str:
        """This product's name for an action."""
        return next(tool.name for tool in self.tools if tool.action == action)

    def listing(self, yes: bool = True) -> Harness:
        """The same product with its tools listed in the prompt, or not."""
        return replace(self, list_tools=yes)


@dataclass(frozen=True)
class TestOutcome:
    """What the agent's own test run said. `error` is set when the suite could not even be collected."""

    __test__ = False  # not a pytest class

    passed: int
    failed: int
    error: str = ""


class Environment(Protocol):
    """What one session works in: an open sandbox that holds the codebase, and how to run the visible tests there."""

    task_id: str
    cluster: str
    instruction: str
    sandbox: Sandbox

    def run_tests(self) -> TestOutcome:
        """Run the tests that the agent may see, inside the sandbox."""
        ...

    def close(self) -> None: ...

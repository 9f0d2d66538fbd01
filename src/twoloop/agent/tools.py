"""What each tool does, inside the sandbox's workspace. A tool answers with text; a failed one also names its error."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from twoloop.agent.types import Action, Environment
from twoloop.errors import SandboxError
from twoloop.records import CallError
from twoloop.sandbox.types import Limits

MAX_SHOWN = 2_000  # characters of a file or a command's output that the model sees


@dataclass(frozen=True)
class Observation:
    text: str
    error: CallError | None = None
    ends: bool = False  # the agent declared itself finished


def run_tool(action: Action, arguments: dict[str, str], environment: Environment) -> Observation:
    """Run one well-formed call. Raises SandboxError when the sandbox itself fails, and nothing else."""
    match action:
        case "list_files":
            return _list(environment, arguments.get("path", "."))
        case "read_file":
            return _read(environment, arguments["path"])
        case "write_file":
            return _write(environment, arguments["path"], arguments["content"])
        case "replace_in_file":
            return _replace(environment, arguments["path"], arguments["old"], arguments["new"])
        case "run_tests":
            return _tests(environment)
        case "shell":
            return _shell(environment, arguments["command"])
        case "finish":
            return Observation("", ends=True)


def _list(environment: Environment, path: str) -> Observation:
    found = environment.sandbox.exec(["/usr/bin/find", "./" + path, "-type", "f", "-not", "-name", ".*"])
    if found.code != 0:
        return Observation(f"error: no such folder: {path}", "bad_argument")
    names = sorted(
        line.removeprefix("./").removeprefix("./") for line in found.stdout.decode("utf-8", "replace").split()
    )
    return Observation(clip("\n".join(names)))


def _read(environment: Environment, path: str) -> Observation:
    text = _text(environment, path)
    return text if isinstance(text, Observation) else Observation(clip(text))


def _write(environment: Environment, path: str, content: str) -> Observation:
    try:
        environment.sandbox.put(path, (content.rstrip("\n") + "\n").encode())
    except (OSError, ValueError) as problem:
        return Observation(f"error: cannot write {path}: {_plain(problem)}", "bad_argument")
    return Observation("ok")


def _replace(environment: Environment, path: str, old: str, new: str) -> Observation:
    """Replace the one place where `old` stands. `new` is read relative to the indentation of the line where `old`
    begins, so that the model need not count spaces."""
    text = _text(environment, path)
    if isinstance(text, Observation):
        return text
    count = text.count(old) if old else 0
    if count != 1:
        problem = "the old text is not in the file" if count == 0 else f"the old text is in the file {count} times"
        return Observation(f"error: {problem}", "bad_argument")
    return _write(environment, path, splice(text, old, new))


def splice(text: str, old: str, new: str) -> str:
    """`text` with its one occurrence of `old` replaced by `new`, indented like the line where `old` begins."""
    at = text.index(old)
    line = text[text.rfind("\n", 0, at) + 1 : at]
    indent = line[: len(line) - len(line.lstrip())]
    first, *rest = textwrap.dedent(new.strip("\n")).split("\n")
    body = "\n".join([first, *(indent + later if later.strip() else "" for later in rest)])
    return text[:at] + body + text[at + len(old) :]


def _tests(environment: Environment) -> Observation:
    outcome = environment.run_tests()
    if outcome.error:
        return Observation(f"error in tests: {clip(outcome.error, 160)}")
    return Observation(f"{outcome.passed} passed, {outcome.failed} failed")


def _shell(environment: Environment, command: str) -> Observation:
    done = environment.sandbox.exec(["/bin/sh", "-c", command], limits=Limits(wall_s=20.0))
    if done.timed_out:
        return Observation("error: the command took too long", "time_out")
    output = (done.stdout + done.stderr).decode("utf-8", "replace")
    return Observation(clip(f"exit {done.code}\n{output}".rstrip()))


def _text(environment: Environment, path: str) -> str | Observation:
    try:
        return environment.sandbox.get(path).decode("utf-8", "replace")
    except SandboxError:
        raise
    except (OSError, ValueError):
        return Observation(f"error: no such file: {path}", "bad_argument")


def clip(text: str, limit: int = MAX_SHOWN) -> str:
    return text if len(text) <= limit else text[:limit] + "\n[cut]"


def _plain(problem: Exception) -> str:
    return getattr(problem, "strerror", None) or str(problem)

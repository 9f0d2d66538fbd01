"""Scripted sessions for the seed checkpoint: how an agent that knows its tools would have worked.

The code comes from the standard library of the running Python, whose short documented functions are stubbed as tasks
stub them, so the seed has never seen a task. Three kinds of session are mixed, so that the model both *remembers* tools
and *reads* about them:

- plain: the default tools, not listed anywhere;
- listed: tools of invented names, listed in the system prompt;
- hinted: tools of invented names, listed in a hint before one turn; only that turn is learned.
"""

from __future__ import annotations

import random
import sysconfig
from pathlib import Path

from twoloop.agent.calls import write
from twoloop.agent.products import DEFAULT_NAMES, RENAMED, harness, product
from twoloop.agent.session import prompt_tokens
from twoloop.agent.types import Action, Harness
from twoloop.models.types import Renderer
from twoloop.records import Datum
from twoloop.tasks.units import Function, functions, instruction
from twoloop.train.hints import available_tools

MAX_BODY_LINES, MAX_HEAD = 5, 450  # lines; characters of signature and docstring
_LEFT_OUT = {"test", "tests", "site-packages", "idlelib", "lib2to3", "__pycache__"}
_NAMES: dict[Action, str] = {  # what other products call these tools; none of these is measured later
    "list_files": "ls dir list files glob list_dir walk listing show_files find_files browse",
    "read_file": "cat open read show load print_file get_file read_text fetch display open_file",
    "write_file": "write put create store new_file write_text create_file dump overwrite put_file",
    "replace_in_file": "edit swap alter change modify update fix_text edit_file str_replace substitute apply_edit",
    "run_tests": "test verify pytest run_suite run_checks try_it execute_tests validate test_all unittest",
    "finish": "done end close stop exit complete quit final_answer finalize end_session",
}
_AFFIXES = ("repo_{}", "fs_{}", "{}_tool", "{}2", "do_{}", "code_{}", "{}_now", "my_{}")
STRUCTURE, CODE = 1.0, 0.3  # loss weight of a call's frame, and of the code in it, which is far harder to predict


def harvest(root: Path | None = None) -> list[Function]:
    """Short documented functions of the standard library, in a fixed order."""
    root = root or Path(sysconfig.get_paths()["stdlib"])
    found: list[Function] = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if _LEFT_OUT & set(relative.parts):
            continue
        try:
            source = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        found.extend(f for f in functions(relative.as_posix(), source) if _usable(f))
    return found


def _usable(function: Function) -> bool:
    plain = "." not in function.qualname and not function.qualname.startswith("_")
    short = len(function.body.split("\n")) <= MAX_BODY_LINES and len(function.head) <= MAX_HEAD
    documented = '"""' in function.head or "'''" in function.head
    return plain and short and documented and function.head.startswith("def ") and "import " not in function.body


class Scripts:
    """An endless, seeded stream of training rows."""

    def __init__(self, renderer: Renderer, known: list[Function], seed: int) -> None:
        self._renderer, self._functions = renderer, known
        self._random = random.Random(seed)

    def row(self) -> Datum:
        kind = self._random.choices(("plain", "listed", "hinted"), (0.35, 0.25, 0.4))[0]
        chosen = self._random.sample(self._functions, 2 if self._random.random() < 0.15 else 1)
        if kind == "plain":
            return self._session(product("default"), chosen, hinted=False)
        invented = harness("invented", self._names(), list_tools=kind == "listed")
        return self._session(invented, chosen, hinted=kind == "hinted")

    def _names(self) -> dict[Action, str]:
        """New names for all tools; never those of a product that is measured later."""
        taken = set(RENAMED.values()) | set(DEFAULT_NAMES.values())
        names: dict[Action, str] = {}
        for action in DEFAULT_NAMES:
            name = ""
            while not name or name in taken:
                name = self._random.choice(_NAMES[action].split())
                if self._random.random() < 0.4:
                    name = self._random.choice(_AFFIXES).format(name)
            taken.add(name)
            names[action] = name
        return names

    def _calls(self, product: Harness, chosen: list[Function]) -> list[tuple[str, str]]:
        """(call, observation) of the whole session."""
        calls = []
        if self._random.random() < 0.05:
            calls.append((write(product.named("list_files"), {"path": "."}), "\n".join(f.path for f in chosen)))
            calls.append((write(product.named("read_file"), {"path": chosen[0].path}), chosen[0].head))
        for function in chosen:
            arguments = {"path": function.path, "old": function.stub, "new": function.body}
            text = write(product.named("replace_in_file"), arguments)
            calls.append((text if "new:\n" in text else text.replace("\nnew: ", "\nnew:\n"), "ok"))
        failed = self._random.choice((0, 0, 0, self._random.randint(1, 9)))
        calls.append((write(product.named("run_tests"), {}), f"{self._random.randint(1, 20)} passed, {failed} failed"))
        calls.append((write(product.named("finish"), {"message": "Done." if not failed else "Tests fail."}), ""))
        return calls

    def _session(self, product: Harness, chosen: list[Function], *, hinted: bool) -> Datum:
        render = self._renderer
        tokens = prompt_tokens(render, product, instruction(chosen))
        mask = [0.0] * len(tokens)
        calls = self._calls(product, chosen)
        learned = self._random.randrange(len(calls)) if hinted else None
        for i, (call, observation) in enumerate(calls):
            if i == learned:
                action = next(tool.action for tool in product.tools if tool.name == call.partition("\n")[0])
                for _ in range(self._random.choice((0, 0, 1, 2))):
                    add(tokens, mask, render.generation_prompt() + self._mistake(call, action), 0.0)
                hint = render.message("user", available_tools(product))
                add(tokens, mask, hint, 0.0)
            add(tokens, mask, render.generation_prompt(), 0.0)
            self._say(tokens, mask, call, learned in (None, i))
            if i == learned or i == len(calls) - 1:
                break
            add(tokens, mask, render.after_turn(tokens[-1:]), 0.0)
            add(tokens, mask, render.message("tool", observation), 0.0)
        return Datum(tuple(tokens), tuple(mask))

    def _say(self, tokens: list[int], mask: list[float], call: str, learned: bool) -> None:
        """The agent's message. Its tokens are the whole text's, so the weights follow the length of the frame."""
        said = self._renderer.turn(call)
        frame = len(self._renderer.turn(call.partition("new:\n")[0])) - 1
        weights = [STRUCTURE if i < frame or i == len(said) - 1 else CODE for i in range(len(said))]
        tokens.extend(said)
        mask.extend(weights if learned else [0.0] * len(said))

    def _mistake(self, call: str, action: Action) -> list[int]:
        """The same call under the default tool's name and what the harness answers: context, never learned."""
        wrong = DEFAULT_NAMES[action]
        _, _, rest = call.partition("\n")
        text = f"{wrong}\n{rest}" if rest else wrong
        answer = self._renderer.message("tool", f"error: unknown tool: there is no tool {wrong!r}")
        sampled = self._renderer.turn(text)
        return sampled + self._renderer.after_turn(sampled) + answer


def add(tokens: list[int], mask: list[float], new: list[int], weight: float) -> None:
    tokens.extend(new)
    mask.extend([weight] * len(new))

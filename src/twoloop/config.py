"""Typed settings: defaults, then `twoloop.toml`, then `--section.key value`. What is unknown or wrong is refused."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from twoloop.errors import ConfigError

FILE = "twoloop.toml"


def _setting(
    default: Any,
    about: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A setting with its bounds: low ≤ value ≤ high, or value > above."""
    bounds = {"about": about, "low": low, "high": high, "above": above, "choices": choices}
    return field(default=default, metadata=bounds)


@dataclass(frozen=True)
class ModelSettings:
    name: str = _setting("smollm2-135m-instruct", "an embedded model, a folder in Hugging Face's layout, or a hub name")
    cache: str = _setting("", "where models are kept; empty: $TWOLOOP_CACHE, else ~/.cache/twoloop")


@dataclass(frozen=True)
class TaskSettings:
    sources: tuple[str, ...] = _setting(
        ("toolz==1.2.0", "more-itertools==11.2.1", "boltons==26.2.0"), "codebases: a folder, a pinned sdist, a git URL"
    )
    seed: int = _setting(0, "of what is deleted and how modules are split", low=0)


@dataclass(frozen=True)
class HarnessSettings:
    name: str = _setting("renamed", "the product whose agent is run")


@dataclass(frozen=True)
class DogfoodSettings:
    sessions: int = _setting(32, "sessions in which the current checkpoint is watched", low=1)
    temperature: float = _setting(0.6, "of sampling outside of training; 0 is greedy", low=0, high=5)


@dataclass(frozen=True)
class TrainSettings:
    arm: str = _setting(
        "hint",
        "hint: RL and the right hint; rl: RL alone; hint_only: no reward; irrelevant: RL and a wrong hint",
        choices=("hint", "rl", "hint_only", "irrelevant"),
    )
    steps: int = _setting(10, "steps of the optimizer", low=1)
    groups: int = _setting(8, "tasks rolled out in a step", low=1)
    group_size: int = _setting(4, "rollouts of each; their mean reward is the baseline", low=2)
    learning_rate: float = _setting(2e-4, "of Adam", above=0, high=1)
    hint_weight: float = _setting(10.0, "λ of the hint KL beside the policy gradient; 0 is off", low=0)
    lora_rank: int = _setting(16, "of the adapter", low=1, high=1024)


@dataclass(frozen=True)
class GateSettings:
    tasks: int = _setting(32, "held-out tasks", low=2)
    rollouts: int = _setting(3, "sessions on each, by either checkpoint", low=1)
    margin: float = _setting(0.02, "fall of the solve rate that still counts as none", low=0, high=1)


@dataclass(frozen=True)
class RuntimeSettings:
    threads: int = _setting(0, "CPU threads; 0 is all", low=0)
    batch: int = _setting(32, "sequences that are sampled together", low=1)
    seed: int = _setting(0, "of everything that is drawn", low=0)


@dataclass(frozen=True)
class Settings:
    """All that a turn can be told. Build it with `load`."""

    model: ModelSettings = ModelSettings()
    tasks: TaskSettings = TaskSettings()
    harness: HarnessSettings = HarnessSettings()
    dogfood: DogfoodSettings = DogfoodSettings()
    train: TrainSettings = TrainSettings()
    gate: GateSettings = GateSettings()
    runtime: RuntimeSettings = RuntimeSettings()

    def as_dict(self) -> dict[str, dict[str, Any]]:
        return asdict(self)

    def describe(self) -> str:
        """The resolved settings as a commented `twoloop.toml`, which loads to the same settings."""
        blocks = []
        for section in fields(self):
            part = getattr(self, section.name)
            lines = [
                f"{item.name} = {_toml(getattr(part, item.name))}  # {item.metadata['about']}" for item in fields(part)
            ]
            blocks.append("\n".join([f"[{section.name}]", *lines]))
        return "\n\n".join(blocks) + "\n"


def load(path: Path | None = None, overrides: Mapping[str, str] | None = None) -> Settings:
    """Settings from a file and from `section.key -> text` overrides, which win.

    Without a path, `twoloop.toml` in the current folder is read if it is there. Raises ConfigError.
    """
    if path is None and Path(FILE).is_file():
        path = Path(FILE)
    values: dict[str, dict[str, Any]] = {}
    if path is not None:
        for section, table in _read(path).items():
            _check_section(section, table, str(path))
            values[section] = {key: _check(section, key, value, str(path)) for key, value in table.items()}
    for name, text in (overrides or {}).items():
        section, _, key = name.partition(".")
        origin = "the command line"
        values.setdefault(section, {})[key] = _check(section, key, _from_text(section, key, text, origin), origin)
    sections = _sections()
    return Settings(**{section: sections[section](**table) for section, table in values.items()})


def parse_overrides(arguments: Sequence[str]) -> dict[str, str]:
    """`--section.key value` and `--section.key=value` to {section.key: value}; the last one wins."""
    overrides: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, value = argument.partition("=")
        if not re.fullmatch(r"--[\w-]+\.[\w-]+", name):
            raise ConfigError(
                f"{argument!r} is neither an option nor a setting.",
                fix="A setting looks like `--train.steps 8`; `--help` lists the options.",
            )
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise ConfigError(f"{name} needs a value.", fix=f"For example `{name} 1`.")
            value = rest.pop(0)
        overrides[name[2:].replace("-", "_")] = value
    return overrides


# ---------------------------------------------------------------------------------------------------------------------
# Reading and checking

_SECRET_KEY = re.compile(r"secret|password|passwd|credential|private_?key|(api|access|auth)_?(key|token)|^token$", re.I)
_SECRET_VALUE = re.compile(r"^(hf_|sk-|ghp_|github_pat_|xox[bap]-|AKIA)[\w-]{12,}$")
_KINDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple[str, ...]: "a list of texts",
}


def _read(path: Path) -> dict[str, Any]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"There is no settings file {path}.", fix="Name one that exists, or leave --config out."
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", fix="Mend the file; it is TOML.") from error
    if isinstance(tables.get("model"), str):  # `model = "…"` says all that most people have to say about it
        tables["model"] = {"name": tables["model"]}
    return tables


def _sections() -> dict[str, type]:
    return get_type_hints(Settings)


def _check_section(section: str, table: Any, origin: str) -> None:
    if section not in _sections():
        _refuse_secret(section, table, origin)
        homes = [f"{name}.{section}" for name, kind in _sections().items() if section in _keys(kind)]
        raise ConfigError(
            f"{origin}: unknown section {section}{_nearest(section, _sections(), homes)}",
            fix=f"The sections are {', '.join(_sections())}.",
        )
    if not isinstance(table, dict):
        raise ConfigError(
            f"{origin}: {section} is a section, not a value.", fix=f"Write `[{section}]` and its keys below."
        )


def _check(section: str, key: str, value: Any, origin: str) -> Any:
    """The value in the type that its setting has."""
    item, kind = _find(section, key, value, origin)
    name = f"{section}.{key}"
    if kind is float and type(value) is int:
        value = float(value)
    if kind == tuple[str, ...] and isinstance(value, list):
        value = tuple(value)
    fits = all(isinstance(one, str) for one in value) if isinstance(value, tuple) else type(value) is kind
    if not fits:
        raise ConfigError(f"{origin}: {name} must be {_KINDS[kind]}, not {_toml(value)}.", fix=_example(name, item))
    for text in value if isinstance(value, tuple) else (value,):
        _refuse_secret(key, text, origin)
    _check_bounds(name, item, value, origin)
    return value


def _check_bounds(name: str, item: Field[Any], value: Any, origin: str) -> None:
    bounds = item.metadata
    if bounds["choices"] and value not in bounds["choices"]:
        near = _nearest(str(value), bounds["choices"], ())
        raise ConfigError(
            f"{origin}: {name} cannot be {value!r}{near}", fix=f"Use one of {', '.join(bounds['choices'])}."
        )
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    low, high, above = bounds["low"], bounds["high"], bounds["above"]
    wanted = [f"at least {low:g}"] if low is not None else []
    wanted += [f"above {above:g}"] if above is not None else []
    wanted += [f"at most {high:g}"] if high is not None else []
    too_low = (low is not None and value < low) or (above is not None and value <= above)
    too_high = high is not None and value > high
    if too_low or too_high or value != value or value in (float("inf"), float("-inf")):
        wish = " and ".join(wanted) or "finite"
        raise ConfigError(f"{origin}: {name} must be {wish}, not {value:g}.", fix=_example(name, item))


def _find(section: str, key: str, value: Any, origin: str) -> tuple[Field[Any], Any]:
    """The setting's field and its type."""
    _check_section(section, {}, origin)
    kind = _sections()[section]
    for item in fields(kind):
        if item.name == key:
            return item, get_type_hints(kind)[key]
    _refuse_secret(key, value, origin)
    homes = [f"{name}.{key}" for name, other in _sections().items() if key in _keys(other)]
    near = [f"{section}.{one}" for one in _keys(kind)]
    raise ConfigError(
        f"{origin}: unknown key {section}.{key}{_nearest(f'{section}.{key}', near, homes)}",
        fix=f"The keys of [{section}] are {', '.join(_keys(kind))}.",
    )


def _from_text(section: str, key: str, text: str, origin: str) -> Any:
    """A command line's text as the setting's type, or as it is where it does not fit (the check then says so)."""
    _, kind = _find(section, key, text, origin)
    if kind == tuple[str, ...]:
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return kind(text)
    except ValueError:
        return text


def _refuse_secret(key: str, value: Any, origin: str) -> None:
    """Never echoes the value."""
    if _SECRET_KEY.search(key) or (isinstance(value, str) and _SECRET_VALUE.match(value)):
        raise ConfigError(
            f"{origin}: {key} looks like a secret, and secrets do not belong into settings.",
            fix="Set it in the environment (for example HF_TOKEN), remove it here, and change it if it was shared.",
        )


def _nearest(word: str, known: Iterable[str], elsewhere: Iterable[str]) -> str:
    near = [*elsewhere, *difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)]
    return f"; did you mean {near[0]}?" if near else "."


def _keys(kind: type) -> list[str]:
    return [item.name for item in fields(kind)]


def _example(name: str, item: Field[Any]) -> str:
    return f"Its default is {_toml(item.default)}: {item.metadata['about']} (`--{name}` on the command line)."


def _toml(value: Any) -> str:
    """A TOML literal. JSON's literals are TOML's too, for the types that settings have; only DEL needs an escape."""
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    return json.dumps(value, default=str, ensure_ascii=False).replace("\x7f", "\\u007f")

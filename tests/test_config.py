"""Settings: what is not understood is refused with the nearest thing that is, and nothing is lost on the way."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoloop.config import Settings, TaskSettings, load, parse_overrides
from twoloop.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    path = folder / "twoloop.toml"
    path.write_text(text)
    return path


def refused(path: Path | None = None, **overrides: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(path, {name.replace("__", "."): value for name, value in overrides.items()})
    assert caught.value.fix, "an error that a user can mend says how"
    return caught.value


def test_command_line_beats_file_beats_default(tmp_path: Path) -> None:
    path = written(tmp_path, '[train]\nsteps = 3\ngroups = 2\n[tasks]\nsources = ["./mine"]\n')
    settings = load(path, {"train.steps": "5", "gate.margin": "0"})
    assert (settings.train.steps, settings.train.groups, settings.train.group_size) == (5, 2, 4)
    assert settings.tasks.sources == ("./mine",)
    assert settings.gate.margin == 0.0 and isinstance(settings.gate.margin, float)


def test_the_file_in_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, 'model = "./my-model"\n')
    assert load().model.name == "smollm2-135m-instruct"
    monkeypatch.chdir(tmp_path)
    assert load().model.name == "./my-model"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[train]\nlearning_rat = 1e-3", "unknown key train.learning_rat; did you mean train.learning_rate?"),
        ("[trian]\nsteps = 1", "unknown section trian; did you mean train?"),
        ("[train]\nsessions = 1", "unknown key train.sessions; did you mean dogfood.sessions?"),
        ("learning_rate = 1e-3", "unknown section learning_rate; did you mean train.learning_rate?"),
        ("[gate]\nxyzzy = 1", "unknown key gate.xyzzy."),
        ("train = 3", "train is a section, not a value"),
        ("[train]\nsteps = 1.5", "train.steps must be a whole number, not 1.5"),
        ("[train]\nsteps = true", "train.steps must be a whole number, not true"),
        ('[train]\nlearning_rate = "fast"', 'train.learning_rate must be a number, not "fast"'),
        ("[train]\nlearning_rate = 0", "train.learning_rate must be above 0 and at most 1, not 0"),
        ("[train]\nlearning_rate = nan", "train.learning_rate must be above 0"),
        ("[train]\nhint_weight = inf", "train.hint_weight must be at least 0, not inf"),
        ('[train]\narm = "hints"', "train.arm cannot be 'hints'; did you mean hint?"),
        ("[train]\ngroup_size = 1", "train.group_size must be at least 2, not 1"),
        ("[tasks]\nsources = [1]", "tasks.sources must be a list of texts, not [1]"),
        ("[train]\nsteps =", "cannot be read"),
    ],
)
def test_a_wrong_file_is_refused_by_file_and_key(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, text)
    message = str(refused(path))
    assert says in message
    assert str(path) in message


def test_a_wrong_command_line_is_refused_by_key(tmp_path: Path) -> None:
    assert "the command line: train.steps must be a whole number" in str(refused(train__steps="many"))
    assert "did you mean train.steps?" in str(refused(train__step="3"))
    assert "There is no settings file" in str(refused(tmp_path / "absent.toml"))


@pytest.mark.parametrize(
    "text",
    ['[model]\napi_key = "x1y2z3"', '[model]\nname = "hf_x1y2z3x1y2z3x1y2z3"', 'password = "x1y2z3"'],
)
def test_secrets_are_refused_and_never_repeated(tmp_path: Path, text: str) -> None:
    message = str(refused(written(tmp_path, text)))
    assert "secret" in message and "environment" in message
    assert "x1y2z3" not in message


def test_overrides_are_read_in_both_forms_and_stray_words_refused() -> None:
    assert parse_overrides(["--train.steps", "4", "--model.name=a=b", "--train.learning-rate", "-1"]) == {
        "train.steps": "4",
        "model.name": "a=b",
        "train.learning_rate": "-1",
    }
    for stray in (["train.steps", "4"], ["--steps", "4"], ["--train.steps"], ["--train.steps", "--gate.tasks", "2"]):
        with pytest.raises(ConfigError):
            parse_overrides(stray)


sources = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=20), max_size=3
)


@given(
    sources.map(tuple),
    st.integers(2, 10**9),
    st.floats(1e-9, 1, allow_nan=False),
    st.text(st.characters(codec="utf-8"), max_size=20),
)
def test_what_describe_prints_loads_to_the_same_settings(
    tmp_path_factory: pytest.TempPathFactory, texts: tuple[str, ...], count: int, rate: float, name: str
) -> None:
    base = Settings()
    settings = Settings(
        model=type(base.model)(name=name),
        tasks=TaskSettings(sources=texts),
        train=type(base.train)(group_size=count, learning_rate=rate),
    )
    path = written(tmp_path_factory.mktemp("described"), "")
    path.write_bytes(settings.describe().encode())
    assert load(path) == settings


def test_every_setting_says_what_it_is() -> None:
    for section in fields(Settings):
        for item in fields(section.default):  # type: ignore[arg-type]
            assert item.metadata["about"]

"""Packages for the inside: copied, pinned by content, runnable without the environment they came from."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from twoloop.errors import SandboxError
from twoloop.sandbox import Mount, open_sandbox, runner_site, sandbox_python

PYTEST = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")


def test_tests_run_inside_with_the_copied_pytest_alone(tmp_path: Path) -> None:
    site = runner_site(tmp_path / "cache", PYTEST)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "test_a.py").write_text("def test_yes(): pass\ndef test_no(): assert 1 == 2\n")
    box = open_sandbox(tmp_path / "tree", mounts=[Mount(site, "/runner")])
    argv = [sandbox_python(), "-s", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = box.exec(argv, env={"PYTHONPATH": "/runner"})
    box.stop()
    assert b"1 failed, 1 passed" in done.stdout
    assert b"/runner" not in done.stdout


def test_the_same_content_is_one_folder_also_for_callers_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: runner_site(tmp_path, ("pluggy", "iniconfig")), range(4)))
    assert len(found) == 1
    assert os.listdir(tmp_path / "runner") == [found.pop().name]  # and nothing half-made
    assert runner_site(tmp_path, ("iniconfig", "pluggy")).name in os.listdir(tmp_path / "runner")
    assert runner_site(tmp_path, ("iniconfig",)).name != runner_site(tmp_path, ("pluggy",)).name


def test_only_what_is_imported_is_copied_with_its_byte_code(tmp_path: Path) -> None:
    site = runner_site(tmp_path, ("iniconfig",))
    names = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert "iniconfig/__init__.py" in names
    assert any(name.startswith("iniconfig/__pycache__/__init__.") for name in names)
    assert not any(name.endswith((".pth", "RECORD")) or ".." in name for name in names)


def test_a_package_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="no-such-package is not installed") as caught:
        runner_site(tmp_path, ("no-such-package",))
    assert caught.value.fix == "Run `pip install no-such-package`."

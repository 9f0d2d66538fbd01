"""Runs tests inside the sandbox and reports through a file descriptor opened before any workspace code is loaded.

Stand-alone: it is mounted into the sandbox as one file and started as `python -P -s -S driver.py`. Standard input
holds a JSON request {"site", "root", "paths", "contexts", "sources", "order"}; the answer is one JSON document on
what was standard output. pytest is imported from the runner's own folder before the workspace can be imported, the
workspace's configuration is not read, and plugins are not looked for.
"""

from __future__ import annotations

import json
import os
import random
import sys
from typing import Any


class Recorder:
    """A pytest plugin: the outcome of every test by node id."""

    def __init__(self, coverage: Any, order: int | None) -> None:
        self.outcomes: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self.errors: list[str] = []
        self._coverage, self._order = coverage, order

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self._order is not None:
            random.Random(self._order).shuffle(items)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.errors.append(f"{report.nodeid}: {str(report.longrepr)[-400:]}")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self._coverage is not None:
            self._coverage.switch_context(nodeid)

    def pytest_runtest_logfinish(self) -> None:
        if self._coverage is not None:
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = report.nodeid
        self.seconds[name] = self.seconds.get(name, 0.0) + report.duration
        if report.failed:
            self.outcomes[name] = "failed"
        elif report.skipped:
            self.outcomes.setdefault(name, "skipped")
        elif report.when == "call":
            self.outcomes.setdefault(name, "passed")


def main() -> None:
    answer = os.dup(1)
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    request = json.loads(sys.stdin.read())
    sys.path.append(request["site"])
    import pytest

    coverage = None
    if request["contexts"]:
        from coverage import Coverage

        coverage = Coverage(data_file=None, config_file=False, source=request["sources"])
        coverage.start()
    os.chdir(request["root"])
    sys.path.append(request["root"])
    recorder = Recorder(coverage, request["order"])
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        request["root"],
        "--import-mode=importlib",
    ]
    code = pytest.main([*options, "--continue-on-collection-errors", *request["paths"]], plugins=[recorder])
    result = {
        "code": int(code),
        "outcomes": recorder.outcomes,
        "seconds": recorder.seconds,
        "errors": recorder.errors,
        "lines": _lines(coverage, request["root"]) if coverage is not None else {},
    }
    with os.fdopen(answer, "w") as out:
        json.dump(result, out)
    os._exit(0)  # threads and exit handlers of the tests have nothing more to say


def _lines(coverage: Any, root: str) -> dict[str, dict[str, list[str]]]:
    """File -> line -> the tests that ran it; "" stands for import time."""
    coverage.stop()
    data = coverage.get_data()
    return {
        os.path.relpath(name, root): {str(line): tests for line, tests in data.contexts_by_lineno(name).items()}
        for name in data.measured_files()
    }


if __name__ == "__main__":
    main()

"""Verifiable tasks: a codebase with a feature deleted, sealed, and graded by tests that the agent cannot reach."""

from twoloop.tasks.build import BuildReport, build
from twoloop.tasks.disk import load
from twoloop.tasks.grade import grade, open_environment
from twoloop.tasks.source import DEFAULT_SOURCES
from twoloop.tasks.units import instruction, stub_of

__all__ = ["DEFAULT_SOURCES", "BuildReport", "build", "grade", "instruction", "load", "open_environment", "stub_of"]

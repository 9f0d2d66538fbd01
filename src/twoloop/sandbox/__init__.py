"""Isolation: code from models and strangers runs here and nowhere else. No tier, no run."""

from twoloop.sandbox.homes import sweep
from twoloop.sandbox.opening import open_sandbox
from twoloop.sandbox.probe import explain, find_bwrap, probe
from twoloop.sandbox.python import runner_site, sandbox_python
from twoloop.sandbox.types import WORKSPACE, ExecResult, Limits, Mount, Sandbox, Tier

__all__ = [
    "WORKSPACE",
    "ExecResult",
    "Limits",
    "Mount",
    "Sandbox",
    "Tier",
    "explain",
    "find_bwrap",
    "open_sandbox",
    "probe",
    "runner_site",
    "sandbox_python",
    "sweep",
]

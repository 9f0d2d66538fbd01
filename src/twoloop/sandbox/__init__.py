"""Isolation: code from models and strangers runs here and nowhere else. No tier, no run."""

from twoloop.sandbox.bwrap import open_sandbox, sweep
from twoloop.sandbox.probe import explain, probe
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
    "open_sandbox",
    "probe",
    "runner_site",
    "sandbox_python",
    "sweep",
]

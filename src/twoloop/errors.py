"""One error base. A user-fixable error carries its fix: what went wrong, then what to do about it."""

from __future__ import annotations


class TwoloopError(Exception):
    """Base of every error that twoloop raises on purpose.

    `fix` is one sentence that tells the reader what to do next; the command line prints it under the message.
    """

    def __init__(self, message: str, *, fix: str | None = None) -> None:
        super().__init__(message)
        self.fix = fix

    def __str__(self) -> str:
        message = str(self.args[0])
        return f"{message}\n  fix: {self.fix}" if self.fix else message


class ConfigError(TwoloopError, ValueError):
    """A setting is unknown, of the wrong type, or out of range."""


class ModelError(TwoloopError, RuntimeError):
    """A model cannot be found, read or converted."""


class SandboxError(TwoloopError, RuntimeError):
    """The sandbox itself failed. Never the fault of the code that ran in it."""


class NoSandbox(SandboxError):
    """This machine offers no isolation tier. Nothing that a model wrote may run."""


class TaskError(TwoloopError, RuntimeError):
    """A codebase cannot be turned into tasks, or a task on disk is damaged."""


class TrainError(TwoloopError, RuntimeError):
    """A training step did not do what it claims: nothing trained, weights unchanged, logprobs apart."""


class StoreError(TwoloopError, RuntimeError):
    """The record could not be written or read. What was acknowledged before is still there."""

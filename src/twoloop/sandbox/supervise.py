"""Starts one command in a sandbox, holds it to its limits from outside, and says truly how it ended."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from twoloop.errors import SandboxError
from twoloop.sandbox.types import ExecResult, Limits

_START_S = 30.0  # to build the namespaces, on a very busy machine
_DEATH_S = 30.0  # for the kernel to end everything inside after the kill
_SIZE_POLL_S = 0.25
_CHUNK = 65_536
# What bubblewrap says when everything was built but the command is not there; its own stderr, no command ever ran.
_NOT_STARTED = (b"bwrap: execvp ", b"bwrap: Can't chdir to ")

Breach = Literal["time", "meter", "disk"]


class Meter(Protocol):
    """What enforces the memory and process ceilings of one command: a control group or a watch."""

    @property
    def poll_s(self) -> float: ...
    def attach(self, pid: int) -> None: ...
    def breach(self) -> bool: ...
    def out_of_memory(self) -> bool: ...
    def process_limit(self) -> bool: ...
    def remove(self) -> None: ...


@dataclass(frozen=True)
class Launch:
    """A command and what it is to run in."""

    bwrap: Path
    options: Sequence[str]  # of bubblewrap
    filter: bytes  # seccomp program
    argv: Sequence[str]
    stdin: bytes
    limits: Limits


def supervise(launch: Launch, meter: Meter, workspace_size: Callable[[], int]) -> ExecResult:
    """Run to the end, or to a limit. Nothing of the command is alive when this returns. Raises SandboxError when the
    sandbox cannot be built or does not die, never for what the command did.

    Must be called in the thread that stays with it: `--die-with-parent` follows the thread.
    """
    began = time.monotonic()
    try:
        with _started(launch) as run:
            run.release(meter)
            run.attend(meter, workspace_size)
            return run.result(meter, time.monotonic() - began)
    except OSError as problem:
        raise SandboxError(f"the sandbox could not be run: {problem}") from problem


@contextlib.contextmanager
def _started(launch: Launch) -> Iterator[_Run]:
    """bubblewrap with everything built, waiting at the gate before it becomes the command."""
    with contextlib.ExitStack() as stack:
        status, status_end = map(stack.enter_context, _pipe())
        gate_end, gate = map(stack.enter_context, _pipe())
        options = stack.enter_context(_memory_file(b"\0".join(map(os.fsencode, launch.options))))
        program = stack.enter_context(_memory_file(launch.filter))
        channels = {"--args": options, "--seccomp": program, "--json-status-fd": status_end, "--block-fd": gate_end}
        numbers = [word for name, file in channels.items() for word in (name, str(file.fileno()))]
        process = subprocess.Popen(
            [str(launch.bwrap), *numbers, "--", *launch.argv],
            stdin=subprocess.PIPE if launch.stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={},  # the first process inside is bubblewrap itself, and its environment can be read there
            pass_fds=[file.fileno() for file in channels.values()],
        )
        run = _Run(launch, process, status, gate)
        try:
            status_end.close()
            gate_end.close()
            yield run
        finally:
            run.close()


def _pipe() -> tuple[io.FileIO, io.FileIO]:
    reader, writer = os.pipe()
    return io.FileIO(reader, "r"), io.FileIO(writer, "w")


def _memory_file(data: bytes) -> io.FileIO:
    file = io.FileIO(os.memfd_create("twoloop"), "r+")
    file.write(data)
    file.seek(0)
    return file


class _Sink:
    """Keeps the first `limit` bytes and counts the rest away, so that a writer never blocks."""

    def __init__(self, limit: int) -> None:
        self._limit, self.kept, self.truncated = limit, bytearray(), False

    def take(self, data: bytes) -> None:
        room = self._limit - len(self.kept)
        self.kept += data[: max(room, 0)]
        self.truncated = self.truncated or len(data) > room


class _Run:
    """One command from the gate to its end."""

    def __init__(self, launch: Launch, process: subprocess.Popen[bytes], status: io.FileIO, gate: io.FileIO) -> None:
        assert process.stdout is not None and process.stderr is not None
        self._limits, self._process, self._status, self._gate = launch.limits, process, status, gate
        self._pending = memoryview(launch.stdin)
        self._first: io.FileIO | None = None  # pidfd of the first process inside: when it dies, the kernel ends all
        self._breach: Breach | None = None
        self._out, self._err, self._said = (_Sink(n) for n in (launch.limits.output_bytes,) * 2 + (_CHUNK,))
        self._sinks: dict[IO[bytes] | io.FileIO, _Sink] = {
            process.stdout: self._out,
            process.stderr: self._err,
            status: self._said,
        }

    def release(self, meter: Meter) -> None:
        """Lay the limits on the first process inside while it waits, then let it become the command."""
        pid = self._child()
        self._first = io.FileIO(os.pidfd_open(pid), "r")
        size = self._limits.file_mb << 20
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, size))
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        meter.attach(pid)
        self._gate.write(b".")

    def _child(self) -> int:
        deadline = time.monotonic() + _START_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._status, selectors.EVENT_READ)
            while b"\n" not in self._said.kept:
                data = self._status.read(_CHUNK) if selector.select(deadline - time.monotonic()) else None
                if not data:
                    raise SandboxError(f"the sandbox could not be built: {self._last_words()}")
                self._said.take(data)
        return int(json.loads(self._said.kept.split(b"\n")[0])["child-pid"])

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        self._process.kill()
        self._process.wait()
        os.set_blocking(self._process.stderr.fileno(), False)
        return (self._process.stderr.read() or b"").decode("utf-8", "replace").strip() or "it did not answer"

    def attend(self, meter: Meter, workspace_size: Callable[[], int]) -> None:
        """Feed stdin and drain the output until all of it is closed, killing at the first breach."""
        patrol = _Patrol(self._limits, meter, workspace_size)
        with selectors.DefaultSelector() as selector:
            for source in self._sinks:
                selector.register(source, selectors.EVENT_READ)
            if self._process.stdin is not None:
                os.set_blocking(self._process.stdin.fileno(), False)
                selector.register(self._process.stdin, selectors.EVENT_WRITE)
            while selector.get_map():
                if self._breach is None:
                    self._breach = patrol.breach()
                    if self._breach is not None:
                        self._kill()
                        dead_by = time.monotonic() + _DEATH_S
                elif time.monotonic() > dead_by:
                    raise SandboxError("the sandbox was killed and does not die", fix="Look for a stuck disk.")
                for key, _ in selector.select(patrol.pause() if self._breach is None else 1.0):
                    self._serve(key.fileobj, selector)

    def _serve(self, source: Any, selector: selectors.BaseSelector) -> None:
        """Move one chunk; an end that is done with is unregistered."""
        if source not in self._sinks:
            with contextlib.suppress(BrokenPipeError):
                self._pending = self._pending[os.write(source.fileno(), self._pending) :]
                if self._pending:
                    return
            selector.unregister(source)
            source.close()
        elif data := os.read(source.fileno(), _CHUNK):
            self._sinks[source].take(data)
        else:
            selector.unregister(source)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._first is None:
                self._process.kill()
            else:
                signal.pidfd_send_signal(self._first.fileno(), signal.SIGKILL)

    def close(self) -> None:
        """Kill what is still alive, and give back every descriptor. Does nothing after a regular end."""
        if self._process.poll() is None:
            self._kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_DEATH_S)
        for file in (self._process.stdin, self._process.stdout, self._process.stderr, self._first):
            if file is not None:
                with contextlib.suppress(BrokenPipeError):
                    file.close()

    def result(self, meter: Meter, seconds: float) -> ExecResult:
        """What came of it, once all ends are closed."""
        self._process.wait(_DEATH_S)
        out_of_memory = meter.out_of_memory()
        return ExecResult(
            code=self._code(out_of_memory),
            stdout=bytes(self._out.kept),
            stderr=bytes(self._err.kept),
            seconds=seconds,
            timed_out=self._breach == "time",
            out_of_memory=out_of_memory,
            truncated=self._out.truncated or self._err.truncated,
            process_limit=meter.process_limit(),
            disk_limit=self._breach == "disk",
        )

    def _code(self, out_of_memory: bool) -> int:
        """bubblewrap's own word for it, which code inside cannot forge: it says nothing where no command ever ran."""
        if self._breach is not None:
            return 128 + signal.SIGKILL
        for line in self._said.kept.splitlines():
            code = json.loads(line).get("exit-code")
            if code is not None:
                return int(code)
        if out_of_memory:
            return 128 + signal.SIGKILL
        if self._err.kept.startswith(_NOT_STARTED):
            return 127
        raise SandboxError(f"the sandbox broke: {self._err.kept.decode('utf-8', 'replace').strip() or 'no word of it'}")


class _Patrol:
    """Which limit to look at when."""

    def __init__(self, limits: Limits, meter: Meter, workspace_size: Callable[[], int]) -> None:
        now = time.monotonic()
        self._limits, self._meter, self._size = limits, meter, workspace_size
        self._end, self._next_look, self._next_size = now + limits.wall_s, now, now + _SIZE_POLL_S

    def breach(self) -> Breach | None:
        now = time.monotonic()
        if now >= self._end:
            return "time"
        if now >= self._next_look:
            if self._meter.breach():
                return "meter"
            self._next_look = now + self._meter.poll_s
        if now >= self._next_size:
            if self._size() > self._limits.workspace_mb << 20:
                return "disk"
            ended = time.monotonic()
            self._next_size = ended + max(_SIZE_POLL_S, 10 * (ended - now))  # a tenth of the time at most
        return None

    def pause(self) -> float:
        return max(0.0, min(self._end, self._next_look, self._next_size) - time.monotonic())

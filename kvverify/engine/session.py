"""The parent's side of one arm: start its process group, ask it for answers, see it gone."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from kvverify.engine.log import cause_in
from kvverify.engine.processes import end_group, wait_until_gone
from kvverify.engine.wire import (
    Answered,
    Failed,
    Generate,
    Message,
    Prepare,
    Prepared,
    Start,
    Started,
    Stop,
    Stopped,
    decode,
    encode,
)
from kvverify.errors import EngineError

LimitName = Literal["start_timeout", "answer_timeout", "shutdown_timeout"]
_SHUTDOWN_BY_ITSELF = 10.0
"""Seconds that vLLM gives its processes to end before it kills them; with LMCache they always take all of it."""

Event = TypeVar("Event", Prepared, Started, Answered, Stopped)


@dataclass(frozen=True)
class Limits:
    """How long each stage of an arm may take, in seconds."""

    start: float
    """From the process's start, and again from the engine's, until each is ready."""
    answer: float
    """One generation."""
    shutdown: float
    """From Stop until the process group and its device memory are gone."""


class ArmError(EngineError):
    """An arm did not start, answer or stop; ``limit`` names the time limit that was passed, if one was."""

    def __init__(self, problem: str, remedy: str = "", limit: LimitName | None = None) -> None:
        super().__init__(problem, remedy)
        self.limit = limit


class ArmSession:
    """One engine in a process group of its own. Use as a context manager: leaving it ends whatever still runs."""

    def __init__(self, name: str, log: Path, variables: Mapping[str, str], limits: Limits) -> None:
        """``log`` receives all output of the engine; ``variables`` is the whole environment of the process."""
        self.name = name
        self.log = log
        self.limits = limits
        self._buffer = bytearray()
        commands_in, self._commands = os.pipe()
        self._events, events_out = os.pipe()
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "kvverify.engine.worker", str(commands_in), str(events_out)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=dict(variables),
                    pass_fds=(commands_in, events_out),
                    start_new_session=True,  # a process group of its own: it can be ended whole, and Ctrl-C is for us
                )
        finally:
            os.close(commands_in)
            os.close(events_out)
        self._group = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def prepare(self, engine_arguments: dict[str, Any], sampling: dict[str, Any], *, clear_kv_memory: bool) -> None:
        """Begin the part of the start-up that needs no device; returns at once."""
        by_itself = min(self.limits.shutdown / 2, _SHUTDOWN_BY_ITSELF)
        self._send(Prepare(engine_arguments, sampling, clear_kv_memory, shutdown_seconds=by_itself))

    def start(self) -> Started:
        """Start the engine on the device and wait until it is ready."""
        prepared = self._expect(Prepared, self.limits.start, "start_timeout")
        if prepared.device_initialized:
            raise ArmError(f"{self.name}: the process touched the device before it was told to start")
        self._send(Start())
        return self._expect(Started, self.limits.start, "start_timeout")

    def ask(self, command: Generate) -> Answered:
        """One answer; an ArmError when the process ended or took too long (the engine is then of no further use)."""
        self._send(command)
        answered = self._expect(Answered, self.limits.answer, "answer_timeout")
        if answered.request != command.request:
            raise ArmError(f"{self.name}: asked for {command.request}, the engine answered {answered.request}")
        return answered

    def stop(self) -> None:
        """Shut the engine down and see its whole process group gone, within the shutdown limit."""
        deadline = time.monotonic() + self.limits.shutdown
        self._send(Stop())
        self._expect(Stopped, self.limits.shutdown, "shutdown_timeout")
        if not self._wait_for_exit(deadline) or not wait_until_gone(self._group, max(0.0, deadline - time.monotonic())):
            self.end()
            raise self._past("shutdown_timeout", self.limits.shutdown)
        self.end()

    def end(self) -> None:
        """End whatever is left of the process group, at once; safe to call again."""
        if self._commands < 0:
            return
        gone = end_group(self._group)
        self._process.wait()
        os.close(self._commands)
        os.close(self._events)
        self._commands = self._events = -1
        if not gone:
            raise ArmError(f"{self.name}: process group {self._group} is still there after it was killed")

    def _send(self, message: Message) -> None:
        data = encode(message)
        try:
            while data:
                data = data[os.write(self._commands, data) :]
        except BrokenPipeError:
            raise self._ended() from None

    def _expect(self, kind: type[Event], seconds: float, limit: LimitName) -> Event:
        line = self._read_line(time.monotonic() + seconds)
        if line is None:
            self.end()
            raise self._past(limit, seconds)
        try:
            message = decode(line)
        except ValueError as error:
            raise ArmError(f"{self.name}: {error}") from None
        if isinstance(message, Failed):
            cause = cause_in(self.log)
            also = f" ({cause})" if cause and cause not in message.error else ""
            raise ArmError(f"{self.name}: {message.stage} failed: {message.error}{also}", f"see {self.log}")
        if not isinstance(message, kind):
            raise ArmError(f"{self.name}: expected {kind.__name__}, got {type(message).__name__}")
        return message

    def _read_line(self, deadline: float) -> bytes | None:
        """The next line of events, or None at the deadline.

        The process's death is noticed even while its children still hold the pipe open.
        """
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            exited = self._process.poll() is not None  # asked before reading: what it wrote last is still read
            readable, _, _ = select.select([self._events], [], [], min(left, 0.2))
            chunk = os.read(self._events, 1 << 16) if readable else b""
            self._buffer += chunk
            if not chunk and (exited or readable):
                raise self._ended()
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        return line

    def _wait_for_exit(self, deadline: float) -> bool:
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _ended(self) -> ArmError:
        status = self._process.wait()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        cause = cause_in(self.log)
        return ArmError(
            f"{self.name}: the engine's process ended with {how}" + (f": {cause}" if cause else ""), f"see {self.log}"
        )

    def _past(self, limit: LimitName, seconds: float) -> ArmError:
        option = "--" + limit.replace("_", "-")
        cause = cause_in(self.log)
        return ArmError(
            f"{self.name}: no reply within {option} {seconds:g} s" + (f" ({cause})" if cause else ""),
            f"the process group was ended; see {self.log} or raise {option}",
            limit,
        )

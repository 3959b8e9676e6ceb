"""Starts the real command line in a process of its own, watches its progress, and sees what it leaves behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from kvverify.engine.processes import end_group, living_members
from kvverify.report.rederive import check

ROOT = Path(__file__).resolve().parents[2]

PATIENCE = 900.0
"""Seconds for anything that must happen at all; a quiet machine needs a small part of it."""

CPU_SMOKE = ("--device", "cpu", "--kv-connector", "none", "--suite", "smoke")
SMALL = (*CPU_SMOKE, "--chunk-size", "32", "--max-model-len", "256")
"""Six prompts of 63, 64 and 65 tokens: an engine's start then takes nearly all of the time."""


@dataclass(frozen=True)
class Process:
    """A process, told apart from a later one with the same number by when it started."""

    pid: int
    parent: int
    group: int
    session: int
    began: str
    state: str


def processes() -> Iterator[Process]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended while we looked
        state, parent, group, session = fields[:4]
        yield Process(int(stat.parent.name), int(parent), int(group), int(session), fields[19], state)


def descendants(pid: int) -> list[Process]:
    everything = list(processes())
    found, parents = [], {pid}
    while parents:
        children = [one for one in everything if one.parent in parents]
        found += children
        parents = {one.pid for one in children}
    return found


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """What ``condition`` gives, as soon as that is true of it."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)
    return value


@dataclass(frozen=True)
class Ended:
    """A run that has ended."""

    status: int
    output: str
    errors: str
    report: Path

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.report.read_text())
        return document

    @property
    def reasons(self) -> list[str]:
        """Why the report is not sound, which it must be whatever happened to the run."""
        return check(self.document, self.report.parent)

    def arm(self, name: str = "control") -> dict[str, Any]:
        found: dict[str, Any] = next(arm for arm in self.document["arms"] if arm["name"] == name)
        return found

    def log(self, name: str = "control") -> str:
        return (self.report.parent / self.document["evidence"]["directory"] / f"{name}.log").read_text()


@dataclass
class Running:
    """``kvverify run`` as a user starts it. Use as a context manager: leaving it ends whatever is still there."""

    model: Path
    folder: Path
    arguments: tuple[str, ...] = SMALL
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.report = self.folder / "report.json"
        self._seen: dict[int, Process] = {}
        # Beside the report's folder, which may be a full disk.
        self._output, self._errors = (self.folder.parent / f"{self.folder.name}.{name}" for name in ("out", "err"))
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "kvverify",
                    "run",
                    "--model",
                    self.model,
                    "--report",
                    self.report,
                    *self.arguments,
                ],
                cwd=self.folder.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": str(ROOT), **self.variables},
                start_new_session=True,
            )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.look()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for group in self.groups():
            end_group(group)

    def progress(self) -> str:
        return self._errors.read_text()

    def wait_for(self, text: str) -> None:
        """Wait until ``text`` stands in the progress; the run must not end before."""

        def there() -> bool:
            self.look()
            said = self._process.poll() is not None
            assert text in self.progress() or not said, f"ended with {self._process.returncode}: {self.progress()}"
            return text in self.progress()

        until(there, f"{text!r} on stderr")

    def look(self) -> list[Process]:
        """Take note of the processes below the run that are there now."""
        now = descendants(self.pid)
        self._seen |= {one.pid: one for one in now}
        return now

    def groups(self) -> set[int]:
        """Process groups of the engines that were seen."""
        return {one.group for one in self._seen.values()} - {os.getpgid(0), self.pid}

    def engine_worker(self, arm: str = "control") -> int:
        """The process that holds an arm's model, as its log names it."""
        log = (self.report.with_suffix(".evidence") / f"{arm}.log").read_text()
        pid = int(re.findall(r"^\(Worker pid=(\d+)\)", log, re.MULTILINE)[-1])
        assert pid in {one.pid for one in self.look()}
        return pid

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def end(self) -> Ended:
        """Wait until the run has ended by itself."""

        def ended() -> bool:
            self.look()
            return self._process.poll() is not None

        until(ended, "end of the run")
        return Ended(self._process.returncode, self._output.read_text(), self._errors.read_text(), self.report)

    def left(self) -> list[Process]:
        """Processes of the run that are still there: by group, by session, and those that were seen before."""
        groups = self.groups()
        assert groups, "no engine was ever seen"
        known = {(one.pid, one.began) for one in self._seen.values()}
        alive = [one for one in processes() if one.state not in "ZX"]
        members = {pid for group in groups for pid in living_members(group)}
        return [
            one
            for one in alive
            if one.pid in members or one.session in groups or (one.pid, one.began) in known or one.pid == self.pid
        ]

    def assert_nothing_left(self, seconds: float = 0.0) -> None:
        """Nothing of the run is running; at once, or within ``seconds`` where nobody was left to wait for it."""
        deadline = time.monotonic() + seconds
        while left := self.left():
            assert time.monotonic() < deadline, f"still running: {left}"
            time.sleep(0.05)


def clone(model: Path, folder: Path) -> Path:
    """Make a model folder of its own whose files are links, so that a test may replace one."""
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).symlink_to(file)
    return folder


def own_copy(file: Path) -> Path:
    """Replace a link by a copy of what it points to."""
    content = file.read_bytes()
    with suppress(FileNotFoundError):
        file.unlink()
    file.write_bytes(content)
    return file

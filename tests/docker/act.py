"""Workflows that use this action, run on this machine by act as the runner's user, with the daemon of the tests."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .daemon import RUNNER, Daemon

ROOT = Path(__file__).resolve().parents[2]
CHECKOUT = "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1"
UPLOAD = "actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f"

_AFTER = """\
      - if: always()
        shell: bash
        run: printf '%s' "$OUTPUTS" >"$KEPT/outputs.json" && cp -a . "$KEPT/workspace"
        env:
          OUTPUTS: ${{ toJSON(steps.check.outputs) }}
"""

# GitHub keeps artifacts, act on a bare machine does not: this notes what it was given and answers with an address.
_UPLOAD = """\
name: upload
inputs: {name: {}, path: {}, if-no-files-found: {}}
outputs:
  artifact-url: {value: "https://github.example/artifacts/1"}
runs:
  using: composite
  steps:
    - shell: bash
      run: printf '%s\\n%s' "$NAME" "$FILES" >"$KEPT/uploaded"
      env: {NAME: "${{ inputs.name }}", FILES: "${{ inputs.path }}"}
"""

_SUMMARY = re.compile(r"^\[[^]]+\]   ⚙  Summary - (.*?)(?=^\[[^]]+\] )", re.DOTALL | re.MULTILINE)
"""act prints each step's summary and keeps none."""


@dataclass(frozen=True)
class Job:
    """What a job left."""

    status: int
    log: str
    outputs: dict[str, str]
    summary: str
    uploaded: str
    workspace: Path

    def annotations(self, level: str) -> list[str]:
        return [line.split(f"::{level} ", 1)[1] for line in self.log.splitlines() if f"::{level} " in line]


class Runner:
    """A runner's home: its user, its copy of act, and a repository that uses the action."""

    def __init__(self, folder: Path, daemon: Daemon) -> None:
        self.folder = folder
        self.daemon = daemon
        shutil.copy2(Path(sys.prefix) / "bin" / "act", folder / "act")
        upload = folder / "upload-artifact"
        upload.mkdir()
        (upload / "action.yml").write_text(_UPLOAD)

    def job(
        self,
        inputs: Mapping[str, str],
        *,
        during: Callable[[subprocess.Popen[str]], None] | None = None,
        timeout: float = 600,
    ) -> Job:
        """Run a job with one step of the action; ``during`` is called while it runs."""
        home = Path(tempfile.mkdtemp(prefix="job-", dir=self.folder))
        repository = home / "repository"
        self._lay(repository, inputs)
        (home / "kept").mkdir()
        subprocess.run(["chown", "-R", f"{RUNNER}:{RUNNER}", home], check=True)
        with (home / "log").open("w") as log:
            process = self._start(home, repository, log)
            if during is not None:
                during(process)
            status = process.wait(timeout)
        output = (home / "log").read_text()
        kept = home / "kept" / "workspace"  # a cancelled job comes to no last step, but act leaves its workspace
        return Job(
            status=status,
            log=output,
            outputs=json.loads(_text(home / "kept" / "outputs.json") or "{}"),
            summary="".join(_SUMMARY.findall(output)),
            uploaded=_text(home / "kept" / "uploaded"),
            workspace=kept if kept.exists() else next(home.glob(".cache/act/*/hostexecutor"), kept),
        )

    def _lay(self, repository: Path, inputs: Mapping[str, str]) -> None:
        workflow = repository / ".github" / "workflows" / "check.yml"
        workflow.parent.mkdir(parents=True)
        shutil.copy2(ROOT / "action.yml", repository)
        for name in ("entrypoint", "fixtures"):
            shutil.copytree(ROOT / name, repository / name)
        given = "".join(f"          {name}: {json.dumps(value)}\n" for name, value in inputs.items())
        workflow.write_text(
            "on: push\njobs:\n  check:\n    runs-on: ubuntu-latest\n    steps:\n"
            f"      - uses: {CHECKOUT}\n      - uses: ./\n        id: check\n        with:\n{given}{_AFTER}"
        )

    def _start(self, home: Path, repository: Path, log: IO[str]) -> subprocess.Popen[str]:
        origin = "https://github.com/example/kvverify"
        git = f"git init -q && git remote add origin {origin} && git add -A && git commit -q -m x"
        options = f"--platform ubuntu-latest=-self-hosted --env KEPT={home / 'kept'}"
        options += f" --local-repository {UPLOAD}={self.folder / 'upload-artifact'}"
        act = f"exec {self.folder}/act push {options}"
        identity = {
            f"GIT_{who}_{what}": "t@example.invalid" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        environment = {"HOME": str(home), "TMPDIR": str(home), "PATH": "/usr/bin:/bin", "DOCKER_HOST": self.daemon.url}
        return subprocess.Popen(
            ["setpriv", f"--reuid={RUNNER}", f"--regid={RUNNER}", "--clear-groups", "bash", "-c", f"{git} && {act}"],
            cwd=repository,
            env=environment | identity,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )


@contextmanager
def runner_home() -> Iterator[Path]:
    """Make a folder that the runner's user can reach, and remove it."""
    folder = Path(tempfile.mkdtemp(prefix="kvverify-runner-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def interrupt(process: subprocess.Popen[str]) -> None:
    """Cancel the job as a person does at a terminal: every process of it is told."""
    os.killpg(process.pid, signal.SIGINT)


def wait_until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.2)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""

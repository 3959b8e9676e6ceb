"""Time that kvverify's own process adds to the generations: recording, judging and writing between two answers.

    python benchmarks/parent_overhead.py [OPTIONS OF kvverify run, without --report]

Runs a verification in this process. Of each arm's answering phase (first question to last answer recorded) it sets the
time spent waiting for the engine against all the rest, and prints the rest as a share of the waiting.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from wall_time import options_of

from kvverify.engine.session import ArmSession
from kvverify.preflight import preflight
from kvverify.report.store import ReportStore
from kvverify.verification import verify

asked: list[tuple[float, float]] = []
"""Begin and end of each question, in seconds."""


def main() -> None:
    ask = ArmSession.ask

    def timed(self: ArmSession, command: Any) -> Any:
        began = time.monotonic()
        answered = ask(self, command)
        asked.append((began, time.monotonic()))
        return answered

    ArmSession.ask = timed  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        options = options_of([*sys.argv[1:], "--report", str(report)])
        phases: list[list[tuple[float, float]]] = []

        def say(line: str) -> None:
            print(line, file=sys.stderr)
            if line.endswith("stopping the engine"):
                phases.append([*asked, (time.monotonic(), time.monotonic())])
                asked.clear()

        verify(preflight(options, dict(os.environ)), ReportStore(report), say)
        size = report.stat().st_size
    waiting = sum(end - began for phase in phases for began, end in phase)
    whole = sum(phase[-1][1] - phase[0][0] for phase in phases)
    print(f"answers         {sum(len(phase) - 1 for phase in phases):5d}")
    print(f"waiting         {waiting:8.2f} s")
    print(f"rest            {whole - waiting:8.2f} s, {100 * (whole - waiting) / waiting:.2f} % of the waiting")
    print(f"report          {size / 1e6:8.2f} MB")


if __name__ == "__main__":
    main()

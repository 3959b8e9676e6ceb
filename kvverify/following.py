"""Following a check from a terminal: progress on stderr, its summary on stdout, and a report even when interrupted."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

import click

from kvverify.interrupts import Interrupted, raise_on_signals
from kvverify.report.store import ReportStore

Document = dict[str, Any]


class Render(Protocol):
    """Makes the summary of a report for people."""

    def __call__(self, document: object, path: Path, form: Literal["text"], *, colour: bool) -> str: ...


def follow(check: Callable[[Callable[[str], None]], Document], store: ReportStore, render: Render) -> int:
    """Carry out ``check``, which writes its report to ``store``; the exit status that the report says.

    A signal ends the check; what it had written until then is shown. With nothing written, Interrupted is raised.
    """
    raise_on_signals()
    began = time.monotonic()
    try:
        document = check(lambda line: click.echo(f"[{time.monotonic() - began:4.0f} s] {line}", err=True))
    except Interrupted as signal:
        if not store.report.exists():
            raise
        click.echo(f"interrupted by {signal}; see {store.report}", err=True)
        document = json.loads(store.report.read_text())
    click.echo(render(document, store.report, "text", colour=colour()))
    return int(document["result"]["exit_status"])


def colour() -> bool:
    """Whether standard output is a terminal whose user has not asked for no colour."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ

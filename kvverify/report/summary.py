"""A report for people: ``render`` is what the command line and the action call."""

from pathlib import Path
from typing import Literal

from kvverify.report.markdown import render_markdown
from kvverify.report.rederive import require_sound
from kvverify.report.rows import summarise
from kvverify.report.text import render_text

Format = Literal["text", "markdown"]


def render(document: object, path: Path, form: Format, *, colour: bool = False) -> str:
    """Give the summary of the report that was read from ``path``; ``colour`` is for text on a terminal.

    Raises ReportError for a report that is not what its own answers say: its verdict must not be shown as one. The
    evidence files are not looked at, so that a report that travelled alone can be read.
    """
    summary = summarise(require_sound(document, path), path)
    return render_markdown(summary) if form == "markdown" else render_text(summary, colour=colour)

"""A server check's report for people, as text for a terminal or as Markdown."""

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from kvverify.errors import ReportError
from kvverify.report.markdown import code
from kvverify.report.text import WIDTH, printable
from kvverify.server.rederive import check_document
from kvverify.server.rows import LEGEND, Row, Summary, summarise

Format = Literal["text", "markdown"]

_COLOURS = {"PASS": "32", "FAIL": "31", "INCONCLUSIVE": "33"}
_MOST_ID = 28
"""Most characters of a conversation's id in the table."""
_MOST_ERRORS = 5
"""Most errors that are quoted; the report has them all."""
_BLOCK_TITLE = "Result block: counts and settings only, safe to share"


def render(document: object, path: Path, form: Format, *, colour: bool = False) -> str:
    """Give the summary of the report that was read from ``path``; ``colour`` is for text on a terminal.

    Raises ReportError for a report that is not what its own answers say: its verdict must not be shown as one.
    """
    reasons = check_document(document)
    if reasons or not isinstance(document, dict):
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        raise ReportError(
            f"{path} is not a sound report: {reasons[0]}{more}", "run kvverify validate on it for every reason"
        )
    summary = summarise(document, path)
    return _markdown(summary) if form == "markdown" else _text(summary, colour=colour)


def _text(summary: Summary, *, colour: bool) -> str:
    """Lay a summary out 100 columns wide; lines of the result block are never broken, so that they can be copied."""
    lines = [*_wrap(summary.headline), ""]
    lines += [*_table(summary.rows), "", *_wrap(LEGEND), ""] if summary.rows else []
    for title, texts in _lists(summary):
        lines += [title, *(line for text in texts for line in _wrap(text, "  - ", "    ")), ""]
    width = max(len(name) for name, _ in summary.facts) + 2
    lines += [line for name, value in summary.facts for line in _wrap(value, f"{name + ':':<{width}}", " " * width)]
    lines += ["", _BLOCK_TITLE, *(f"  {line}" for line in _block(summary))]
    return "".join(f"{_coloured(line) if colour else line}\n" for line in lines)


def _markdown(summary: Summary) -> str:
    lines = [f"## Server check: {summary.headline}", ""]
    if summary.rows:
        lines += ["| conversation | turn 1 | cached | verdict | differs at |", "|---|---|---|---|---|"]
        lines += [
            f"| {code(row.id)} | {row.turn1} | {row.cached} | "
            f"{row.verdict if row.verdict == 'PASS' else f'**{row.verdict}**'} | {row.difference} |"
            for row in summary.rows
        ]
        lines += ["", f"<sub>{LEGEND}</sub>", ""]
    for title, texts in _lists(summary):
        quoted = title == "Errors"
        lines += [f"### {title}", "", *(f"- {code(text) if quoted else text}" for text in texts), ""]
    lines += ["| | |", "|---|---|", *(f"| {name} | {code(value)} |" for name, value in summary.facts), ""]
    fence = [line.replace("`", "'") for line in _block(summary)]
    lines += [f"### {_BLOCK_TITLE}", "", "```", *fence, "```"]
    return "".join(f"{line}\n" for line in lines)


def _lists(summary: Summary) -> Iterable[tuple[str, list[str]]]:
    """Give the parts that are lists, each with its title, without the empty ones."""
    errors = [*summary.errors[:_MOST_ERRORS]]
    if len(summary.errors) > _MOST_ERRORS:
        errors.append(f"and {len(summary.errors) - _MOST_ERRORS} more in the report")
    parts = (
        ("Errors", errors),
        ("Noticed", [*summary.findings]),
        ("Why conversations are not valid", [*summary.reasons]),
        ("What this means", [*summary.meaning]),
    )
    return ((title, texts) for title, texts in parts if texts)


def _table(rows: Iterable[Row]) -> list[str]:
    cells = [("conversation", "turn 1", "cached", "verdict", "differs at")]
    for row in rows:
        name = printable(row.id)
        short = name if len(name) <= _MOST_ID else f"{name[: _MOST_ID - 3]}..."
        cells.append((short, row.turn1, row.cached, row.verdict, row.difference))
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def _block(summary: Summary) -> list[str]:
    width = max(len(name) for name, _ in summary.block) + 2
    return [f"{name:<{width}}{printable(value)}" for name, value in summary.block]


def _wrap(text: str, first: str = "", rest: str = "") -> list[str]:
    # Options and paths are not broken, so that they can be copied.
    wrapper = textwrap.TextWrapper(
        WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )
    return wrapper.wrap(printable(text)) or [first]


def _coloured(line: str) -> str:
    """Colour the verdict with which a line begins, or the one in a row of the table."""
    for verdict, number in _COLOURS.items():
        if line.startswith(verdict) or f"  {verdict}  " in line:
            return line.replace(verdict, f"\x1b[1;{number}m{verdict}\x1b[0m", 1)
    return line

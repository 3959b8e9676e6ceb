"""A summary as plain text for a terminal, 100 columns wide."""

import re
import textwrap
from collections.abc import Iterable, Sequence

from kvverify.report.rows import LEGEND, ArmSummary, ProbeRow, Summary

WIDTH = 100
_COLOURS = {"PASS": "32", "CONTROL ONLY PASS": "32", "FAIL": "31", "INCONCLUSIVE": "33"}
_VERDICT = re.compile(r"(?<![^ ])(CONTROL ONLY PASS|PASS|FAIL|INCONCLUSIVE)(?=:|  |$)")
_MOST = (26, 9, 22, 12, 19)
"""Most columns of each cell of a row, which then fits with two columns between cells; longer ones are cut."""
MOST_ERRORS = 5
"""Most errors of one arm that a summary quotes; the report has them all."""
MOST_CHARACTERS = 600
"""Longest text from outside that a summary quotes."""


def render_text(summary: Summary, *, colour: bool = False) -> str:
    """Lay a summary out as text that ends with a line feed; ``colour`` adds ANSI colours to verdicts.

    Paths are never broken, so that they can be copied: their lines alone may be longer than 100 columns.
    """
    lines = [*_wrap(summary.headline), ""]
    for arm in summary.arms:
        lines += [*_arm(arm), ""]
    if any(arm.rows for arm in summary.arms):
        lines += [*_wrap(LEGEND), ""]
    if summary.acceptance:
        lines += ["Acceptance fixture", *_bullets(summary.acceptance), ""]
    if summary.errors:
        lines += ["Errors of the run", *_bullets(summary.errors, most=MOST_ERRORS), ""]
    lines += ["Tested", *_bullets(summary.tested), "", "Not tested", *_bullets(summary.not_tested), ""]
    lines += [line for name, value in summary.environment for line in _wrap(value, f"{name + ':':<11}", " " * 11)]
    lines += [f"{'report:':<11}{printable(summary.report)}", f"{'evidence:':<11}{printable(summary.evidence)}"]
    return "".join(f"{_coloured(line) if colour else line}\n" for line in lines)


def printable(text: str) -> str:
    """Replace what could steer a terminal or break a line (control and format characters), and cut what is too long."""
    plain = "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))
    return plain if len(plain) <= MOST_CHARACTERS else f"{plain[:MOST_CHARACTERS]}..."


def _arm(arm: ArmSummary) -> list[str]:
    lines = [arm.name, *_wrap(arm.headline, "  ", "  "), *_bullets(arm.errors, most=MOST_ERRORS)]
    return [*lines, *_table(arm.rows), *_bullets(arm.reasons)]


def _table(rows: Sequence[ProbeRow]) -> list[str]:
    """Lay rows out under a heading, the numbers of tokens aligned to the right."""
    if not rows:
        return []
    cells = [("probe", "tokens", "cached tokens", "verdict", "differs at")]
    cells += [(row.probe, str(row.tokens), row.cached, row.verdict, row.differences) for row in rows]
    cut = [[_cut(cell, most) for cell, most in zip(row, _MOST, strict=True)] for row in cells]
    widths = [max(len(cell) for cell in column) for column in zip(*cut, strict=True)]
    lines = []
    for row in cut:
        probe, tokens, *rest = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(["", probe, tokens.rstrip().rjust(widths[1]), *rest]).rstrip())
    return lines


def _cut(cell: str, most: int) -> str:
    return cell if len(cell) <= most else f"{cell[: most - 3]}..."


def _bullets(texts: Iterable[str], most: int | None = None) -> list[str]:
    every = list(texts)
    lines = [line for text in every[:most] for line in _wrap(text, "  - ", "    ")]
    hidden = len(every) - len(every[:most])
    return [*lines, f"  - and {hidden} more in the report"] if hidden else lines


def _wrap(text: str, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(printable(text), WIDTH, initial_indent=first, subsequent_indent=rest) or [first]


def _coloured(line: str) -> str:
    """Colour the verdict with which a line begins, or the one in a row of a table."""
    return _VERDICT.sub(lambda found: f"\x1b[1;{_COLOURS[found[0]]}m{found[0]}\x1b[0m", line, count=1)

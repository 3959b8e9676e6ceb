"""A summary as GitHub-flavoured Markdown, for a step summary or a comment."""

from collections.abc import Sequence

from kvverify.report.rows import LEGEND, ArmSummary, ProbeRow, Summary
from kvverify.report.text import MOST_ERRORS, printable


def render_markdown(summary: Summary) -> str:
    """Lay a summary out as Markdown that ends with a line feed."""
    lines = [f"## KV reuse: {summary.headline}", ""]
    for arm in summary.arms:
        lines += _arm(arm)
    if any(arm.rows for arm in summary.arms):
        lines += [f"<sub>{LEGEND}</sub>", ""]
    if summary.acceptance:
        lines += ["### Acceptance fixture", "", *(f"- {code(text)}" for text in summary.acceptance), ""]
    if summary.errors:
        lines += ["### Errors of the run", "", *_quoted(summary.errors), ""]
    lines += ["### Tested", "", *_bullets(summary.tested), "", "### Not tested", "", *_bullets(summary.not_tested), ""]
    facts = [*summary.environment, ("report", summary.report), ("evidence", summary.evidence)]
    lines += ["| | |", "|---|---|", *(f"| {name} | {code(value)} |" for name, value in facts)]
    return "".join(f"{line}\n" for line in lines)


def code(text: str) -> str:
    """Quote untrusted text as a code span, in which Markdown, HTML, links and mentions are inert.

    A backtick would end the span and a pipe the table cell, whatever is put before them: both become look-alikes.
    """
    plain = printable(text).replace("`", "'").replace("|", "\N{BROKEN BAR}").strip()
    return f"`{plain or '(empty)'}`"


def _arm(arm: ArmSummary) -> list[str]:
    lines = [f"### {arm.name}", "", f"{arm.headline}.", ""]
    for block in (_quoted(arm.errors), _table(arm.rows), _bullets(arm.reasons)):
        lines += [*block, ""] if block else []
    return lines


def _table(rows: Sequence[ProbeRow]) -> list[str]:
    if not rows:
        return []
    return [
        "| probe | tokens | cached tokens | verdict | differs at |",
        "|---|--:|---|---|---|",
        *(
            f"| {code(row.probe)} | {row.tokens} | {row.cached} | {_strong(row.verdict)} | {row.differences} |"
            for row in rows
        ),
    ]


def _strong(verdict: str) -> str:
    return verdict if verdict == "PASS" else f"**{verdict}**"


def _quoted(texts: Sequence[str]) -> list[str]:
    lines = [f"- {code(text)}" for text in texts[:MOST_ERRORS]]
    hidden = len(texts) - len(lines)
    return [*lines, f"- and {hidden} more in the report"] if hidden else lines


def _bullets(texts: Sequence[str]) -> list[str]:
    return [f"- {text}" for text in texts]

"""Workflow commands that annotate a run: an error for each failing probe, a warning for each inconclusive one."""

from collections.abc import Iterator

from kvverify.comparison.arms import CONTROL
from kvverify.report.advice import explain
from kvverify.report.document import Document

_MOST = 10
"""Annotations of one level that GitHub keeps of a step; it drops further ones in silence."""


def annotations(document: Document) -> list[str]:
    """Lines that GitHub reads from a step's standard output, at most ten of each level."""
    lines = []
    for level, verdict in (("error", "fail"), ("warning", "inconclusive")):
        found = [command(level, title, text) for title, text in _findings(document, verdict)]
        kept = found if len(found) <= _MOST else found[: _MOST - 1]
        lines += kept
        if len(kept) < len(found):
            lines.append(command(level, "kvverify", f"and {len(found) - len(kept)} more: see the step summary"))
    return lines


def command(level: str, title: str, text: str) -> str:
    """One workflow command; whatever the texts hold, it stays one command and one line.

    >>> command("error", "a: b", "50%" + chr(10) + "::error::x")
    '::error title=a%3A b::50%25%0A::error::x'
    """
    escaped = title.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace(":", "%3A")
    data = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return f"::{level} title={escaped.replace(',', '%2C')}::{data}"


def _findings(document: Document, verdict: str) -> Iterator[tuple[str, str]]:
    """Title and text of each probe with this verdict; a target's before the control's."""
    judgements = [*document["targets"], {"name": CONTROL, **document["control"]}]
    for judgement in judgements:
        for probe in judgement["probes"]:
            if probe["verdict"] == verdict:
                reasons = "; ".join(explain(code) for code in probe["reasons"])
                yield f"kvverify {verdict}: {judgement['name']}, {probe['id']}", f"{_where(probe)}{reasons}"


def _where(probe: Document) -> str:
    """Say where the answers part, for a probe of a target."""
    places = []
    for one in probe.get("comparisons", []):
        indices = (one["first_difference_from_control"], one["first_difference_from_cold"])
        index = next((index for index in indices if index is not None), None)
        if index is not None:
            ordinal = f" {one['ordinal']}" if one["ordinal"] else ""
            places.append(f"{one['role']}{ordinal} at token {index}")
    return f"differs: {', '.join(places)}. " if places else ""

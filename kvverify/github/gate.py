"""Whether a job goes green: the one decision that the action makes from a sound report."""

from dataclasses import dataclass
from typing import Literal

from kvverify.report.acceptance import evidence_gaps
from kvverify.report.document import Document

Gate = Literal["verdict", "acceptance"]


@dataclass(frozen=True)
class Decision:
    """What the action ends with."""

    exit_status: int
    """0 green; 1 a difference, or another outcome than the fixture expects; 2 nothing was proven."""
    reason: str
    """One sentence of our own words."""


def decide(document: Document, *, gate: Gate, ended_with: int, allow_inconclusive: bool) -> Decision:
    """Decide by a sound report and by the status that the run ended with (``ended_with``), which must agree."""
    verdict, status = document["result"]["verdict"], document["result"]["exit_status"]
    if ended_with != status:
        return Decision(2, f"the run ended with status {ended_with}, but its report says {status}")
    if gate == "acceptance":
        return _by_acceptance(document)
    if verdict == "inconclusive" and allow_inconclusive and document["state"] == "complete":
        return Decision(0, "inconclusive, which allow-inconclusive lets through: nothing was proven")
    if status == 0 and document["state"] != "complete":
        return Decision(2, "the run did not complete")
    return Decision(status, f"the verdict is {verdict}")


def _by_acceptance(document: Document) -> Decision:
    acceptance = document["acceptance"]
    if acceptance is None:
        return Decision(2, "the report holds no acceptance: gate acceptance needs suite acceptance")
    if document["state"] != "complete":
        return Decision(2, "the acceptance run did not complete")
    if acceptance["matched"] is not True:
        # A run whose evidence is not whole proves nothing about the fixture; one whose evidence is contradicts it.
        if acceptance["matched"] is None or next(evidence_gaps(document), None) is not None:
            return Decision(2, "the evidence is not whole, so that nothing can be said about the fixture")
        return Decision(1, "the outcome is not the one that the fixture expects")
    return Decision(0, "the outcome is the one that the fixture expects")

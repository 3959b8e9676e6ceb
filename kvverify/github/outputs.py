"""The outputs that the action sets from a report."""

from collections import Counter

from kvverify.report.document import Document


def outputs(document: Document) -> dict[str, str]:
    """Name and value of each output that follows from a sound report; a value never holds a line break."""
    counts = Counter(probe["verdict"] for probe in judged_probes(document))
    acceptance = document["acceptance"]
    return {
        "verdict": document["result"]["verdict"],
        "exit-code": str(document["result"]["exit_status"]),
        "acceptance-matched": "" if acceptance is None else str(acceptance["matched"] is True).lower(),
        "probes": str(counts.total()),
        "failed": str(counts["fail"]),
        "inconclusive": str(counts["inconclusive"]),
    }


def judged_probes(document: Document) -> list[Document]:
    """Every probe of every target, or the control's own where no target was asked for."""
    judgements = document["targets"] or [document["control"]]
    return [probe for judgement in judgements for probe in judgement["probes"]]


def render_outputs(values: dict[str, str]) -> str:
    """Lines of the file that GITHUB_OUTPUT names."""
    return "".join(f"{name}={value}\n" for name, value in values.items())

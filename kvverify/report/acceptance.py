"""Whether a run found what its acceptance fixture expects: pure, from a judged report alone."""

from collections.abc import Iterator
from typing import Any

from kvverify.report.completeness import gaps

Document = dict[str, Any]

_DIFFERENCES = frozenset({"difference_from_control", "difference_from_cold", "difference_without_proven_reuse"})
"""Reasons of a verdict that say what was seen; every other one says what is missing or doubtful."""


def match(document: Document) -> Document | None:
    """The report's ``acceptance`` section with ``matched`` and ``mismatches`` computed anew; None where it has none.

    ``matched`` is None where the fixture expects nothing or the run has not ended: neither is a match. It is never
    true where evidence is missing: an answer that is not there has no first differing index, just as an equal one.
    """
    section = document["acceptance"]
    if section is None:
        return None
    if not any(section["expected"].values()) or document["state"] != "complete":
        return {**section, "matched": None, "mismatches": []}
    mismatches = list(_mismatches(document, section["expected"]))
    return {**section, "matched": not mismatches, "mismatches": mismatches}


def found_by_probe(document: Document, target: str) -> dict[str, Document]:
    """What a judged report found for each probe of a target, in the form of a fixture's expectations."""
    answers: dict[str, list[int | None]] = {}
    for arm in document["arms"]:
        if arm["name"] == target:
            for answer in arm["answers"]:
                answers.setdefault(answer["probe"], []).append(answer["cached_tokens"])
    return {
        probe["id"]: {
            "verdict": probe["verdict"],
            "cached_tokens": answers.get(probe["id"], []),
            "first_differences": [one["first_difference_from_control"] for one in probe["comparisons"]],
        }
        for one in document["targets"]
        if one["name"] == target
        for probe in one["probes"]
    }


def evidence_gaps(document: Document) -> Iterator[str]:
    """Say what is missing or doubtful in a judged report, whatever its verdicts."""
    yield from gaps(document, *(target["name"] for target in document["targets"]))
    for target in document["targets"]:
        for probe in target["probes"]:
            if missing := sorted(set(probe["reasons"]) - _DIFFERENCES):
                yield f"{target['name']}, {probe['id']}: the evidence is not whole ({', '.join(missing)})"


def _mismatches(document: Document, expected: dict[str, dict[str, Document]]) -> Iterator[str]:
    yield from evidence_gaps(document)
    for name in sorted({target["name"] for target in document["targets"]} | set(expected)):
        found, wanted = found_by_probe(document, name), expected.get(name, {})
        for probe in sorted(set(found) | set(wanted)):
            if probe not in found:
                yield f"{name}, {probe}: expected {wanted[probe]['verdict']}, the run has no such probe"
            elif probe not in wanted:
                yield f"{name}, {probe}: the fixture expects nothing of it, the run found {found[probe]['verdict']}"
            else:
                yield from _differences(f"{name}, {probe}", wanted[probe], found[probe])


def _differences(place: str, wanted: Document, found: Document) -> Iterator[str]:
    for key, words in (
        ("verdict", "verdict"),
        ("cached_tokens", "cached tokens per answer"),
        ("first_differences", "first differing index per answer"),
    ):
        if wanted[key] is not None and wanted[key] != found[key]:
            yield f"{place}: expected {words} {_shown(wanted[key])}, found {_shown(found[key])}"


def _shown(value: object) -> str:
    if not isinstance(value, list):
        return str(value)
    return ", ".join("=" if one is None else str(one) for one in value) or "none"

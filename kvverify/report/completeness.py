"""Whether a run and its arms came to the end that they promise: what is unknown stands against it. Pure."""

from collections.abc import Iterator
from typing import Any

from kvverify.comparison.arms import CONTROL, expected_arms, misfits

Document = dict[str, Any]


def run_gaps(document: Document) -> Iterator[str]:
    """Say what outside the answers stands against a pass."""
    if document["state"] != "complete":
        yield f"the run is {document['state']}"
    if document["errors"]:
        yield "the run met an error"
    for part, identity in document["identity"].items():
        if identity["unchanged_at_end"] is not True:
            yield f"whether the {part} stayed the same is not known"
    if [arm["name"] for arm in document["arms"]] != expected_arms(document["request"]):
        yield "the arms are not those that were asked for"


def arm_gaps(plan: Document, arm: Document) -> Iterator[str]:
    """Say why an arm is not a complete one of what its name says."""
    if arm["state"] != "complete" or arm["limit"] is not None or arm["errors"]:
        yield "the arm did not complete"
    yield from misfits(arm["name"], arm["effective"])
    planned = {probe["id"] for probe in plan["probes"]}
    if any(answer["probe"] not in planned for answer in arm["answers"]):
        yield "an answer is to no planned probe"


def gaps(document: Document, *targets: str) -> list[str]:
    """Say everything that keeps ``targets`` of a report from being believed, their probes' own gaps aside."""
    arms = [arm for arm in document["arms"] if arm["name"] in (CONTROL, *targets)]
    return [
        *run_gaps(document),
        *(f"{arm['name']}: {gap}" for arm in arms for gap in arm_gaps(document["plan"], arm)),
    ]

"""Whether a run and its arms came to the end that they promise: what is unknown stands against it. Pure."""

from collections.abc import Iterator
from typing import Any

from kvverify.comparison.arms import CONTROL, expected_arms, misfits

Document = dict[str, Any]

_SAME_IN_ALL_ARMS = ("model", "dtype", "device_name", "attention_backends", "kv_cache_dtype", "variables")
"""What the engines of a run must have in common, by the names in an arm's ``effective``."""


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
    known = [arm["effective"] for arm in document["arms"] if arm["effective"] is not None]
    for name in _SAME_IN_ALL_ARMS:
        if any(one.get(name) != known[0].get(name) for one in known):
            yield f"the arms' engines differ in their {name}, not in their caches alone"


def arm_gaps(plan: Document, arm: Document) -> Iterator[str]:
    """Say why an arm is not a complete one of what its name says."""
    if arm["state"] != "complete" or arm["limit"] is not None or arm["errors"]:
        yield "the arm did not complete"
    yield from misfits(arm["name"], arm["effective"])
    yield from _settings_gaps(plan, arm["effective"] or {})
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


def _settings_gaps(plan: Document, effective: Document) -> Iterator[str]:
    """Say where an engine did not run with what the plan and a greedy comparison ask for."""
    sampling = effective.get("sampling") or {}
    for name, found, wanted in (
        ("temperature", sampling.get("temperature"), 0.0),
        ("max_tokens", sampling.get("max_tokens"), plan["max_tokens"]),
        ("seed", sampling.get("seed"), plan["seed"]),
        ("max_model_len", effective.get("max_model_len"), plan["max_model_len"]),
        ("block_size", effective.get("block_size"), plan["block_size"]),
        ("max_num_seqs", effective.get("max_num_seqs"), 1),
    ):
        if isinstance(found, bool) or found != wanted:
            yield f"the engine's {name} is not the planned {wanted}"

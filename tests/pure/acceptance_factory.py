"""Reports of acceptance runs, with the fixture that each finds exactly what it expects of."""

import copy
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from kvverify.comparison.facts import ids_sha256
from kvverify.plan.manifest import manifest_sha256
from kvverify.report.acceptance import found_by_probe
from kvverify.report.document import Document, judged, planned_generations

from .report_factory import BLOCK, CONTROL, LMCACHE, NATIVE, SPAN, make_plan, make_report

ARMS = (CONTROL, LMCACHE, NATIVE)
PROBES = (("fixture", 1502, 3), ("chat-511", 511, 1), ("chat-512", 512, 1), ("chat-513", 513, 1))
DIGEST = "ab" * 32
FILE = "cd" * 32


def acceptance_plan() -> Document:
    """The four probes of an acceptance: 24 generations with two targets."""
    plan = make_plan()
    plan["suite"] = "acceptance"
    plan["probes"] = []
    for place, (name, length, count) in enumerate(PROBES):
        ids = [(7 * length + 31 * place + 11 * token) % 49152 for token in range(length)]
        plan["probes"].append(
            {
                "id": name,
                "prompt_format": "chat",
                "prompt_tokens": length,
                "reuse_count": count,
                "scope": f"{plan['tenant']}.{name}",
                "prompt_sha256": ids_sha256(ids),
                "prompt_token_ids": ids,
            }
        )
    plan["generations"] = planned_generations(plan["probes"], 1)
    return {**plan, "manifest_sha256": manifest_sha256(plan)}


def lmcache_fails(arm: str, answer: Document) -> Document:
    """What LMCache does: whole chunks from its store, exact when cold, other ids on reuse from the third id on."""
    if arm == LMCACHE and answer["role"] == "reuse":
        length = {name: tokens for name, tokens, _ in PROBES}[answer["probe"]]
        hit = min(length // SPAN * SPAN, length - 1)
        answer |= {"cached_tokens": hit, "cached_tokens_external": hit}
        answer["connector_log"] |= {"retrieved_tokens": hit, "required_tokens": hit, "double_unpins": 2}
        answer["generated_token_ids"][1 + answer["ordinal"]] += 1
    return answer


@cache
def _base() -> Document:
    with tempfile.TemporaryDirectory() as folder:
        document, _ = make_report(Path(folder) / "report.json", ARMS, lmcache_fails, acceptance_plan())
    document["request"] |= {"dtype": "float16", "device": "cuda"}
    document["environment"]["packages"]["vllm"]["distribution"] = "vllm"
    document["environment"]["packages"]["lmcache"] = {"distribution": "lmcache", "version": "0.5.4"}
    document["acceptance"] = {
        "fixture": {"name": "made-up", "sha256": FILE},
        "expected": {target: found_by_probe(document, target) for target in (NATIVE, LMCACHE)},
        "matched": None,
        "mismatches": [],
    }
    return judged(document)


def acceptance_report(*changes: Callable[[Document], object]) -> Document:
    """A judged report of a run that matches its fixture, with the given changes made before it is judged again."""
    document = copy.deepcopy(_base())
    for change in changes:
        change(document)
    return judged(document)


def arm_of(document: Document, name: str) -> Document:
    return next(arm for arm in document["arms"] if arm["name"] == name)


def answer_of(document: Document, arm: str, probe: str, ordinal: int) -> Document:
    """An arm's answer to a probe; ordinal 0 is the control's or the cold one."""
    answers = arm_of(document, arm)["answers"]
    return next(answer for answer in answers if (answer["probe"], answer["ordinal"]) == (probe, ordinal))


__all__ = [
    "ARMS",
    "BLOCK",
    "CONTROL",
    "LMCACHE",
    "NATIVE",
    "acceptance_plan",
    "acceptance_report",
    "answer_of",
    "arm_of",
]

"""The report's derived sections, computed from its raw answers and from nothing else.

``judge`` is the one place where a report's JSON becomes the typed facts of ``kvverify.comparison``. The
writer calls it after each probe, and ``rederive`` calls it again on a report that somebody hands in: both see
the same verdicts or the report is not sound. No I/O here.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvverify.comparison.arms import CONTROL, TIERS, expected_arms
from kvverify.comparison.connector_log import doubts
from kvverify.comparison.facts import Answer, Question, Tier, Verdict
from kvverify.comparison.verdicts import (
    ProbeVerdict,
    exit_status,
    judge_control,
    judge_probe,
    judge_run,
    judge_target,
)
from kvverify.report.acceptance import match
from kvverify.report.completeness import arm_gaps, run_gaps

Document = dict[str, Any]
"""A report, or a part of one, as JSON gives it. The schema says what is in it."""

UNEXPECTED = "unexpected_answer"
"""Reason code: an arm holds an answer that the plan does not ask for: its books cannot be trusted."""


def judge(document: Document) -> tuple[Document, list[Document], Document]:
    """Compute the sections ``control``, ``targets`` and ``result`` of a report that fits the schema.

    With an answer that the plan does not ask for, an arm that is not what its name says, or other arms than
    the requested ones, no verdict is better than ``inconclusive``. A difference is a ``fail`` whatever else.
    """
    plan, arms = document["plan"], document["arms"]
    controls = _by_probe(arm["answers"] for arm in arms if arm["name"] == CONTROL)
    control = _control(plan, _first(arms, CONTROL), controls)
    targets = [_target(plan, arm, controls) for arm in arms if arm["name"] != CONTROL]
    verdict = judge_run(
        control["verdict"],
        [target["verdict"] for target in targets],
        len(expected_arms(document["request"])) - 1,
        not list(run_gaps(document)),
    )
    if any(one["unchanged_at_end"] is False for one in document["identity"].values()):
        verdict = "inconclusive"  # the arms may have run different weights: differing is no sign of a cache
    result = {
        "verdict": verdict,
        "reuse_tested": any(_proves_reuse(answer) for arm in arms for answer in arm["answers"]),
        "exit_status": exit_status(verdict),
        "generations": {
            "planned": planned_generations(plan["probes"], len(arms) - 1),
            "completed": sum(_generated(answer) for arm in arms for answer in arm["answers"]),
        },
    }
    return control, targets, result


def judged(document: Document) -> Document:
    """Return the report with its derived sections computed anew; the given one stays as it is."""
    control, targets, result = judge(document)
    derived = {**document, "control": control, "targets": targets, "result": result}
    return {**derived, "acceptance": match(derived)}


def planned_generations(probes: Iterable[Mapping[str, Any]], targets: int) -> int:
    """Count the generations of one control and ``targets`` cache configurations for these probes."""
    return sum(1 + targets * (1 + probe["reuse_count"]) for probe in probes)


def expected_answers(arm: str, reuse_count: int) -> list[tuple[str, int]]:
    """List the (role, ordinal) of every answer that an arm owes for a probe, in order."""
    if arm == CONTROL:
        return [("control", 0)]
    return [("cold", 0), *(("reuse", ordinal) for ordinal in range(1, reuse_count + 1))]


def _arm_complete(plan: Document, arm: Document | None) -> bool:
    return arm is not None and not list(arm_gaps(plan, arm))


def _control(plan: Document, arm: Document | None, answers: Mapping[str, list[Document]]) -> Document:
    probes = []
    for probe in plan["probes"]:
        (control,), odd = _sort_out(CONTROL, probe, answers.get(probe["id"], []))
        judgement = judge_control(_question(plan, probe, None), control)
        probes.append({"id": probe["id"], **_without_trust(judgement, odd)})
    verdict = judge_target([one["verdict"] for one in probes], len(plan["probes"]), _arm_complete(plan, arm))
    return {"verdict": verdict, "probes": probes}


def _target(plan: Document, arm: Document, controls: Mapping[str, list[Document]]) -> Document:
    answers = _by_probe([arm["answers"]])
    probes = []
    for probe in plan["probes"]:
        (control,), odd_controls = _sort_out(CONTROL, probe, controls.get(probe["id"], []))
        (cold, *reuses), odd = _sort_out(arm["name"], probe, answers.get(probe["id"], []))
        question = _question(plan, probe, TIERS.get(arm["name"]))
        # Answers nobody asked for go along: whatever differs in them must count.
        judgement = judge_probe(question, control, cold, [*reuses, *odd])
        probes.append(
            {
                "id": probe["id"],
                **_without_trust(judgement, [*odd_controls, *odd]),
                "comparisons": [
                    {
                        "role": one.role,
                        "ordinal": one.ordinal,
                        "first_difference_from_control": one.from_control,
                        "first_difference_from_cold": one.from_cold,
                    }
                    for one in judgement.comparisons
                ],
            }
        )
    verdict = judge_target([one["verdict"] for one in probes], len(plan["probes"]), _arm_complete(plan, arm))
    return {"name": arm["name"], "verdict": verdict, "probes": probes}


def _without_trust(judgement: ProbeVerdict, odd: Sequence[Answer]) -> Document:
    """Give verdict and reasons, never a pass where answers came that nobody asked for."""
    verdict: Verdict = judgement.verdict
    reasons = set(judgement.reasons)
    if odd:
        verdict = "inconclusive" if verdict == "pass" else verdict
        reasons.add(UNEXPECTED)
    return {"verdict": verdict, "reasons": sorted(reasons)}


def _sort_out(arm: str, probe: Document, answers: Iterable[Document]) -> tuple[list[Answer | None], list[Answer]]:
    """Split a probe's answers into one place for each that the arm owes, and those without a place."""
    places: dict[tuple[str, int], Answer | None] = dict.fromkeys(expected_answers(arm, probe["reuse_count"]))
    odd = []
    for raw in answers:
        answer = _answer(raw)
        place = (answer.role, answer.ordinal)
        if place in places and places[place] is None:
            places[place] = answer
        else:
            odd.append(answer)
    return list(places.values()), odd


def _answer(raw: Document) -> Answer:
    generated = raw["generated_token_ids"]
    return Answer(
        role=raw["role"],
        ordinal=raw["ordinal"],
        submitted_sha256=raw["submitted_sha256"],
        generated=None if generated is None else tuple(generated),
        finish_reason=raw["finish_reason"],
        cached=raw["cached_tokens"],
        cached_local=raw["cached_tokens_local"],
        cached_external=raw["cached_tokens_external"],
        # What the log says counts even where the list of doubts leaves it out.
        doubts=(*raw["doubts"], *doubts(raw["connector_log"], raw["cached_tokens_external"])),
        error=raw["error"],
    )


def _question(plan: Document, probe: Document, tier: Tier | None) -> Question:
    return Question(
        prompt_tokens=probe["prompt_tokens"],
        prompt_sha256=probe["prompt_sha256"],
        max_tokens=plan["max_tokens"],
        reuse_count=probe["reuse_count"],
        eos_ids=frozenset(plan["eos_token_ids"]),
        tier=tier,
    )


def _by_probe(answers: Iterable[Iterable[Document]]) -> dict[str, list[Document]]:
    found: dict[str, list[Document]] = {}
    for one_arm in answers:
        for answer in one_arm:
            found.setdefault(answer["probe"], []).append(answer)
    return found


def _first(arms: Iterable[Document], name: str) -> Document | None:
    return next((arm for arm in arms if arm["name"] == name), None)


def _generated(answer: Document) -> bool:
    return answer["generated_token_ids"] is not None and answer["error"] is None


def _proves_reuse(answer: Document) -> bool:
    cached = answer["cached_tokens"]
    return answer["role"] == "reuse" and _generated(answer) and cached is not None and cached > 0

"""What a person reads of a report, as values: chosen and worded once here, laid out by each rendering."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from kvverify.comparison.arms import CONTROL, misfits
from kvverify.report.advice import explain
from kvverify.report.document import Document, expected_answers
from kvverify.report.headline import arm_headline, headline
from kvverify.report.scope import environment, not_tested, tested

LEGEND = (
    "One entry an answer, the cold one first. Differs at: index of the first token ID that differs from the control's "
    "(or else from the cold answer's); = none does, ? not comparable, - no answer."
)
"""How to read a table of probes."""


@dataclass(frozen=True)
class ProbeRow:
    """One probe of one arm."""

    probe: str
    """Its id."""
    tokens: int
    """Prompt tokens."""
    cached: str
    """Cached tokens of each answer in order, runs of equal ones as in ``0, 496 x3``; ``?`` unknown, ``-`` missing."""
    verdict: str
    """``PASS``, ``FAIL`` or ``INCONCLUSIVE``."""
    differences: str
    """For each answer after the control: the index of its first differing id, ``=`` equal, ``?`` not comparable."""


@dataclass(frozen=True)
class ArmSummary:
    """What one arm showed."""

    name: str
    verdict: str
    headline: str
    """One sentence, without the arm's name."""
    rows: tuple[ProbeRow, ...]
    """Every planned probe; none of an arm without an answer, of a control beside targets only what is no pass."""
    reasons: tuple[str, ...]
    """Each distinct reason in words, with the probes that it holds for; differences first."""
    errors: tuple[str, ...]
    """What went wrong in the arm, as the run noted it (untrusted text, any length)."""


@dataclass(frozen=True)
class Summary:
    """What a report says. Its sentences are our own; paths, values and errors can hold anything."""

    verdict: str
    headline: str
    arms: tuple[ArmSummary, ...]
    """The targets, and the control first where it is not a pass or is the only arm."""
    acceptance: tuple[str, ...]
    """Whether an acceptance fixture was matched, then every mismatch (untrusted text); empty without a fixture."""
    errors: tuple[str, ...]
    """Errors of the run itself (untrusted text)."""
    tested: tuple[str, ...]
    not_tested: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    """Names and values (untrusted text)."""
    report: str
    evidence: str


def summarise(document: Document, path: Path) -> Summary:
    """Choose what is worth reading from a sound report that lies at ``path``."""
    plan, arms = document["plan"], document["arms"]
    controls = {answer["probe"]: answer for arm in arms if arm["name"] == CONTROL for answer in arm["answers"]}
    judgements = {CONTROL: document["control"], **{target["name"]: target for target in document["targets"]}}
    shown = [
        arm for arm in arms if arm["name"] != CONTROL or len(arms) == 1 or judgements[CONTROL]["verdict"] != "pass"
    ]
    return Summary(
        verdict=document["result"]["verdict"],
        headline=headline(document),
        arms=tuple(_arm(plan, arm, judgements[arm["name"]], controls, alone=len(arms) == 1) for arm in shown),
        acceptance=_acceptance(document["acceptance"]),
        errors=tuple(f"{error['stage']}: {error['message']}" for error in document["errors"]),
        tested=tested(document),
        not_tested=not_tested(document),
        environment=environment(document),
        report=str(path),
        evidence=str(path.parent / document["evidence"]["directory"]),
    )


def _arm(plan: Document, arm: Document, judgement: Document, controls: Document, *, alone: bool) -> ArmSummary:
    pairs = list(zip(plan["probes"], judgement["probes"], strict=True)) if arm["answers"] else []
    if arm["name"] == CONTROL and not alone:
        pairs = [pair for pair in pairs if pair[1]["verdict"] != "pass"]
    return ArmSummary(
        name=arm["name"],
        verdict=judgement["verdict"],
        headline=arm_headline(arm, judgement),
        rows=tuple(_row(arm, probe, judged, controls.get(probe["id"])) for probe, judged in pairs),
        reasons=_reasons(judgement["probes"]) if arm["answers"] else (),
        errors=(*arm["errors"], *_answer_errors(arm), *_misfits(arm)),
    )


def _row(arm: Document, probe: Document, judged: Document, control: Document | None) -> ProbeRow:
    answers = {(one["role"], one["ordinal"]): one for one in arm["answers"] if one["probe"] == probe["id"]}
    places = expected_answers(arm["name"], probe["reuse_count"])
    compared = {(one["role"], one["ordinal"]): one for one in judged.get("comparisons", [])}
    return ProbeRow(
        probe=probe["id"],
        tokens=probe["prompt_tokens"],
        cached=_runs(_cached(answers.get(place)) for place in places),
        verdict=judged["verdict"].upper(),
        differences=_runs(_difference(answers.get(place), control, compared.get(place)) for place in places)
        if arm["name"] != CONTROL
        else "",
    )


def _cached(answer: Document | None) -> str:
    if answer is None:
        return "-"
    return "?" if answer["cached_tokens"] is None else str(answer["cached_tokens"])


def _difference(answer: Document | None, control: Document | None, compared: Document | None) -> str:
    if answer is None:
        return "-"
    for kind in ("control", "cold"):
        index = compared[f"first_difference_from_{kind}"] if compared else None
        if index is not None:
            return str(index)
    ids = answer["generated_token_ids"]
    usable = control is not None and answer["error"] is None and control["error"] is None and ids is not None
    return "=" if usable and control and ids == control["generated_token_ids"] else "?"


def _runs(values: Iterable[str]) -> str:
    """Join values by commas, neighbours that are equal as one with its number: ``0, 496 x3``."""
    counted = [(value, len(list(same))) for value, same in groupby(values)]
    return ", ".join(value if count == 1 else f"{value} x{count}" for value, count in counted)


def _reasons(probes: Sequence[Document]) -> tuple[str, ...]:
    """Give each reason once, in words."""
    counts = Counter(reason for probe in probes for reason in probe["reasons"])
    return tuple(
        f"{explain(code)} ({_which(code, probes, count)})" for code, count in sorted(counts.items(), key=_rank)
    )


def _rank(item: tuple[str, int]) -> tuple[bool, int, bool, str]:
    """Put differences before gaps, the frequent before the rare, and what differs from the control first."""
    code, count = item
    return not code.startswith("difference"), -count, code != "difference_from_control", code


def _which(code: str, probes: Sequence[Document], count: int) -> str:
    if count == len(probes) and count > 1:
        return f"all {count} probes"
    named = [probe["id"] for probe in probes if code in probe["reasons"]]
    return ", ".join(named) if count <= 3 else f"{count} probes: {', '.join(named[:2])}, ..."


def _answer_errors(arm: Document) -> tuple[str, ...]:
    """Quote each distinct error of single answers once, with the first answer that had it."""
    first: dict[str, str] = {}
    for answer in arm["answers"]:
        for text in (answer["error"], *answer["doubts"]):
            if text is not None:
                first.setdefault(text, f"{answer['probe']}, {answer['role']} {answer['ordinal']}")
    return tuple(f"{where}: {text}" for text, where in first.items())


def _misfits(arm: Document) -> list[str]:
    """Say in what a completed arm's engine is not what its name says; of another arm its state says enough."""
    return misfits(arm["name"], arm["effective"]) if arm["state"] == "complete" else []


def _acceptance(section: Document | None) -> tuple[str, ...]:
    if section is None:
        return ()
    outcome = {True: "matched", False: "not matched", None: "not compared"}[section["matched"]]
    return (f"{section['fixture']['name']}: {outcome}", *section["mismatches"])

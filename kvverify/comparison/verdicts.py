"""From facts to verdicts and the exit status.

Two rules hold everywhere. A difference between two completed answers is a ``fail``, whatever else broke. A
``pass`` needs every fact that it rests on, present and well formed: anything missing, unknown or odd is
``inconclusive``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kvverify.comparison.difference import first_difference
from kvverify.comparison.evidence import (
    answer_gaps,
    completed,
    completed_ids,
    proves_reuse,
    reuse_gaps_of_plan,
    shows_any_hit,
    whole,
)
from kvverify.comparison.facts import Answer, Question, Role, Verdict, is_count

__all__ = [
    "Comparison",
    "ProbeVerdict",
    "RunVerdict",
    "completed",
    "exit_status",
    "judge_control",
    "judge_probe",
    "judge_run",
    "judge_target",
    "whole",
]

RunVerdict = Literal["pass", "fail", "inconclusive", "control_only_pass"]
"""What a run shows; ``control_only_pass`` where no reuse was asked for, so that none was tested."""


@dataclass(frozen=True)
class Comparison:
    """Where one answer of a target differs from the answers that it must equal.

    None means that no difference was seen. That is equality only where neither of the two is missing, failed
    or cut short; the verdict's reasons say so.
    """

    role: Role
    """``cold`` or ``reuse``."""
    ordinal: int
    """0 for the cold answer, 1 and up for the reuses, by their place in the probe."""
    from_control: int | None
    """Index of the first generated id that differs from the control's."""
    from_cold: int | None
    """Index of the first generated id that differs from the cold answer's; None for that one itself."""

    @property
    def differs(self) -> bool:
        """Whether a difference was seen."""
        return self.from_control is not None or self.from_cold is not None


@dataclass(frozen=True)
class ProbeVerdict:
    """What the answers of one probe show, and why it is not a pass."""

    verdict: Verdict
    """``pass``, ``fail`` or ``inconclusive``."""
    reasons: tuple[str, ...]
    """Codes (keys of :data:`~kvverify.comparison.REASONS`), sorted, each once; empty for a pass only."""
    comparisons: tuple[Comparison, ...] = ()
    """The cold answer's, then each reuse's in order; none for a control."""


def judge_probe(
    question: Question, control: Answer | None, cold: Answer | None, reuses: Sequence[Answer | None]
) -> ProbeVerdict:
    """Judge one probe of a target against its control.

    A None among the answers is one that never came. A difference fails the probe; any gap in the evidence
    keeps it from passing.
    """
    comparisons = [Comparison("cold", 0, _difference(question, cold, control), None)]
    gaps = answer_gaps(question, control, "control", 0) | answer_gaps(question, cold, "cold", 0)
    gaps |= reuse_gaps_of_plan(question, len(reuses))
    for place, reuse in enumerate(reuses, start=1):
        from_control, from_cold = _difference(question, reuse, control), _difference(question, reuse, cold)
        comparisons.append(Comparison("reuse", place, from_control, from_cold))
        gaps |= answer_gaps(question, reuse, "reuse", place)

    differences = _difference_reasons(question, comparisons, [cold, *reuses])
    verdict: Verdict = "fail" if differences else "inconclusive" if gaps else "pass"
    return ProbeVerdict(verdict, tuple(sorted(differences | gaps)), tuple(comparisons))


def judge_control(question: Question, control: Answer | None) -> ProbeVerdict:
    """Judge the control's answer on its own: whole, without a hit, to the planned prompt. It never fails."""
    gaps = answer_gaps(question, control, "control", 0)
    return ProbeVerdict("inconclusive" if gaps else "pass", tuple(sorted(gaps)))


def judge_target(
    probes: Sequence[Verdict],
    planned: int,
    arm_complete: bool,  # noqa: FBT001 - a fact like the others, not a switch
) -> Verdict:
    """Return the worst of an arm's probe verdicts; a pass needs all the planned ones and a complete arm."""
    if "fail" in probes:
        return "fail"
    all_there = is_count(planned) and len(probes) == planned > 0 and arm_complete is True
    return "pass" if all_there and all(probe == "pass" for probe in probes) else "inconclusive"


def judge_run(
    control: Verdict,
    targets: Sequence[Verdict],
    targets_asked: int,
    complete: bool,  # noqa: FBT001 - a fact like the others, not a switch
) -> RunVerdict:
    """Return the worst verdict of a run.

    ``complete``: every arm ended as it must, nothing failed outside the arms, and no model file changed.
    """
    if control == "fail" or "fail" in targets:
        return "fail"
    all_there = is_count(targets_asked) and len(targets) == targets_asked and complete is True
    if not all_there or control != "pass" or any(target != "pass" for target in targets):
        return "inconclusive"
    return "pass" if targets else "control_only_pass"


def exit_status(verdict: RunVerdict) -> Literal[0, 1, 2]:
    """Return a run's exit status: 1 for a difference, 0 for a pass within what was asked, else 2."""
    if verdict == "fail":
        return 1
    return 0 if verdict in ("pass", "control_only_pass") else 2


def _difference(question: Question, a: Answer | None, b: Answer | None) -> int | None:
    """Return where two completed answers differ; a cut answer that is a prefix of the other shows nothing.

    Nor do answers to different prompts: where the engine says that it processed other ids, differing is right.
    """
    if a is None or b is None or _known_to_differ(a.submitted_sha256, b.submitted_sha256):
        return None
    a_ids, b_ids = completed_ids(a), completed_ids(b)
    if a_ids is None or b_ids is None:
        return None
    index = first_difference(a_ids, b_ids)
    if index is None or index < min(len(a_ids), len(b_ids)):
        return index
    return index if whole(question, a) and whole(question, b) else None


def _known_to_differ(a: str | None, b: str | None) -> bool:
    return a is not None and b is not None and a != b


def _difference_reasons(
    question: Question, comparisons: Sequence[Comparison], answers: Sequence[Answer | None]
) -> set[str]:
    """Return the codes of the differences seen, and whether one is in an answer that may not have reused."""
    reasons = set()
    for comparison, answer in zip(comparisons, answers, strict=True):
        if comparison.from_control is not None:
            reasons.add("difference_from_control")
        if comparison.from_cold is not None:
            reasons.add("difference_from_cold")
        if answer is not None and comparison.differs:
            proven = proves_reuse(question, answer) if comparison.role == "reuse" else shows_any_hit(answer)
            if not proven:
                reasons.add("difference_without_proven_reuse")
    return reasons

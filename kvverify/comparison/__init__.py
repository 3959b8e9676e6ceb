"""Token ids and hit counts in, verdicts and an exit status out: pure functions, no engine, no file."""

from kvverify.comparison.difference import first_difference
from kvverify.comparison.facts import Answer, Question, Role, Tier, Verdict, ids_sha256
from kvverify.comparison.reasons import REASONS
from kvverify.comparison.verdicts import (
    Comparison,
    ProbeVerdict,
    RunVerdict,
    completed,
    exit_status,
    judge_control,
    judge_probe,
    judge_run,
    judge_target,
    whole,
)

__all__ = [
    "REASONS",
    "Answer",
    "Comparison",
    "ProbeVerdict",
    "Question",
    "Role",
    "RunVerdict",
    "Tier",
    "Verdict",
    "completed",
    "exit_status",
    "first_difference",
    "ids_sha256",
    "judge_control",
    "judge_probe",
    "judge_run",
    "judge_target",
    "whole",
]

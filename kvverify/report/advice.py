"""What to do about each reason code of a verdict; what a code says is ``kvverify.comparison.reasons``."""

from collections.abc import Mapping

from kvverify.comparison.reasons import REASONS
from kvverify.report.document import UNEXPECTED

_LOG = "look into the arm's log in the evidence"
_MODEL_LIMIT = "raise --max-model-len, or see why the engine ended early in the arm's log"
_ISOLATION = "see that nothing else uses the engine or its cache store, then run again in an empty one"
_COUNTERS = "use a supported engine version, whose counters kvverify can read"

ADVICE: Mapping[str, str] = {
    "answer_out_of_place": "this is a defect of kvverify: please report it",
    "cold_doubted": _LOG,
    "cold_failed": _LOG,
    "cold_had_hit": _ISOLATION,
    "cold_hits_unknown": _COUNTERS,
    "cold_missing": _LOG,
    "cold_not_whole": _MODEL_LIMIT,
    "control_doubted": _LOG,
    "control_failed": _LOG,
    "control_had_hit": _ISOLATION,
    "control_hits_unknown": _COUNTERS,
    "control_missing": _LOG,
    "control_not_whole": _MODEL_LIMIT,
    "difference_from_cold": "the same engine changed its answer when asked again",
    "difference_from_control": "do not use this cache where answers must not change",
    "difference_without_proven_reuse": "the difference is real, but its cause need not be the cache: run it again",
    "hit_counts_disagree": _COUNTERS,
    "plan_unusable": "this is a defect of kvverify: please report it",
    "reuse_doubted": "look into the arm's log in the evidence for what the connector retrieved",
    "reuse_failed": _LOG,
    "reuse_hits_impossible": _COUNTERS,
    "reuse_hits_unknown": _COUNTERS,
    "reuse_missing": _LOG,
    "reuse_not_whole": _MODEL_LIMIT,
    "reuse_tier_unknown": _COUNTERS,
    "reuse_unplanned": "this is a defect of kvverify: please report it",
    "reuse_without_hit": "see in the arm's log why the cache did not hold the prompt",
    "reuse_wrong_tier": "see in the arm's effective configuration that only the cache under test is on",
    "submitted_ids_differ": "see that the engine takes token ids as they are",
    "submitted_ids_unknown": _COUNTERS,
    UNEXPECTED: "this is a defect of kvverify: please report it",
}
"""Each code with what to do about it."""


def explain(code: str) -> str:
    """Say in words what a reason code means and what to do; the bare code where it is one of another version."""
    says = "the arm holds an answer that the plan does not ask for" if code == UNEXPECTED else REASONS.get(code)
    if says is None:
        return code
    return f"{says}; {ADVICE[code]}" if code in ADVICE else says

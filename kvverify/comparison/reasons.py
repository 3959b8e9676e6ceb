"""What each reason code of a verdict says to a reader. Codes are a contract: none changes."""

from collections.abc import Mapping
from types import MappingProxyType

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "answer_out_of_place": "an answer says that it is another one than the one in its place",
        "cold_doubted": "the engine's log casts doubt on the cold answer's hit counts",
        "cold_failed": "the cold generation failed or returned no usable token ids",
        "cold_had_hit": "the cold answer took part of its prompt from a cache",
        "cold_hits_unknown": "whether the cold answer took anything from a cache is not known",
        "cold_missing": "there is no cold answer",
        "cold_not_whole": "the cold answer is cut short, longer than asked or empty",
        "control_doubted": "the engine's log casts doubt on the control's hit counts",
        "control_failed": "the control's generation failed or returned no usable token ids",
        "control_had_hit": "the control took part of its prompt from a cache",
        "control_hits_unknown": "whether the control took anything from a cache is not known",
        "control_missing": "there is no control answer",
        "control_not_whole": "the control's answer is cut short, longer than asked or empty",
        "difference_from_cold": "a reuse's token ids differ from the cold answer's",
        "difference_from_control": "an answer's token ids differ from the control's",
        "difference_without_proven_reuse": "an answer that differs is not proven to have reused anything",
        "hit_counts_disagree": "an answer's local and external hits do not add up to its cached tokens",
        "plan_unusable": "the plan does not say what the answers must be measured by",
        "reuse_doubted": "the engine's log casts doubt on a reuse's hit counts",
        "reuse_failed": "a reusing generation failed or returned no usable token ids",
        "reuse_hits_impossible": "a reuse claims at least as many cached tokens as its prompt has",
        "reuse_hits_unknown": "how much a reuse took from a cache is not known",
        "reuse_missing": "a reusing answer is missing",
        "reuse_not_whole": "a reusing answer is cut short, longer than asked or empty",
        "reuse_tier_unknown": "which cache a reuse took its tokens from is not known",
        "reuse_unplanned": "there are more reusing answers than planned",
        "reuse_without_hit": "a reuse took nothing from any cache",
        "reuse_wrong_tier": "a reuse took tokens from another cache than the one under test",
        "submitted_ids_differ": "the engine processed another prompt than the planned one",
        "submitted_ids_unknown": "which prompt the engine processed is not known",
    }
)
"""Each code with what it says, for a summary or an annotation."""

"""What each reason code of a conversation says to a reader. Codes are a contract: none changes."""

from collections.abc import Mapping
from types import MappingProxyType

_ROLES = {
    "turn1": "turn 1",
    "cached": "turn 2 on the cache path",
    "recomputed": "turn 2 on the recompute path",
}

REASONS: Mapping[str, str] = MappingProxyType(
    {
        **{f"{role}_missing": f"{name} has no answer" for role, name in _ROLES.items()},
        **{f"{role}_failed": f"{name} failed" for role, name in _ROLES.items()},
        **{f"{role}_empty": f"{name} gave an empty answer" for role, name in _ROLES.items()},
        **{
            f"{role}_length_unknown": f"{name}: the server does not say how many tokens it made"
            for role, name in _ROLES.items()
        },
        **{
            f"{role}_length_disagrees": f"{name}: the token IDs are not as many as the server counts"
            for role, name in _ROLES.items()
        },
        **{
            f"{role}_not_whole": f"{name}: the answer is cut short, or longer than asked"
            for role, name in _ROLES.items()
        },
        **{f"{role}_not_repeated": f"{name} did not give the same answer twice" for role, name in _ROLES.items()},
        "answer_unexpected": "there is an answer that the conversation does not ask for",
        "cached_hit_ends_in_turn1_prompt": "the cache hit ends within the prompt of turn 1: no answer was reused",
        "cached_hit_not_measurable": "how far the cache hit should reach is not known",
        "cached_hit_too_short": "the cache hit does not cover the answer of turn 1",
        "cached_hits_impossible": "the server claims a cache hit on the whole prompt of turn 2, or on more",
        "cached_hits_unknown": "the server does not say what turn 2 took from its cache",
        "cached_without_hit": "turn 2 on the cache path took nothing from the cache",
        "comparison_impossible": "the answers have neither token IDs nor texts throughout",
        "endings_differ": "equal answers ended differently, or are counted differently",
        "prompt_tokens_unknown": "the server does not say how long a prompt is",
        "prompts_differ": "the server did not process one prompt on both paths",
        "recomputed_had_hit": "turn 2 on the recompute path took tokens from a cache",
        "recomputed_hits_unknown": "the server does not say whether the recompute path used a cache",
        "terms_unusable": "the report does not say what the answers must be measured by",
    }
)
"""Each code with what it says."""

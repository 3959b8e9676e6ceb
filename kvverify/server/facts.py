"""The facts that a conversation's verdict rests on: what each of its six requests returned.

They arrive from a server or from a report's JSON, so that any of them may be missing or of the wrong type. They are
kept as they came; the verdict functions decide what a fact is worth, and an odd one is worth nothing.
"""

from dataclasses import dataclass
from typing import Literal

from kvverify.comparison.facts import Verdict

Role = Literal["turn1", "cached", "recomputed"]
"""Which request a turn answers: turn 1, turn 2 on what the server kept of turn 1, or turn 2 from scratch."""

Level = Literal["token_ids", "text"]
"""What answers are compared by: the ids of their tokens, or, where a server tells no ids, their text."""

ORDER: tuple[tuple[Role, int], ...] = (
    ("turn1", 1),
    ("cached", 1),
    ("recomputed", 1),
    ("turn1", 2),
    ("cached", 2),
    ("recomputed", 2),
)
"""Role and repeat of the six requests of a conversation, in the order in which they are sent."""


@dataclass(frozen=True)
class Turn:
    """What one request returned."""

    role: Role
    """Which of the conversation's requests this is."""
    repeat: int
    """1 or 2: each path runs twice."""
    prompt_tokens: int | None
    """Prompt tokens that the server counted; None where it does not say."""
    prompt_sha256: str | None
    """:func:`~kvverify.comparison.ids_sha256` of the prompt's ids; None where they are not known."""
    generated: tuple[int, ...] | None
    """Ids of the generated tokens; None where the server tells none."""
    text: str | None
    """The generated text; None where it is hidden."""
    text_sha256: str | None
    """Hex sha256 of the generated text in UTF-8; None where there is no text."""
    completion_tokens: int | None
    """Generated tokens that the server counted; None where it does not say."""
    finish_reason: str | None
    """Why the generation ended; only ``stop`` and ``length`` complete it."""
    cached: int | None
    """Prompt tokens that the server says it took from its cache; None where unknown, which is never read as 0."""
    error: str | None = None
    """What went wrong; None where nothing did. Whatever came with an error is not an answer."""


@dataclass(frozen=True)
class Terms:
    """What the answers of a conversation are measured by."""

    max_tokens: int
    """Most new tokens of each answer."""
    hit_tolerance: int
    """Tokens at the end of turn 1 that a hit on it may leave out: caches keep whole blocks or pages."""
    skip_hit_check: bool
    """Whether counts that a server does not tell are excused. Counts that it tells are always held against it."""


@dataclass(frozen=True)
class Difference:
    """Where the cached answer and the recomputed one part."""

    unit: Literal["token", "character"]
    """What ``index`` counts."""
    index: int | None
    """Index of the first that differs, from 0; None where the texts are hidden, so that only their hashes differ."""


@dataclass(frozen=True)
class ConversationVerdict:
    """What the six answers of one conversation show."""

    verdict: Verdict
    """``pass`` or ``fail`` for a valid conversation, ``inconclusive`` for one that proves nothing."""
    reasons: tuple[str, ...]
    """Why it is not valid, as codes (keys of :data:`~kvverify.server.reasons.REASONS`), sorted; empty if valid."""
    comparison: Level | None
    """What the answers were compared by; None where they cannot be."""
    difference: Difference | None
    """Where the first cached answer differs from the first recomputed one, valid or not; None where none was seen."""

    @property
    def valid(self) -> bool:
        """Whether the conversation proves something."""
        return not self.reasons

"""The facts that a verdict rests on: what was asked of a probe, and what each generation returned.

Facts arrive from an engine or from a report's JSON, so any of them may be missing or of the wrong type. They
are kept as they came: the verdict functions decide what a fact is worth, and an odd one is worth nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, TypeGuard

Role = Literal["control", "cold", "reuse"]
"""Which generation of a probe an answer is: with every cache off, first in a fresh scope, or a later one."""

Tier = Literal["local", "external"]
"""Where cached KV came from: the engine's own prefix cache, or a KV connector."""

Verdict = Literal["pass", "fail", "inconclusive"]
"""What the facts of a probe, a control or a target show."""


@dataclass(frozen=True)
class Answer:
    """What one generation returned."""

    role: Role
    """Which generation of the probe this is."""
    ordinal: int
    """0 for the control and the cold answer, 1 for the first reuse, 2 for the second, and so on."""
    submitted_sha256: str | None
    """:func:`ids_sha256` of the prompt ids that the engine says it processed; None where it does not say."""
    generated: tuple[int, ...] | None
    """The generated token ids; None where the engine returned none."""
    finish_reason: str | None
    """Why the generation ended, in the engine's word; only ``stop`` and ``length`` complete it."""
    cached: int | None
    """Prompt tokens taken from any cache; None where unknown, which is never read as 0."""
    cached_local: int | None
    """Those of ``cached`` that came from the engine's own prefix cache; None where unknown."""
    cached_external: int | None
    """Those of ``cached`` that came from a KV connector; None where unknown."""
    doubts: tuple[str, ...] = ()
    """Why the hit counts are not to be believed, e.g. a connector's log that says less was retrieved."""
    error: str | None = None
    """What went wrong; None where nothing did. Whatever ids came with an error are not an answer."""


@dataclass(frozen=True)
class Question:
    """What a probe asks, and what an answer to it must show."""

    prompt_tokens: int
    """Length of the prompt in tokens."""
    prompt_sha256: str
    """:func:`ids_sha256` of the planned prompt ids, which every answer must have processed."""
    max_tokens: int
    """New tokens asked of every answer."""
    reuse_count: int
    """Reusing answers that follow the cold one."""
    eos_ids: frozenset[int]
    """End-of-sequence ids: only one of these, as its last id, makes an answer of fewer tokens whole."""
    tier: Tier | None
    """Where a reuse must come from: ``local`` for native caching, ``external`` for a connector."""


def ids_sha256(ids: Iterable[int]) -> str:
    """Return the hex sha256 of token ids, written in ASCII decimal and joined by commas.

    >>> ids_sha256([1, 23]) == sha256(b"1,23").hexdigest()
    True
    """
    return sha256(",".join(str(token_id) for token_id in ids).encode("ascii")).hexdigest()


def is_count(value: object) -> TypeGuard[int]:
    """Whether a fact is a number of tokens or a token id: an integer of at least 0 that is no bool."""
    return type(value) is int and value >= 0


def is_positive(value: object) -> TypeGuard[int]:
    """Whether a fact is a number of tokens above 0."""
    return is_count(value) and value > 0

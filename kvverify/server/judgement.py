"""From the answers to a conversation to its verdict, and from those to a run's: pure functions.

Two rules hold everywhere. A conversation is valid only if every fact that its verdict rests on is present and well
formed; anything missing, unknown or odd makes it ``inconclusive``. A difference in a valid one is always a ``fail``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from kvverify.comparison.difference import first_difference
from kvverify.comparison.facts import Verdict, is_count, is_positive
from kvverify.server.facts import ORDER, ConversationVerdict, Difference, Level, Role, Terms, Turn

RunVerdict = Literal["pass", "pass_hits_unchecked", "fail", "inconclusive"]
"""What a run shows; ``pass_hits_unchecked`` where a server's counts were not asked for, so that reuse is not proven."""

_EMPTY = sha256(b"").hexdigest()
_Turns = Mapping[tuple[Role, int], Turn]


def judge_conversation(terms: Terms, turns: Sequence[Turn]) -> ConversationVerdict:
    """Judge one conversation by the answers that came, whatever they are."""
    placed: dict[tuple[Role, int], Turn] = {}
    gaps = set[str]()
    for turn in turns:
        place = (turn.role, turn.repeat)
        if type(turn.repeat) is not int or place not in ORDER or place in placed:
            gaps.add("answer_unexpected")
        else:
            placed[place] = turn
    if not _usable(terms):
        gaps.add("terms_unusable")
    level = _level(placed)
    for place in ORDER:
        gaps |= _answer_gaps(terms, placed.get(place), place[0], level)
    gaps |= _prompt_gaps(placed) | _repetition_gaps(placed, level) | _hit_gaps(terms, placed)
    difference, odd = _difference(placed.get(("cached", 1)), placed.get(("recomputed", 1)), level)
    gaps |= odd
    if level is None:
        gaps.add("comparison_impossible")
    verdict: Verdict = "inconclusive" if gaps else "fail" if difference else "pass"
    return ConversationVerdict(verdict, tuple(sorted(gaps)), level, difference)


def _usable(terms: Terms) -> bool:
    return is_positive(terms.max_tokens) and is_count(terms.hit_tolerance) and type(terms.skip_hit_check) is bool


def _level(turns: _Turns) -> Level | None:
    """Choose what all six answers can be compared by. Ids in some and not in others are no text comparison."""
    with_ids = [_ids(turn) is not None for turn in turns.values()]
    if not with_ids:
        return None
    if all(with_ids):
        return "token_ids"
    silent = all(turn.generated is None for turn in turns.values())
    return "text" if silent and all(_text_key(turn) is not None for turn in turns.values()) else None


def _ids(turn: Turn) -> tuple[int, ...] | None:
    ids = turn.generated
    return ids if isinstance(ids, tuple) and all(is_count(one) for one in ids) else None


def _text_key(turn: Turn) -> str | None:
    """Give what tells texts apart; a sha256 does, where the text itself is hidden."""
    digest = turn.text_sha256
    return digest if isinstance(digest, str) and digest else None


def _answer_gaps(terms: Terms, turn: Turn | None, role: Role, level: Level | None) -> set[str]:
    """Return what keeps one answer from being a whole one."""
    if turn is None:
        return {f"{role}_missing"}
    if turn.error is not None or turn.finish_reason not in ("stop", "length"):
        return {f"{role}_failed"}
    count = turn.completion_tokens
    if not is_count(count):
        return {f"{role}_length_unknown"}
    gaps = set()
    ids = _ids(turn)
    if level == "token_ids" and (ids is None or len(ids) != count):
        gaps.add(f"{role}_length_disagrees")
    if count == 0 or (level == "text" and _text_key(turn) == _EMPTY):
        gaps.add(f"{role}_empty")
    # An answer that ends for its length has exactly the asked one: a server's own limit cuts it short.
    whole = is_positive(terms.max_tokens) and (
        count == terms.max_tokens if turn.finish_reason == "length" else count <= terms.max_tokens
    )
    if not whole:
        gaps.add(f"{role}_not_whole")
    return gaps


def _prompt_gaps(turns: _Turns) -> set[str]:
    """Return whether it is not certain that the answers of a turn are answers to one prompt."""
    gaps = set()
    for roles in (("turn1",), ("cached", "recomputed")):
        asked = [turn for place, turn in turns.items() if place[0] in roles]
        if any(not is_positive(turn.prompt_tokens) for turn in asked):
            gaps.add("prompt_tokens_unknown")
        # Where only some prompts' ids are known, those cannot be told to be the others'.
        if any(
            (turn.prompt_tokens, turn.prompt_sha256) != (asked[0].prompt_tokens, asked[0].prompt_sha256)
            for turn in asked
        ):
            gaps.add("prompts_differ")
    return gaps


def _repetition_gaps(turns: _Turns, level: Level | None) -> set[str]:
    """Return the paths whose two runs did not give one answer: what they show is not the cache's doing alone."""
    gaps = set()
    roles: tuple[Role, ...] = ("turn1", "cached", "recomputed")
    for role in roles:
        first, second = turns.get((role, 1)), turns.get((role, 2))
        if first is not None and second is not None:
            difference, odd = _difference(first, second, level)
            if difference is not None or odd:
                gaps.add(f"{role}_not_repeated")
    return gaps


def _difference(a: Turn | None, b: Turn | None, level: Level | None) -> tuple[Difference | None, set[str]]:
    """Say where two answers part, and what does not fit together although they do not."""
    if a is None or b is None or level is None or a.error is not None or b.error is not None:
        return None, set()
    if level == "token_ids":
        left, right = _ids(a), _ids(b)
        index = None if left is None or right is None else first_difference(left, right)
        found = None if index is None else Difference("token", index)
    else:
        found = _text_difference(a, b)
    alike = (a.finish_reason, a.completion_tokens) == (b.finish_reason, b.completion_tokens)
    return found, set() if found or alike else {"endings_differ"}


def _text_difference(a: Turn, b: Turn) -> Difference | None:
    """Compare texts character by character (Unicode code points), by their hashes where one is hidden."""
    if isinstance(a.text, str) and isinstance(b.text, str):
        index = first_difference([ord(one) for one in a.text], [ord(one) for one in b.text])
        if index is not None:
            return Difference("character", index)
    return None if _text_key(a) == _text_key(b) else Difference("character", None)


def _hit_gaps(terms: Terms, turns: _Turns) -> set[str]:
    """Return why the server's counts do not show a hit on turn 1 in the one path, and none in the other."""
    gaps = set()
    for (role, repeat), turn in turns.items():
        if role == "turn1" or turn.error is not None:
            continue
        if not is_count(turn.cached):
            gaps.add("cached_hits_unknown" if role == "cached" else "recomputed_hits_unknown")
        elif role == "recomputed":
            gaps |= {"recomputed_had_hit"} if turn.cached > 0 else set()
        else:
            gaps |= _coverage_gaps(terms, turn.cached, turn, turns.get(("turn1", repeat)))
    if terms.skip_hit_check is True:
        gaps -= {"cached_hits_unknown", "recomputed_hits_unknown"}
    return gaps


def _coverage_gaps(terms: Terms, cached: int, turn: Turn, turn1: Turn | None) -> set[str]:
    """Return why a hit of ``cached`` tokens does not cover the answer of turn 1.

    At least one prompt token is always computed, to have something to generate from: a hit on all is no hit.
    """
    if cached == 0:
        return {"cached_without_hit"}
    if not is_positive(turn.prompt_tokens) or cached >= turn.prompt_tokens:
        return {"cached_hits_impossible"}
    if turn1 is None or not is_positive(turn1.prompt_tokens) or not is_count(turn1.completion_tokens):
        return {"cached_hit_not_measurable"}
    if cached <= turn1.prompt_tokens:
        return {"cached_hit_ends_in_turn1_prompt"}
    tolerance = terms.hit_tolerance if is_count(terms.hit_tolerance) else 0
    if cached < turn1.prompt_tokens + turn1.completion_tokens - tolerance:
        return {"cached_hit_too_short"}
    return set()


@dataclass(frozen=True)
class Run:
    """What a run's verdict rests on besides its conversations."""

    planned: int
    """Conversations that the run was to have."""
    min_valid: float
    """Share of them that must be valid, above 0 and at most 1."""
    failed_requests: int
    """Requests that ended in an error."""
    complete: bool
    """Whether the run came to its end without an error of its own."""
    hits_checked: bool
    """Whether unknown counts were held against a conversation."""
    one_server: bool
    """Whether two URLs were seen to lead to one server."""


def judge_run(run: Run, conversations: Sequence[Verdict]) -> RunVerdict:
    """Return a run's verdict: a difference first, then whatever keeps agreement from counting."""
    if "fail" in conversations:
        return "fail"
    valid = sum(verdict == "pass" for verdict in conversations)
    sound = (
        is_positive(run.planned)
        and len(conversations) == run.planned
        and type(run.failed_requests) is int
        and run.failed_requests == 0
        and run.complete is True
        and run.one_server is False
        and 0 < run.min_valid <= 1
        and valid > 0
        and valid >= run.min_valid * run.planned - 1e-9  # 0.8 of 15 is 12, but not in binary
    )
    if not sound:
        return "inconclusive"
    return "pass" if run.hits_checked is True else "pass_hits_unchecked"


def exit_status(verdict: RunVerdict) -> Literal[0, 1, 2]:
    """Return a run's exit status: 1 for a difference, 0 for agreement within what was asked, else 2."""
    if verdict == "fail":
        return 1
    return 0 if verdict in ("pass", "pass_hits_unchecked") else 2

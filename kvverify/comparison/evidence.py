"""What an answer is worth as evidence: whether it is complete and whole, and every gap in what it shows."""

from kvverify.comparison.facts import Answer, Question, Role, is_count, is_positive


def completed(answer: Answer) -> bool:
    """Whether a generation ran to an end of its own and returned ids that can be compared."""
    return completed_ids(answer) is not None


def completed_ids(answer: Answer) -> tuple[int, ...] | None:
    """Return the generated ids of a completed answer, or None where it did not complete."""
    ids = answer.generated
    if answer.error is not None or answer.finish_reason not in ("stop", "length"):
        return None
    return ids if _are_ids(ids, tuple) else None


def whole(question: Question, answer: Answer) -> bool:
    """Whether an answer has all that was asked: ``max_tokens`` ids, or fewer up to an end-of-sequence id.

    An engine cuts answers at its model limit with the reason ``length``; such a cut is not whole, even where
    its last id happens to be an end-of-sequence id.
    """
    ids = completed_ids(answer)
    if not ids or not usable(question):
        return False
    if len(ids) < question.max_tokens:
        return answer.finish_reason == "stop" and ids[-1] in question.eos_ids
    return len(ids) == question.max_tokens


def usable(question: Question) -> bool:
    """Whether a question says what its answers are measured by."""
    return (
        is_positive(question.prompt_tokens)
        and is_positive(question.max_tokens)
        and _is_text(question.prompt_sha256)
        and _are_ids(question.eos_ids, frozenset)
    )


def answer_gaps(question: Question, answer: Answer | None, role: Role, ordinal: int) -> set[str]:
    """Return the codes of all that an answer lacks in the place that it is given for."""
    if not usable(question):
        return {"plan_unusable"}
    if answer is None:
        return {f"{role}_missing"}
    if not completed(answer):
        return {f"{role}_failed"}
    gaps = reuse_hit_gaps(question, answer) if role == "reuse" else _zero_hit_gaps(answer, role)
    if answer.doubts != ():
        gaps.add(f"{role}_doubted")
    if not whole(question, answer):
        gaps.add(f"{role}_not_whole")
    if answer.role != role or type(answer.ordinal) is not int or answer.ordinal != ordinal:
        gaps.add("answer_out_of_place")
    if answer.submitted_sha256 is None:
        gaps.add("submitted_ids_unknown")
    elif answer.submitted_sha256 != question.prompt_sha256:
        gaps.add("submitted_ids_differ")
    return gaps


def reuse_gaps_of_plan(question: Question, reuses: int) -> set[str]:
    """Return the codes of what is wrong with the number of reuses, planned or given."""
    if not is_positive(question.reuse_count):
        return {"plan_unusable"}
    if reuses == question.reuse_count:
        return set()
    return {"reuse_missing" if reuses < question.reuse_count else "reuse_unplanned"}


def reuse_hit_gaps(question: Question, answer: Answer) -> set[str]:
    """Return why an answer's counts do not show reuse of part of its prompt, from the tier under test alone.

    At least one prompt token is always computed, to have something to generate from: a hit on all is no hit.
    """
    gaps = _disagreement(answer)
    if not is_count(answer.cached):
        gaps.add("reuse_hits_unknown")
    elif answer.cached == 0:
        gaps.add("reuse_without_hit")
    elif answer.cached >= question.prompt_tokens:
        gaps.add("reuse_hits_impossible")
    if question.tier not in ("local", "external") or not _split_known(answer):
        gaps.add("reuse_tier_unknown")
    elif (answer.cached_external if question.tier == "local" else answer.cached_local) != 0:
        gaps.add("reuse_wrong_tier")
    return gaps


def proves_reuse(question: Question, answer: Answer) -> bool:
    """Whether an answer's counts show the reuse that is under test, and nothing casts doubt on them."""
    return usable(question) and not reuse_hit_gaps(question, answer) and answer.doubts == ()


def shows_any_hit(answer: Answer) -> bool:
    """Whether an answer's count says that some of its prompt came from a cache, whichever."""
    return is_positive(answer.cached)


def _are_ids(value: object, kind: type[tuple[int, ...]] | type[frozenset[int]]) -> bool:
    return isinstance(value, kind) and all(is_count(token_id) for token_id in value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _zero_hit_gaps(answer: Answer, role: Role) -> set[str]:
    """Return why an answer's counts do not show that its whole prompt was computed."""
    gaps = _disagreement(answer)
    if any(map(is_positive, (answer.cached, answer.cached_local, answer.cached_external))):
        gaps.add(f"{role}_had_hit")
    # An engine's total starts at 0, so it can say 0 where nothing was counted: the split must say so too.
    if not is_count(answer.cached) or not _split_known(answer):
        gaps.add(f"{role}_hits_unknown")
    return gaps


def _split_known(answer: Answer) -> bool:
    return is_count(answer.cached_local) and is_count(answer.cached_external)


def _disagreement(answer: Answer) -> set[str]:
    """Return the code for counts that are all known and do not add up."""
    total, local, external = answer.cached, answer.cached_local, answer.cached_external
    if is_count(total) and is_count(local) and is_count(external) and local + external != total:
        return {"hit_counts_disagree"}
    return set()

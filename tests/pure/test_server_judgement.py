"""What must hold for the answers to a conversation, whatever they are; and examples of each reason."""

from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvverify.server.facts import ORDER, ConversationVerdict, Difference, Terms, Turn
from kvverify.server.judgement import Run, exit_status, judge_conversation, judge_run
from kvverify.server.reasons import REASONS

TERMS = Terms(max_tokens=64, hit_tolerance=32, skip_hit_check=False)
TURN1_PROMPT, TURN2_PROMPT = 40, 120
TURN1_ANSWER, TURN2_ANSWER = tuple(range(64)), tuple(range(100, 110))

# What JSON or a broken server can put in the place of a number.
NOT_A_COUNT = (None, True, False, -1, 0.0, 1.0, 96.0, float("nan"), "", "0", "96", [], [1], {})


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def turn(role: str, repeat: int) -> Turn:
    first = role == "turn1"
    generated = TURN1_ANSWER if first else TURN2_ANSWER
    said = " ".join(map(str, generated))
    return Turn(
        role=role,
        repeat=repeat,
        prompt_tokens=TURN1_PROMPT if first else TURN2_PROMPT,
        prompt_sha256="p1" if first else "p2",
        generated=generated,
        text=said,
        text_sha256=digest(said),
        completion_tokens=len(generated),
        finish_reason="length" if first else "stop",
        cached=96 if role == "cached" else 0,
    )


def sound(level: str = "token_ids") -> dict[tuple[str, int], Turn]:
    turns = {place: turn(*place) for place in ORDER}
    if level == "token_ids":
        return turns
    hidden = {"text": None} if level == "hidden" else {}
    return {place: replace(one, generated=None, prompt_sha256=None, **hidden) for place, one in turns.items()}


def judge(turns: dict[tuple[str, int], Turn], terms: Terms = TERMS) -> ConversationVerdict:
    return judge_conversation(terms, list(turns.values()))


def saying(one: Turn, said: str) -> Turn:
    return replace(one, text=None if one.text is None else said, text_sha256=digest(said))


levels = st.sampled_from(["token_ids", "text", "hidden"])
places = st.sampled_from(ORDER)
second_turns = st.sampled_from([place for place in ORDER if place[0] != "turn1"])


@pytest.mark.parametrize(("level", "compared"), [("token_ids", "token_ids"), ("text", "text"), ("hidden", "text")])
def test_whole_evidence_without_a_difference_passes(level: str, compared: str) -> None:
    assert judge(sound(level)) == ConversationVerdict("pass", (), compared, None)


@given(level=levels, index=st.integers(0, 9), in_cached=st.booleans())
def test_a_difference_in_a_valid_conversation_always_fails(level: str, index: int, *, in_cached: bool) -> None:
    turns = sound(level)
    for repeat in (1, 2):
        place = ("cached" if in_cached else "recomputed", repeat)
        other = [*TURN2_ANSWER]
        other[index] = 999
        changed = saying(turns[place], " ".join(map(str, other)))
        turns[place] = replace(changed, generated=tuple(other)) if level == "token_ids" else changed
    judged = judge(turns)
    assert judged.verdict == "fail"
    assert judged.valid
    wanted = {
        "token_ids": Difference("token", index),
        "text": Difference("character", 4 * index),  # "100 101 ...", where 999 differs in its first digit
        "hidden": Difference("character", None),
    }
    assert judged.difference == wanted[level]


def test_a_longer_answer_differs_at_the_shorter_ones_length() -> None:
    turns = sound()
    for repeat in (1, 2):
        longer = (*TURN2_ANSWER, 7)
        turns["recomputed", repeat] = replace(turns["recomputed", repeat], generated=longer, completion_tokens=11)
    assert judge(turns) == ConversationVerdict("fail", (), "token_ids", Difference("token", 10))


@given(levels, places)
def test_a_missing_answer_is_never_valid(level: str, place: tuple[str, int]) -> None:
    turns = sound(level)
    del turns[place]
    judged = judge(turns)
    assert judged.verdict == "inconclusive"
    assert f"{place[0]}_missing" in judged.reasons


@given(levels, places, st.data())
def test_nothing_unknown_null_zero_or_odd_is_ever_valid(
    level: str, place: tuple[str, int], data: st.DataObject
) -> None:
    turns = sound(level)
    facts = ["prompt_tokens", "completion_tokens", "finish_reason"]
    facts += ["generated"] if level == "token_ids" else ["text_sha256"]
    facts += [] if place[0] == "turn1" else ["cached"]
    fact = data.draw(st.sampled_from(facts))
    is_sound = (fact, place[0]) == ("cached", "recomputed")  # 0 is what a recomputed answer must have
    value = data.draw(st.sampled_from(NOT_A_COUNT if is_sound else (*NOT_A_COUNT, 0)))
    if fact == "text_sha256":
        turns[place] = replace(turns[place], text=None, text_sha256=value)
    else:
        turns[place] = replace(turns[place], **{fact: value})
    assert judge(turns).verdict == "inconclusive"


@given(levels, places, st.sampled_from(["", "timed out", False, 0]))
def test_whatever_came_with_an_error_is_no_answer(level: str, place: tuple[str, int], error: object) -> None:
    turns = sound(level)
    turns[place] = replace(turns[place], error=error)
    judged = judge(turns)
    assert judged.verdict == "inconclusive"
    assert f"{place[0]}_failed" in judged.reasons


@given(levels, st.integers(0, 200), st.integers(0, 200), st.integers(0, 64))
def test_only_a_hit_that_covers_the_first_answer_is_valid(level: str, first: int, second: int, tolerance: int) -> None:
    turns = sound(level)
    for repeat, cached in ((1, first), (2, second)):
        turns["cached", repeat] = replace(turns["cached", repeat], cached=cached)
    judged = judge(turns, replace(TERMS, hit_tolerance=tolerance))
    covers = all(
        TURN1_PROMPT < cached < TURN2_PROMPT and cached >= TURN1_PROMPT + 64 - tolerance for cached in (first, second)
    )
    assert judged.verdict == ("pass" if covers else "inconclusive")


@given(levels, st.sampled_from(["cached", "recomputed"]), st.sampled_from([1, 2]), st.sampled_from(NOT_A_COUNT))
def test_only_unknown_counts_are_excused_on_request(level: str, role: str, repeat: int, value: object) -> None:
    excused = replace(TERMS, skip_hit_check=True)
    turns = sound(level)
    turns[role, repeat] = replace(turns[role, repeat], cached=value)
    assert judge(turns).reasons == (f"{role}_hits_unknown",)
    assert judge(turns, excused).verdict == "pass"
    turns[role, repeat] = replace(turns[role, repeat], cached=0 if role == "cached" else 16)
    assert judge(turns, excused).verdict == "inconclusive"


@given(levels, places)
def test_a_path_that_does_not_repeat_is_never_valid(level: str, place: tuple[str, int]) -> None:
    turns = sound(level)
    one = saying(turns[place], "other")
    turns[place] = replace(one, generated=(999, *one.generated[1:])) if level == "token_ids" else one
    judged = judge(turns)
    assert judged.verdict == "inconclusive"
    assert f"{place[0]}_not_repeated" in judged.reasons


@given(second_turns, st.sampled_from([{"prompt_tokens": 121}, {"prompt_sha256": "other"}, {"prompt_sha256": None}]))
def test_other_prompts_on_the_two_paths_are_never_valid(place: tuple[str, int], change: dict[str, object]) -> None:
    turns = sound()
    turns[place] = replace(turns[place], **change)
    assert judge(turns).reasons == ("prompts_differ",)


@given(places)
def test_ids_in_some_answers_only_are_no_comparison(place: tuple[str, int]) -> None:
    turns = sound()
    turns[place] = replace(turns[place], generated=None)
    judged = judge(turns)
    assert judged.comparison is None
    assert "comparison_impossible" in judged.reasons


@pytest.mark.parametrize(
    ("place", "change", "reason"),
    [
        (("turn1", 1), {"completion_tokens": 63}, "turn1_not_whole"),
        (("cached", 2), {"completion_tokens": 65}, "cached_not_whole"),
        (("cached", 1), {"completion_tokens": 9}, "cached_length_disagrees"),
        (("recomputed", 1), {"finish_reason": "abort"}, "recomputed_failed"),
        (("recomputed", 2), {"finish_reason": "length"}, "recomputed_not_whole"),
        (("recomputed", 2), {"cached": 1}, "recomputed_had_hit"),
        (("cached", 2), {"cached": TURN2_PROMPT}, "cached_hits_impossible"),
        (("cached", 2), {"cached": TURN1_PROMPT}, "cached_hit_ends_in_turn1_prompt"),
        (("cached", 2), {"cached": 71}, "cached_hit_too_short"),
    ],
)
def test_what_makes_an_answer_worthless_is_named(
    place: tuple[str, int], change: dict[str, object], reason: str
) -> None:
    turns = sound()
    turns[place] = replace(turns[place], **change)
    assert reason in judge(turns).reasons


@pytest.mark.parametrize(("cached", "why"), [(0, ("cached_without_hit",)), (71, ("cached_hit_too_short",)), (72, ())])
def test_the_edges_of_a_hit(cached: int, why: tuple[str, ...]) -> None:
    turns = sound()
    for repeat in (1, 2):
        turns["cached", repeat] = replace(turns["cached", repeat], cached=cached)
    assert judge(turns).reasons == why


@pytest.mark.parametrize("change", [{"prompt_tokens": 41}, {"prompt_sha256": "other"}])
def test_two_prompts_of_turn_1_are_never_valid(change: dict[str, object]) -> None:
    turns = sound()
    turns["turn1", 2] = replace(turns["turn1", 2], **change)
    assert judge(turns).reasons == ("prompts_differ",)


def test_a_hit_on_an_unknown_turn_1_cannot_be_measured() -> None:
    turns = sound()
    turns["turn1", 1] = replace(turns["turn1", 1], prompt_tokens=None)
    assert "cached_hit_not_measurable" in judge(turns).reasons


@pytest.mark.parametrize("size", [1, 64])
def test_an_answer_that_ends_by_itself_is_whole_at_any_length(size: int) -> None:
    turns = sound()
    for place in ORDER:
        if place[0] != "turn1":
            turns[place] = replace(turns[place], generated=tuple(range(size)), completion_tokens=size)
    assert judge(turns).verdict == "pass"


@pytest.mark.parametrize("value", [None, "", 3, True])
def test_texts_without_a_hash_are_no_comparison(value: object) -> None:
    turns = {place: replace(one, text=None, text_sha256=value) for place, one in sound("hidden").items()}
    assert judge(turns).comparison is None
    assert judge(turns).verdict == "inconclusive"


def test_the_first_of_each_path_are_compared() -> None:
    turns = sound()
    for place, index in ((("cached", 2), 1), (("recomputed", 2), 2)):
        other = [*TURN2_ANSWER]
        other[index] = 999
        turns[place] = replace(turns[place], generated=tuple(other))
    judged = judge(turns)
    assert judged.reasons == ("cached_not_repeated", "recomputed_not_repeated")
    assert judged.difference is None


@pytest.mark.parametrize("change", [{"completion_tokens": 11}, {"completion_tokens": 64, "finish_reason": "length"}])
def test_one_text_in_other_tokens_is_no_equality(change: dict[str, object]) -> None:
    turns = sound("text")
    for repeat in (1, 2):
        turns["cached", repeat] = replace(turns["cached", repeat], **change)
    assert judge(turns).reasons == ("endings_differ",)


@pytest.mark.parametrize("role", ["cached", "recomputed"])
@pytest.mark.parametrize("level", ["token_ids", "text"])
def test_what_came_with_an_error_shows_no_difference(level: str, role: str) -> None:
    turns = sound(level)
    turns[role, 1] = replace(saying(turns[role, 1], "other"), error="broke", generated=turns["turn1", 1].generated)
    assert judge(turns).difference is None


def test_unusable_terms_are_named() -> None:
    assert "terms_unusable" in judge(sound(), replace(TERMS, max_tokens=0)).reasons


def test_an_empty_answer_is_named() -> None:
    turns = sound("hidden")
    for repeat in (1, 2):
        turns["cached", repeat] = saying(turns["cached", repeat], "")
    assert judge(turns).reasons == ("cached_empty",)


def test_an_answer_in_a_place_that_is_taken_is_named() -> None:
    judged = judge_conversation(TERMS, [*sound().values(), turn("cached", 1)])
    assert judged.reasons == ("answer_unexpected",)


@pytest.mark.parametrize("repeat", [True, 0, 3, None, "1"])
def test_an_answer_without_a_place_is_named(repeat: object) -> None:
    assert "answer_unexpected" in judge_conversation(TERMS, [turn("cached", repeat)]).reasons


@given(
    st.sampled_from(["max_tokens", "hit_tolerance", "skip_hit_check"]), st.sampled_from([*NOT_A_COUNT[3:], None, 2.5])
)
def test_unusable_terms_are_never_a_verdict(fact: str, value: object) -> None:
    assert judge(sound(), replace(TERMS, **{fact: value})).verdict == "inconclusive"


anything = st.one_of(st.sampled_from(NOT_A_COUNT), st.integers(-2, 130), st.text(max_size=3))
any_turn = st.builds(
    Turn,
    role=st.one_of(st.sampled_from(["turn1", "cached", "recomputed"]), anything),
    repeat=st.one_of(st.integers(1, 2), anything),
    prompt_tokens=anything,
    prompt_sha256=anything,
    generated=st.one_of(st.lists(anything, max_size=3).map(tuple), anything),
    text=anything,
    text_sha256=anything,
    completion_tokens=anything,
    finish_reason=st.one_of(st.sampled_from(["stop", "length"]), anything),
    cached=anything,
    error=st.one_of(st.none(), st.text(max_size=3)),
)


@given(turns=st.lists(any_turn, max_size=7), skip=st.booleans())
def test_any_answers_are_judged_soundly(turns: list[Turn], *, skip: bool) -> None:
    judged = judge_conversation(replace(TERMS, skip_hit_check=skip), turns)
    assert list(judged.reasons) == sorted(set(judged.reasons))
    assert set(judged.reasons) <= set(REASONS)
    assert (judged.verdict == "inconclusive") == bool(judged.reasons)
    if judged.verdict == "pass":
        assert judged.difference is None


verdict_lists = st.lists(st.sampled_from(["pass", "fail", "inconclusive"]), max_size=8)
runs = st.builds(
    Run,
    planned=st.integers(-1, 8),
    min_valid=st.sampled_from([0.1, 0.5, 0.8, 1.0, 0, -1, 2]),
    failed_requests=st.integers(0, 2),
    complete=st.booleans(),
    hits_checked=st.booleans(),
    one_server=st.booleans(),
)


@given(runs, verdict_lists)
def test_a_run_is_never_better_than_its_conversations(run: Run, verdicts: list[str]) -> None:
    verdict = judge_run(run, verdicts)
    assert (verdict == "fail") == ("fail" in verdicts)
    if verdict in ("pass", "pass_hits_unchecked"):
        assert len(verdicts) == run.planned > 0
        assert verdicts.count("pass") / run.planned >= run.min_valid > 0
        assert verdicts.count("pass") > 0
        assert run.complete
        assert not run.failed_requests
        assert not run.one_server
        assert (verdict == "pass") == run.hits_checked


SOUND_RUN = Run(planned=1, min_valid=1.0, failed_requests=0, complete=True, hits_checked=True, one_server=False)


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, "pass"),
        ({"hits_checked": False}, "pass_hits_unchecked"),
        ({"planned": 2}, "inconclusive"),
        ({"planned": 0}, "inconclusive"),
        ({"failed_requests": 1}, "inconclusive"),
        ({"failed_requests": None}, "inconclusive"),
        ({"failed_requests": False}, "inconclusive"),
        ({"complete": False}, "inconclusive"),
        ({"complete": 1}, "inconclusive"),
        ({"one_server": True}, "inconclusive"),
        ({"one_server": None}, "inconclusive"),
        ({"hits_checked": None}, "pass_hits_unchecked"),
        ({"min_valid": 0}, "inconclusive"),
        ({"min_valid": -1}, "inconclusive"),
        ({"min_valid": 1.1}, "inconclusive"),
        ({"min_valid": float("nan")}, "inconclusive"),
    ],
)
def test_each_fact_of_a_run_counts(change: dict[str, object], verdict: str) -> None:
    assert judge_run(replace(SOUND_RUN, **change), ["pass"]) == verdict


def test_a_run_without_a_valid_conversation_is_no_pass_whatever_share_is_asked() -> None:
    assert judge_run(replace(SOUND_RUN, min_valid=1e-12), ["inconclusive"]) == "inconclusive"


@pytest.mark.parametrize(("valid", "planned", "verdict"), [(12, 15, "pass"), (11, 15, "inconclusive"), (4, 5, "pass")])
def test_the_share_of_valid_conversations_counts_exactly(valid: int, planned: int, verdict: str) -> None:
    run = Run(planned, 0.8, 0, complete=True, hits_checked=True, one_server=False)
    assert judge_run(run, ["pass"] * valid + ["inconclusive"] * (planned - valid)) == verdict


@pytest.mark.parametrize(
    ("verdict", "status"),
    [("pass", 0), ("pass_hits_unchecked", 0), ("fail", 1), ("inconclusive", 2), (None, 2), (0, 2)],
)
def test_the_exit_status_follows_the_verdict(verdict: object, status: int) -> None:
    assert exit_status(verdict) == status

"""What must hold for any facts whatever: the rules of the verdict table, not examples of them."""

from dataclasses import dataclass, replace
from itertools import zip_longest

from hypothesis import given
from hypothesis import strategies as st

from kvverify.comparison import (
    REASONS,
    Answer,
    ProbeVerdict,
    Question,
    exit_status,
    judge_control,
    judge_probe,
    judge_run,
    judge_target,
)

VERDICTS = ("pass", "inconclusive", "fail")
RANK = {"pass": 0, "control_only_pass": 0, "inconclusive": 1, "fail": 2}
HASH = "d2"
EOS = 7

# What JSON or a broken engine can put in the place of a fact.
NOT_A_COUNT = (None, True, False, -1, 0.0, 1.0, 496.0, float("nan"), "", "0", "496", (), [], [1], {})
NOT_AN_ID = (None, True, False, -1, 1.0, float("nan"), "3", (), [3])
NOT_TEXT = (None, True, 0, 1, 2.5, [], [HASH], {})


@dataclass(frozen=True)
class Facts:
    """The arguments of ``judge_probe`` in one value."""

    question: Question
    control: Answer | None
    cold: Answer | None
    reuses: tuple[Answer | None, ...]

    def judge(self) -> ProbeVerdict:
        return judge_probe(self.question, self.control, self.cold, self.reuses)

    def answers(self) -> list[Answer | None]:
        return [self.control, self.cold, *self.reuses]

    def with_answer(self, place: int, answer: Answer | None) -> "Facts":
        answers = self.answers()
        answers[place] = answer
        return replace(self, control=answers[0], cold=answers[1], reuses=tuple(answers[2:]))


@st.composite
def passing(draw: st.DrawFn) -> Facts:
    """Facts of a probe that passes, of any size, from either tier, with answers that stop early or do not."""
    max_tokens = draw(st.integers(1, 6))
    prompt_tokens = draw(st.integers(2, 3000))
    tier = draw(st.sampled_from(["local", "external"]))
    question = Question(prompt_tokens, HASH, max_tokens, draw(st.integers(1, 4)), frozenset({EOS}), tier)
    stops_early = max_tokens > 1 and draw(st.booleans())
    length = draw(st.integers(0, max_tokens - 2)) if stops_early else max_tokens
    ids = tuple(draw(st.lists(st.integers(0, 6), min_size=length, max_size=length)))
    generated = (*ids, EOS) if stops_early else ids
    finish = "stop" if stops_early else draw(st.sampled_from(["length", "stop"]))
    miss = Answer("control", 0, HASH, generated, finish, cached=0, cached_local=0, cached_external=0)
    reuses = []
    for ordinal in range(1, question.reuse_count + 1):
        hit = draw(st.integers(1, prompt_tokens - 1))
        split = {"cached": hit, "cached_local": 0, "cached_external": 0, f"cached_{tier}": hit}
        reuses.append(replace(miss, role="reuse", ordinal=ordinal, **split))
    return Facts(question, miss, replace(miss, role="cold"), tuple(reuses))


@st.composite
def degraded_answers(draw: st.DrawFn, question: Question, answer: Answer) -> Answer | None:
    """An answer of a passing probe with one fact missing, unknown or wrong, and its generated ids never others."""
    ids = answer.generated
    reuse = answer.role == "reuse"
    other_tier = "cached_external" if question.tier == "local" else "cached_local"
    odd_ids = [None, (), ids[:-1], (*ids, 1), (*ids, EOS, 1), list(ids), "".join(map(str, ids))]
    odd_ids += [(*ids[:-1], odd) for odd in NOT_AN_ID]
    if answer.finish_reason == "stop" and len(ids) < question.max_tokens:
        odd_ids.remove((*ids, 1))  # could be as long as asked, and then it is whole and differs
        odd_ids.remove((*ids, EOS, 1))
    changes: dict[str, list[object]] = {
        "role": [role for role in ("control", "cold", "reuse", "", None, 1, []) if role != answer.role],
        "ordinal": [answer.ordinal + 1, answer.ordinal - 1, float(answer.ordinal), bool(answer.ordinal), None],
        "submitted_sha256": ["", HASH.upper(), HASH + "0", *NOT_TEXT],
        "generated": odd_ids,
        "finish_reason": ["", "abort", "error", "STOP", *NOT_TEXT],
        "cached": [*NOT_A_COUNT, question.prompt_tokens, question.prompt_tokens + 1]
        + ([0, answer.cached + 1] if reuse else [1]),
        "cached_local": [*NOT_A_COUNT, answer.cached_local + 1, question.prompt_tokens],
        "cached_external": [*NOT_A_COUNT, answer.cached_external + 1, question.prompt_tokens],
        "doubts": [("the log says less",), ("",), [], None, "doubt", True],
        "error": ["the engine died", "", 0, False, [], {}],
    }
    field = draw(st.sampled_from(["missing", "no hit", "other tier", *changes]))
    if field == "missing":
        return None
    if field == "no hit" and reuse:
        return replace(answer, cached=0, cached_local=0, cached_external=0)
    if field == "no hit":
        return replace(answer, cached=1, **{other_tier: 1})
    if field == "other tier":
        moved = draw(st.integers(1, answer.cached)) if reuse else 1
        expected = "cached_local" if other_tier == "cached_external" else "cached_external"
        kept = answer.cached - moved if reuse else 0
        return replace(answer, **{expected: kept, other_tier: moved})
    return replace(answer, **{field: draw(st.sampled_from(changes[field]))})


@st.composite
def degraded(draw: st.DrawFn, facts: Facts) -> Facts:
    """Facts of a passing probe with one of them degraded: of an answer, of their number or of the plan."""
    kind = draw(st.sampled_from(["answer", "answer", "answer", "fewer", "more", "plan"]))
    if kind == "answer":
        place = draw(st.integers(0, len(facts.reuses) + 1))
        answer = facts.answers()[place]
        assert answer is not None
        return facts.with_answer(place, draw(degraded_answers(facts.question, answer)))
    if kind == "fewer":
        return replace(facts, reuses=facts.reuses[: draw(st.integers(0, len(facts.reuses) - 1))])
    if kind == "more":
        return replace(facts, reuses=(*facts.reuses, draw(st.sampled_from([None, facts.reuses[-1]]))))
    changes: dict[str, list[object]] = {
        "prompt_tokens": [*NOT_A_COUNT, 0, 1],
        "prompt_sha256": ["", *NOT_TEXT],
        "max_tokens": [*NOT_A_COUNT, 0, facts.question.max_tokens + 10],
        "reuse_count": [*NOT_A_COUNT, 0, len(facts.reuses) + 1],
        "eos_ids": [None, [EOS], EOS, frozenset({True}), frozenset({EOS, "1"}), frozenset({EOS, 1.0})],
        "tier": [None, "", "remote", True, 0, []],
    }
    if len(facts.control.generated) < facts.question.max_tokens:
        changes["eos_ids"].append(frozenset())  # nothing explains the early stop
        del changes["max_tokens"][-1]
    field = draw(st.sampled_from(sorted(changes)))
    return replace(facts, question=replace(facts.question, **{field: draw(st.sampled_from(changes[field]))}))


counts = st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=2), st.integers(-2, 4))
token_ids = st.lists(st.one_of(st.integers(0, 3), st.sampled_from([EOS, True, -1, 1.0])), max_size=4).map(tuple)
any_answer = st.one_of(
    st.none(),
    st.builds(
        Answer,
        role=st.sampled_from(["control", "cold", "reuse", None]),
        ordinal=st.one_of(st.integers(0, 2), counts),
        submitted_sha256=st.sampled_from([HASH, "other", None]),
        generated=st.one_of(st.none(), token_ids),
        finish_reason=st.sampled_from(["stop", "length", "error", None]),
        cached=counts,
        cached_local=counts,
        cached_external=counts,
        doubts=st.sampled_from([(), ("doubt",)]),
        error=st.sampled_from([None, "error"]),
    ),
)
any_question = st.builds(
    Question,
    prompt_tokens=st.one_of(st.integers(0, 4), counts),
    prompt_sha256=st.sampled_from([HASH, "", None]),
    max_tokens=st.one_of(st.integers(0, 4), counts),
    reuse_count=st.one_of(st.integers(0, 3), counts),
    eos_ids=st.sampled_from([frozenset({EOS}), frozenset(), None]),
    tier=st.sampled_from(["local", "external", None]),
)
any_facts = st.builds(Facts, any_question, any_answer, any_answer, st.lists(any_answer, max_size=3).map(tuple))
probe_verdicts = st.sampled_from(VERDICTS)
verdict_lists = st.lists(probe_verdicts, max_size=6)


@given(passing())
def test_whole_evidence_of_equal_answers_passes(facts: Facts) -> None:
    result = facts.judge()
    assert (result.verdict, result.reasons) == ("pass", ())
    assert judge_control(facts.question, facts.control).verdict == "pass"
    assert all(c.from_control is None and c.from_cold is None for c in result.comparisons)


@given(st.data())
def test_no_degraded_fact_passes(data: st.DataObject) -> None:
    facts = data.draw(degraded(data.draw(passing())))
    assert facts.judge().verdict == "inconclusive"


@given(st.data())
def test_no_degraded_control_passes_alone(data: st.DataObject) -> None:
    facts = data.draw(passing())
    control = data.draw(degraded_answers(facts.question, facts.control))
    assert judge_control(facts.question, control).verdict == "inconclusive"


@given(st.data())
def test_more_evidence_of_failure_never_improves_a_verdict(data: st.DataObject) -> None:
    facts = data.draw(passing())
    verdict = facts.judge()
    for place in data.draw(st.permutations(range(len(facts.reuses) + 2))):
        answer = facts.answers()[place]
        assert answer is not None
        facts = facts.with_answer(place, data.draw(degraded_answers(facts.question, answer)))
        worse = facts.judge()
        assert RANK[worse.verdict] >= RANK[verdict.verdict]
        assert set(worse.reasons) >= set(verdict.reasons)
        verdict = worse


@given(st.data())
def test_a_difference_fails_and_says_where(data: st.DataObject) -> None:
    facts = data.draw(passing())
    place = data.draw(st.integers(1, len(facts.reuses) + 1))
    answer = facts.answers()[place]
    index = data.draw(st.integers(0, len(answer.generated) - 1))
    changed = (*answer.generated[:index], 99, *answer.generated[index + 1 :])
    result = facts.with_answer(place, replace(answer, generated=changed)).judge()
    assert result.verdict == "fail"
    assert "difference_from_control" in result.reasons
    assert result.comparisons[place - 1].from_control == index
    if place > 1:
        assert result.comparisons[place - 1].from_cold == index
        assert "difference_from_cold" in result.reasons
        assert "difference_without_proven_reuse" not in result.reasons


@given(st.data())
def test_a_difference_fails_whatever_else_broke(data: st.DataObject) -> None:
    facts = data.draw(passing())
    place = data.draw(st.integers(2, len(facts.reuses) + 1))
    answer = facts.answers()[place]
    others = [*answer.generated]
    others[data.draw(st.integers(0, len(others) - 1))] = 99
    # All of the answer that differs but what makes it complete, the other reuses, one of the two answers that it is
    # compared with, and the plan.
    broken = replace(
        answer,
        generated=tuple(others),
        role=data.draw(st.sampled_from(["cold", "reuse", None])),
        ordinal=data.draw(counts),
        submitted_sha256=data.draw(st.sampled_from([HASH, None])),
        cached=data.draw(counts),
        cached_local=data.draw(counts),
        cached_external=data.draw(counts),
        doubts=data.draw(st.sampled_from([(), ("doubt",)])),
    )
    for other in range(2, len(facts.reuses) + 2):
        facts = facts.with_answer(other, data.draw(any_answer))
    facts = facts.with_answer(place, broken)
    facts = facts.with_answer(data.draw(st.sampled_from([0, 1])), data.draw(any_answer))
    facts = replace(facts, question=data.draw(any_question))
    assert facts.judge().verdict == "fail"


@given(st.data())
def test_answers_to_another_prompt_differ_rightly(data: st.DataObject) -> None:
    """Where the engine says that it processed other ids, nothing is known of reuse: neither a pass nor a fail."""
    facts = data.draw(passing())
    place = data.draw(st.integers(2, len(facts.reuses) + 1))
    answer = facts.answers()[place]
    other = replace(answer, generated=(99, *answer.generated[1:]), submitted_sha256="other")
    result = facts.with_answer(place, other).judge()
    assert result.verdict == "inconclusive"
    assert "submitted_ids_differ" in result.reasons


@given(any_facts)
def test_any_facts_are_judged_soundly(facts: Facts) -> None:
    """Nothing raises, reasons are known and in order, and the three verdicts follow from the reasons alone."""
    result = facts.judge()
    assert list(result.reasons) == sorted(set(result.reasons))
    assert set(result.reasons) <= set(REASONS)
    assert (result.verdict == "pass") == (result.reasons == ())
    differs = [c for c in result.comparisons if c.from_control is not None or c.from_cold is not None]
    assert (result.verdict == "fail") == bool(differs)
    assert (result.verdict == "fail") == any(reason.startswith("difference_from") for reason in result.reasons)
    assert len(result.comparisons) == 1 + len(facts.reuses)
    for comparison, answer in zip_longest(result.comparisons, [facts.cold, *facts.reuses]):
        if answer is None or answer.generated is None or answer.error is not None:
            assert not comparison.differs
    assert judge_control(facts.question, facts.control).verdict in ("pass", "inconclusive")


@given(any_facts)
def test_a_probe_never_passes_without_a_control_that_passes(facts: Facts) -> None:
    if judge_control(facts.question, facts.control).verdict != "pass":
        assert facts.judge().verdict != "pass"


@given(any_facts)
def test_judging_is_pure(facts: Facts) -> None:
    assert facts.judge() == facts.judge()


@given(probes=verdict_lists, planned=st.integers(-1, 7), complete=st.booleans())
def test_a_target_is_never_better_than_its_probes(probes: list[str], planned: int, *, complete: bool) -> None:
    verdict = judge_target(probes, planned, complete)
    assert RANK[verdict] >= max((RANK[probe] for probe in probes), default=1)
    assert (verdict == "fail") == ("fail" in probes)
    if verdict == "pass":
        assert complete
        assert len(probes) == planned > 0


@given(control=probe_verdicts, targets=verdict_lists, asked=st.integers(-1, 7), complete=st.booleans())
def test_a_run_is_never_better_than_its_parts(control: str, targets: list[str], asked: int, *, complete: bool) -> None:
    verdict = judge_run(control, targets, asked, complete)
    assert RANK[verdict] >= max(RANK[part] for part in [control, *targets])
    assert (verdict == "fail") == ("fail" in [control, *targets])
    if verdict in ("pass", "control_only_pass"):
        assert complete
        assert len(targets) == asked
        assert (verdict == "control_only_pass") == (asked == 0)


@given(probe_verdicts, verdict_lists, st.integers(0, 7), st.data())
def test_a_worse_part_never_improves_a_target_or_a_run(
    control: str, parts: list[str], number: int, data: st.DataObject
) -> None:
    target = judge_target(parts, number, arm_complete=True)
    run = judge_run(control, parts, number, complete=True)
    if parts:
        place = data.draw(st.integers(0, len(parts) - 1))
        worse = [verdict for verdict in VERDICTS if RANK[verdict] >= RANK[parts[place]]]
        parts = [*parts[:place], data.draw(st.sampled_from(worse)), *parts[place + 1 :]]
    complete = data.draw(st.booleans())
    assert RANK[judge_target(parts, number, complete)] >= RANK[target]
    assert RANK[judge_run(control, parts, number, complete)] >= RANK[run]


@given(control=probe_verdicts, targets=verdict_lists, asked=st.integers(0, 7), complete=st.booleans())
def test_the_exit_status_follows_the_run(control: str, targets: list[str], asked: int, *, complete: bool) -> None:
    verdict = judge_run(control, targets, asked, complete)
    status = exit_status(verdict)
    assert status == {"pass": 0, "control_only_pass": 0, "fail": 1, "inconclusive": 2}[verdict]
    if status == 0:
        assert "fail" not in targets
        assert "inconclusive" not in [control, *targets]


@given(st.one_of(st.none(), st.text(), st.integers(), st.booleans()))
def test_only_a_pass_exits_with_0(verdict: object) -> None:
    assert (exit_status(verdict) == 0) == (verdict in ("pass", "control_only_pass"))

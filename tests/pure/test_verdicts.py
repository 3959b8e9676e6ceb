"""Every row of the verdict table, by example: each case changes one fact of a probe that passes."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kvverify.comparison import (
    REASONS,
    Answer,
    Comparison,
    ProbeVerdict,
    Question,
    completed,
    exit_status,
    judge_control,
    judge_probe,
    judge_run,
    judge_target,
    whole,
)

IDS = (11, 12, 13, 14)
OTHER = (11, 12, 99, 14)
EOS = 2
QUESTION = Question(
    prompt_tokens=512, prompt_sha256="aa", max_tokens=4, reuse_count=2, eos_ids=frozenset({EOS}), tier="local"
)
CONTROL = Answer("control", 0, "aa", IDS, "length", cached=0, cached_local=0, cached_external=0)
COLD = replace(CONTROL, role="cold")
REUSE = Answer("reuse", 1, "aa", IDS, "length", cached=496, cached_local=496, cached_external=0)
SECOND = replace(REUSE, ordinal=2)


def judge(
    *,
    question: Question = QUESTION,
    control: Answer | None = CONTROL,
    cold: Answer | None = COLD,
    reuses: Sequence[Answer | None] = (REUSE, SECOND),
) -> ProbeVerdict:
    return judge_probe(question, control, cold, reuses)


def compared(
    *,
    cold: int | None = None,
    first: tuple[int | None, int | None] = (None, None),
    second: tuple[int | None, int | None] = (None, None),
) -> tuple[Comparison, ...]:
    return (
        Comparison("cold", 0, cold, None),
        Comparison("reuse", 1, *first),
        Comparison("reuse", 2, *second),
    )


class TestProbe:
    def test_passes_on_whole_evidence_and_equal_ids(self) -> None:
        assert judge() == ProbeVerdict("pass", (), compared())

    def test_passes_with_a_connector_that_served_every_hit(self) -> None:
        hit = {"cached": 511, "cached_local": 0, "cached_external": 511}
        reuses = (replace(REUSE, **hit), replace(SECOND, **hit))
        assert judge(question=replace(QUESTION, tier="external"), reuses=reuses).verdict == "pass"

    def test_passes_where_all_answers_stop_early_at_the_same_end_of_sequence_id(self) -> None:
        answers = [replace(a, generated=(11, EOS), finish_reason="stop") for a in (CONTROL, COLD, REUSE, SECOND)]
        assert judge_probe(QUESTION, answers[0], answers[1], answers[2:]).verdict == "pass"

    def test_passes_on_one_cached_token(self) -> None:
        reuse = replace(REUSE, cached=1, cached_local=1)
        assert judge(question=replace(QUESTION, reuse_count=1), reuses=[reuse]).verdict == "pass"


class TestDifference:
    def test_a_reuse_that_differs_from_both_fails(self) -> None:
        assert judge(reuses=(REUSE, replace(SECOND, generated=OTHER))) == ProbeVerdict(
            "fail", ("difference_from_cold", "difference_from_control"), compared(second=(2, 2))
        )

    def test_a_cold_answer_that_differs_fails_and_proves_no_reuse(self) -> None:
        same = (replace(REUSE, generated=OTHER), replace(SECOND, generated=OTHER))
        assert judge(cold=replace(COLD, generated=OTHER), reuses=same) == ProbeVerdict(
            "fail",
            ("difference_from_control", "difference_without_proven_reuse"),
            compared(cold=2, first=(2, None), second=(2, None)),
        )

    @pytest.mark.parametrize("cached", [None, 0, True, -1])
    def test_a_cold_answer_without_a_known_hit_proves_no_reuse(self, cached: object) -> None:
        reasons = judge(cold=replace(COLD, generated=OTHER, cached=cached)).reasons
        assert "difference_without_proven_reuse" in reasons

    @pytest.mark.parametrize("tier", ["cached_local", "cached_external"])
    def test_a_cold_answer_that_hit_any_cache_and_differs_did_reuse(self, tier: str) -> None:
        cold = replace(COLD, generated=OTHER, cached=16, **{tier: 16})
        assert judge(cold=cold).reasons == ("cold_had_hit", "difference_from_cold", "difference_from_control")

    @pytest.mark.parametrize(
        "control", [None, replace(CONTROL, error="the engine died"), replace(CONTROL, generated=())]
    )
    def test_a_reuse_that_differs_from_the_cold_answer_fails_without_a_control(self, control: object) -> None:
        result = judge(control=control, reuses=(replace(REUSE, generated=OTHER), SECOND))
        assert result.verdict == "fail"
        assert "difference_from_cold" in result.reasons
        assert "difference_from_control" not in result.reasons
        assert result.comparisons == compared(first=(None, 2))

    @pytest.mark.parametrize("cold", [None, replace(COLD, finish_reason="abort")])
    def test_a_reuse_that_differs_from_the_control_fails_without_a_cold_answer(self, cold: Answer | None) -> None:
        result = judge(cold=cold, reuses=(REUSE, replace(SECOND, generated=OTHER)))
        assert result.verdict == "fail"
        assert "difference_from_cold" not in result.reasons
        assert "difference_without_proven_reuse" not in result.reasons
        assert result.comparisons == compared(second=(2, None))

    @pytest.mark.parametrize(
        ("facts", "gap"),
        [
            ({"cached": 0, "cached_local": 0}, "reuse_without_hit"),
            ({"cached": None}, "reuse_hits_unknown"),
            ({"cached": 512, "cached_local": 512}, "reuse_hits_impossible"),
            ({"cached_external": None}, "reuse_tier_unknown"),
            ({"cached_local": 0, "cached_external": 496}, "reuse_wrong_tier"),
            ({"doubts": ("the log says 256",)}, "reuse_doubted"),
        ],
    )
    def test_a_difference_without_proven_reuse_fails_and_says_so(self, facts: dict[str, object], gap: str) -> None:
        result = judge(reuses=(replace(REUSE, generated=OTHER, **facts), SECOND))
        assert result.verdict == "fail"
        assert result.reasons == tuple(
            sorted(["difference_from_cold", "difference_from_control", "difference_without_proven_reuse", gap])
        )

    def test_another_reuse_without_a_hit_does_not_unprove_the_one_that_differs(self) -> None:
        reuses = (replace(REUSE, generated=OTHER), replace(SECOND, cached=0, cached_local=0))
        assert judge(reuses=reuses).reasons == (
            "difference_from_cold",
            "difference_from_control",
            "reuse_without_hit",
        )

    def test_other_gaps_of_the_one_that_differs_do_not_unprove_its_hit(self) -> None:
        reuses = (replace(REUSE, generated=OTHER, submitted_sha256=None), SECOND)
        assert "difference_without_proven_reuse" not in judge(reuses=reuses).reasons

    def test_a_difference_fails_a_plan_that_cannot_be_used_too(self) -> None:
        result = judge(question=replace(QUESTION, prompt_tokens=0), reuses=(replace(REUSE, generated=OTHER), SECOND))
        assert result.verdict == "fail"
        assert result.reasons == (
            "difference_from_cold",
            "difference_from_control",
            "difference_without_proven_reuse",
            "plan_unusable",
        )

    def test_a_difference_in_an_unplanned_reuse_fails(self) -> None:
        third = replace(REUSE, ordinal=3, generated=OTHER)
        result = judge(reuses=(REUSE, SECOND, third))
        assert result.verdict == "fail"
        assert result.comparisons[3] == Comparison("reuse", 3, 2, 2)

    def test_whole_answers_of_unequal_length_differ(self) -> None:
        stopped = replace(REUSE, generated=(11, EOS), finish_reason="stop")
        control, cold = (replace(a, generated=(11, EOS, 13, 14)) for a in (CONTROL, COLD))
        second = replace(SECOND, generated=(11, EOS, 13, 14))
        result = judge(control=control, cold=cold, reuses=(stopped, second))
        assert result.verdict == "fail"
        assert result.comparisons == compared(first=(2, 2))

    def test_a_cut_answer_differs_where_an_id_before_the_cut_does(self) -> None:
        result = judge(reuses=(replace(REUSE, generated=(11, 99)), SECOND))
        assert result.verdict == "fail"
        assert result.comparisons == compared(first=(1, 1))

    @pytest.mark.parametrize("cut", [(), (11,), (11, 12, 13), (*IDS, 15)])
    def test_a_cut_or_overlong_answer_that_agrees_so_far_is_no_difference_and_no_pass(
        self, cut: tuple[int, ...]
    ) -> None:
        result = judge(reuses=(REUSE, replace(SECOND, generated=cut)))
        assert result == ProbeVerdict("inconclusive", ("reuse_not_whole",), compared())

    def test_ids_of_a_failed_answer_are_no_difference(self) -> None:
        result = judge(reuses=(REUSE, replace(SECOND, generated=OTHER, error="the engine died")))
        assert result == ProbeVerdict("inconclusive", ("reuse_failed",), compared())


FAILED = [
    {"error": "the engine died"},
    {"error": ""},
    {"generated": None},
    {"generated": [*IDS]},
    {"generated": (11, 12, 13, True)},
    {"generated": (11, 12, 13, 14.0)},
    {"generated": (11, 12, 13, -14)},
    {"generated": (11, 12, 13, "14")},
    {"generated": (11, 12, 13, None)},
    {"finish_reason": None},
    {"finish_reason": "error"},
    {"finish_reason": "abort"},
    {"finish_reason": ["stop"]},
]
NOT_WHOLE = [
    {"generated": ()},
    {"generated": (11, 12, 13)},
    {"generated": (11, 12, 13), "finish_reason": "stop"},
    {"generated": (*IDS, 15)},
    {"generated": (*IDS, EOS), "finish_reason": "stop"},
]
UNKNOWN_COUNTS = [None, True, False, -1, 0.0, 496.0, "496", [496]]


class TestGaps:
    """Each gap keeps an otherwise passing probe from passing, and is named."""

    @pytest.mark.parametrize("facts", FAILED, ids=str)
    @pytest.mark.parametrize("role", ["control", "cold", "reuse"])
    def test_a_failed_answer(self, role: str, facts: dict[str, object]) -> None:
        assert self.changed(role, facts) == ("inconclusive", (f"{role}_failed",))

    @pytest.mark.parametrize("facts", NOT_WHOLE, ids=str)
    @pytest.mark.parametrize("role", ["control", "cold", "reuse"])
    def test_an_answer_that_is_not_whole(self, role: str, facts: dict[str, object]) -> None:
        assert self.changed(role, facts) == ("inconclusive", (f"{role}_not_whole",))

    def test_a_missing_answer(self) -> None:
        assert judge(control=None).reasons == ("control_missing",)
        assert judge(cold=None).reasons == ("cold_missing",)
        assert judge(reuses=(REUSE, None)).reasons == ("reuse_missing",)
        assert judge(reuses=(None, SECOND)) == ProbeVerdict("inconclusive", ("reuse_missing",), compared())

    def test_fewer_reuses_than_planned(self) -> None:
        result = judge(reuses=(REUSE,))
        assert (result.verdict, result.reasons) == ("inconclusive", ("reuse_missing",))
        assert result.comparisons == compared()[:2]

    def test_more_reuses_than_planned(self) -> None:
        result = judge(reuses=(REUSE, SECOND, replace(REUSE, ordinal=3)))
        assert (result.verdict, result.reasons) == ("inconclusive", ("reuse_unplanned",))

    @pytest.mark.parametrize("role", ["control", "cold"])
    @pytest.mark.parametrize(
        "facts",
        [
            {"cached": 16, "cached_local": 16},
            {"cached": 16, "cached_external": 16},
            {"cached": 512, "cached_local": 512},
        ],
    )
    def test_a_hit_where_there_must_be_none(self, role: str, facts: dict[str, object]) -> None:
        assert self.changed(role, facts) == ("inconclusive", (f"{role}_had_hit",))

    @pytest.mark.parametrize("role", ["control", "cold"])
    @pytest.mark.parametrize("field", ["cached", "cached_local", "cached_external"])
    def test_one_count_alone_that_says_there_was_a_hit(self, role: str, field: str) -> None:
        assert self.changed(role, {field: 16}) == ("inconclusive", (f"{role}_had_hit", "hit_counts_disagree"))

    @pytest.mark.parametrize("role", ["control", "cold"])
    @pytest.mark.parametrize("field", ["cached", "cached_local", "cached_external"])
    @pytest.mark.parametrize("count", [None, True, False, -1, 0.0, "0", [0]], ids=str)
    def test_a_count_that_is_unknown_where_it_must_be_zero(self, role: str, field: str, count: object) -> None:
        assert self.changed(role, {field: count}) == ("inconclusive", (f"{role}_hits_unknown",))

    def test_a_hit_is_named_beside_a_count_that_is_unknown(self) -> None:
        assert self.changed("cold", {"cached": None, "cached_local": 16}) == (
            "inconclusive",
            ("cold_had_hit", "cold_hits_unknown"),
        )

    @pytest.mark.parametrize("count", UNKNOWN_COUNTS, ids=str)
    def test_a_reuse_whose_hits_are_unknown(self, count: object) -> None:
        assert self.changed("reuse", {"cached": count}) == ("inconclusive", ("reuse_hits_unknown",))

    def test_a_reuse_without_a_hit(self) -> None:
        facts = {"cached": 0, "cached_local": 0}
        assert self.changed("reuse", facts) == ("inconclusive", ("reuse_without_hit",))

    @pytest.mark.parametrize(("cached", "verdict"), [(511, "pass"), (512, "inconclusive"), (513, "inconclusive")])
    def test_a_hit_on_the_whole_prompt_is_impossible(self, cached: object, verdict: str) -> None:
        reasons = () if verdict == "pass" else ("reuse_hits_impossible",)
        assert self.changed("reuse", {"cached": cached, "cached_local": cached}) == (verdict, reasons)

    @pytest.mark.parametrize("field", ["cached_local", "cached_external"])
    @pytest.mark.parametrize("count", UNKNOWN_COUNTS, ids=str)
    def test_a_reuse_whose_tier_is_unknown(self, field: str, count: object) -> None:
        assert self.changed("reuse", {field: count}) == ("inconclusive", ("reuse_tier_unknown",))

    @pytest.mark.parametrize(("local", "external"), [(0, 496), (495, 1), (1, 495)])
    def test_a_reuse_from_the_wrong_tier_in_whole_or_in_part(self, local: int, external: int) -> None:
        facts = {"cached_local": local, "cached_external": external}
        assert self.changed("reuse", facts) == ("inconclusive", ("reuse_wrong_tier",))

    @pytest.mark.parametrize(("local", "external"), [(496, 0), (495, 1), (1, 495)])
    def test_a_connector_does_not_pass_on_native_hits(self, local: int, external: int) -> None:
        external_reuse = {"cached_local": 0, "cached_external": 496}
        reuses = (
            replace(REUSE, **external_reuse),
            replace(SECOND, cached_local=local, cached_external=external),
        )
        result = judge(question=replace(QUESTION, tier="external"), reuses=reuses)
        assert (result.verdict, result.reasons) == ("inconclusive", ("reuse_wrong_tier",))

    @pytest.mark.parametrize("local", [495, 497, 0])
    def test_counts_that_do_not_add_up(self, local: int) -> None:
        assert self.changed("reuse", {"cached_local": local}) == ("inconclusive", ("hit_counts_disagree",))

    @pytest.mark.parametrize("role", ["control", "cold", "reuse"])
    @pytest.mark.parametrize("doubts", [("the log says 256",), ("",), None, [], "doubt"], ids=str)
    def test_a_doubted_answer(self, role: str, doubts: object) -> None:
        assert self.changed(role, {"doubts": doubts}) == ("inconclusive", (f"{role}_doubted",))

    @pytest.mark.parametrize("role", ["control", "cold", "reuse"])
    @pytest.mark.parametrize("submitted", ["ab", "AA", "", 0])
    def test_another_prompt_than_the_planned_one(self, role: str, submitted: object) -> None:
        assert self.changed(role, {"submitted_sha256": submitted}) == (
            "inconclusive",
            ("submitted_ids_differ",),
        )

    @pytest.mark.parametrize("role", ["control", "cold", "reuse"])
    def test_an_unknown_prompt(self, role: str) -> None:
        assert self.changed(role, {"submitted_sha256": None}) == ("inconclusive", ("submitted_ids_unknown",))

    @pytest.mark.parametrize("role", ["control", "cold", "reuse"])
    @pytest.mark.parametrize("ordinal", [None, True, False, 1.0, 0.0, 3, -1, "1"], ids=repr)
    def test_a_wrong_ordinal(self, role: str, ordinal: object) -> None:
        assert self.changed(role, {"ordinal": ordinal}) == ("inconclusive", ("answer_out_of_place",))

    @pytest.mark.parametrize(
        ("role", "other"),
        [
            ("control", "cold"),
            ("control", None),
            ("cold", "reuse"),
            ("cold", "control"),
            ("reuse", "cold"),
            ("reuse", ""),
        ],
    )
    def test_a_wrong_role(self, role: str, other: object) -> None:
        assert self.changed(role, {"role": other}) == ("inconclusive", ("answer_out_of_place",))

    def test_reuses_in_another_order(self) -> None:
        result = judge(reuses=(SECOND, REUSE))
        assert (result.verdict, result.reasons) == ("inconclusive", ("answer_out_of_place",))

    @pytest.mark.parametrize("tier", [None, "", "remote", ["local"]])
    def test_no_tier_to_come_from(self, tier: object) -> None:
        result = judge(question=replace(QUESTION, tier=tier))
        assert (result.verdict, result.reasons) == ("inconclusive", ("reuse_tier_unknown",))

    @pytest.mark.parametrize(
        "facts",
        [
            *({"prompt_tokens": odd} for odd in (None, 0, -1, True, 512.0, "512")),
            *({"max_tokens": odd} for odd in (None, 0, -4, True, 4.0, "4")),
            *({"prompt_sha256": odd} for odd in (None, "", 0)),
            *({"eos_ids": odd} for odd in (None, [EOS], frozenset({True}), frozenset({"2"}), frozenset({None}))),
        ],
        ids=str,
    )
    def test_a_plan_that_answers_cannot_be_measured_by(self, facts: dict[str, object]) -> None:
        result = judge(question=replace(QUESTION, **facts))
        assert (result.verdict, result.reasons) == ("inconclusive", ("plan_unusable",))
        control = judge_control(replace(QUESTION, **facts), CONTROL)
        assert control == ProbeVerdict("inconclusive", ("plan_unusable",), ())

    def test_a_hash_that_is_missing_on_both_sides_is_no_agreement(self) -> None:
        answers = [replace(a, submitted_sha256=None) for a in (CONTROL, COLD, REUSE, SECOND)]
        question = replace(QUESTION, prompt_sha256=None)
        assert judge_probe(question, answers[0], answers[1], answers[2:]).verdict == "inconclusive"

    @pytest.mark.parametrize("reuse_count", [None, 0, -1, True, 2.0, "2"])
    @pytest.mark.parametrize("reuses", [(), (REUSE,), (REUSE, SECOND)], ids=len)
    def test_a_probe_without_a_planned_reuse(self, reuse_count: object, reuses: tuple[Answer, ...]) -> None:
        result = judge(question=replace(QUESTION, reuse_count=reuse_count), reuses=reuses)
        assert (result.verdict, result.reasons) == ("inconclusive", ("plan_unusable",))

    def test_all_gaps_are_listed_once_and_in_order(self) -> None:
        result = judge(control=None, cold=replace(COLD, cached=16, cached_local=16), reuses=(None, None))
        assert result.reasons == ("cold_had_hit", "control_missing", "reuse_missing")

    def test_every_code_has_its_words(self) -> None:
        roles = [f"{role}_{gap}" for role in ("control", "cold") for gap in ("had_hit", "hits_unknown")]
        roles += [
            f"{role}_{gap}"
            for role in ("control", "cold", "reuse")
            for gap in ("missing", "failed", "not_whole", "doubted")
        ]
        others = (
            "answer_out_of_place difference_from_cold difference_from_control difference_without_proven_reuse "
            "hit_counts_disagree plan_unusable reuse_hits_impossible reuse_hits_unknown reuse_tier_unknown "
            "reuse_unplanned reuse_without_hit reuse_wrong_tier submitted_ids_differ submitted_ids_unknown"
        )
        assert sorted(REASONS) == sorted(roles + others.split())
        assert all(REASONS.values())

    @staticmethod
    def changed(role: str, facts: dict[str, object]) -> tuple[str, tuple[str, ...]]:
        """The verdict and reasons of the passing probe with some facts of one answer changed."""
        if role == "reuse":
            result = judge(reuses=(REUSE, replace(SECOND, **facts)))
        else:
            result = judge(**{role: replace({"control": CONTROL, "cold": COLD}[role], **facts)})
        if role == "control":
            alone = judge_control(QUESTION, replace(CONTROL, **facts))
            assert (alone.verdict, alone.reasons) == (result.verdict, result.reasons)
        return result.verdict, result.reasons


class TestControlAlone:
    def test_passes_when_whole_without_a_hit(self) -> None:
        assert judge_control(QUESTION, CONTROL) == ProbeVerdict("pass", (), ())

    def test_needs_no_tier_and_no_reuse(self) -> None:
        assert judge_control(replace(QUESTION, tier=None, reuse_count=0), CONTROL).verdict == "pass"

    def test_is_inconclusive_without_an_answer(self) -> None:
        assert judge_control(QUESTION, None) == ProbeVerdict("inconclusive", ("control_missing",), ())


class TestWhole:
    @pytest.mark.parametrize(
        ("generated", "finish_reason", "expected"),
        [
            (IDS, "length", True),
            (IDS, "stop", True),
            ((11, 12, 13, EOS), "stop", True),
            ((11, EOS, 13, 14), "length", True),
            ((EOS,), "stop", True),
            ((11, EOS), "stop", True),
            ((11, EOS), "length", False),
            ((11, 12), "stop", False),
            ((EOS, 12), "stop", False),
            ((11, 12), "length", False),
            ((), "stop", False),
            ((*IDS, EOS), "stop", False),
            (IDS, "abort", False),
            (None, "length", False),
        ],
    )
    def test_has_the_asked_length_or_stopped_at_an_end_of_sequence_id(
        self, generated: object, finish_reason: str, expected: object
    ) -> None:
        answer = replace(CONTROL, generated=generated, finish_reason=finish_reason)
        assert whole(QUESTION, answer) is expected

    @pytest.mark.parametrize("max_tokens", [None, 0, True, 4.0])
    def test_nothing_is_whole_without_an_asked_length(self, max_tokens: object) -> None:
        assert not whole(replace(QUESTION, max_tokens=max_tokens), CONTROL)

    def test_an_empty_answer_is_complete_and_not_whole(self) -> None:
        empty = replace(CONTROL, generated=())
        assert completed(empty) is True
        assert whole(QUESTION, empty) is False

    def test_a_failed_answer_is_not_complete(self) -> None:
        assert completed(replace(CONTROL, error="the engine died")) is False


class TestTarget:
    @pytest.mark.parametrize(
        ("probes", "planned", "arm_complete", "verdict"),
        [
            (["pass"], 1, True, "pass"),
            (["pass", "pass"], 2, True, "pass"),
            (["pass", "inconclusive"], 2, True, "inconclusive"),
            (["inconclusive", "fail", "pass"], 3, True, "fail"),
            (["fail"], 6, False, "fail"),
            (["pass", "pass"], 2, False, "inconclusive"),
            (["pass", "pass"], 3, True, "inconclusive"),
            (["pass", "pass"], 1, True, "inconclusive"),
            ([], 0, True, "inconclusive"),
            ([], 1, True, "inconclusive"),
            (["pass"], True, True, "inconclusive"),
            (["pass"], 1.0, True, "inconclusive"),
            (["pass"], None, True, "inconclusive"),
            (["pass"], 1, None, "inconclusive"),
            (["pass"], 1, 1, "inconclusive"),
            (["pass"], 1, "complete", "inconclusive"),
            (["PASS"], 1, True, "inconclusive"),
            ([None], 1, True, "inconclusive"),
            (["control_only_pass"], 1, True, "inconclusive"),
        ],
    )
    def test_is_the_worst_of_its_probes(
        self, probes: list[str], planned: object, arm_complete: object, verdict: str
    ) -> None:
        assert judge_target(probes, planned, arm_complete) == verdict


class TestRun:
    @pytest.mark.parametrize(
        ("control", "targets", "asked", "complete", "verdict"),
        [
            ("pass", ["pass"], 1, True, "pass"),
            ("pass", ["pass", "pass"], 2, True, "pass"),
            ("pass", ["pass", "fail"], 2, True, "fail"),
            ("pass", ["inconclusive", "fail"], 2, False, "fail"),
            ("inconclusive", ["fail"], 2, False, "fail"),
            ("fail", ["pass"], 1, True, "fail"),
            ("fail", [], 0, True, "fail"),
            ("pass", ["pass", "inconclusive"], 2, True, "inconclusive"),
            ("inconclusive", ["pass"], 1, True, "inconclusive"),
            ("pass", ["pass"], 1, False, "inconclusive"),
            ("pass", ["pass"], 2, True, "inconclusive"),
            ("pass", ["pass", "pass"], 1, True, "inconclusive"),
            ("pass", ["pass"], 0, True, "inconclusive"),
            ("pass", [], 1, True, "inconclusive"),
            ("pass", [], 0, True, "control_only_pass"),
            ("pass", [], 0, False, "inconclusive"),
            ("inconclusive", [], 0, True, "inconclusive"),
            ("pass", [], None, True, "inconclusive"),
            ("pass", [], False, True, "inconclusive"),
            ("pass", ["pass"], True, True, "inconclusive"),
            ("pass", ["pass"], 1.0, True, "inconclusive"),
            ("pass", ["pass"], 1, None, "inconclusive"),
            ("pass", ["pass"], 1, 1, "inconclusive"),
            (None, ["pass"], 1, True, "inconclusive"),
            ("pass", [None], 1, True, "inconclusive"),
            ("pass", ["control_only_pass"], 1, True, "inconclusive"),
        ],
    )
    def test_is_the_worst_of_its_parts(
        self, control: object, targets: list[str], asked: object, complete: object, verdict: str
    ) -> None:
        assert judge_run(control, targets, asked, complete) == verdict

    @pytest.mark.parametrize(
        ("verdict", "status"),
        [
            ("pass", 0),
            ("control_only_pass", 0),
            ("fail", 1),
            ("inconclusive", 2),
            (None, 2),
            ("", 2),
            ("PASS", 2),
            (0, 2),
        ],
    )
    def test_exit_status(self, verdict: str, status: int) -> None:
        assert exit_status(verdict) == status

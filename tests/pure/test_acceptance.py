"""When an acceptance run matches its fixture: only where everything expected was found, and nothing was missing."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvverify.report.acceptance import match
from kvverify.report.document import Document, judge
from kvverify.report.rederive import check_document

from .acceptance_factory import CONTROL, LMCACHE, NATIVE, acceptance_report, answer_of, arm_of

Change = Callable[[Document], object]


def expect_little(document: Document) -> None:
    """A fixture that knows verdicts and first differing indices, as a published one may."""
    for probes in document["acceptance"]["expected"].values():
        for one in probes.values():
            one["cached_tokens"] = None


def expect_verdicts(document: Document) -> None:
    """A fixture that knows nothing but verdicts."""
    expect_little(document)
    for probes in document["acceptance"]["expected"].values():
        for one in probes.values():
            one["first_differences"] = None


def test_a_run_that_finds_what_is_expected_matches_and_stays_the_failure_that_it_is():
    document = acceptance_report()
    assert document["acceptance"]["matched"] is True
    assert document["acceptance"]["mismatches"] == []
    assert document["result"]["generations"] == {"planned": 24, "completed": 24}
    assert [target["verdict"] for target in document["targets"]] == ["fail", "pass"]
    assert document["result"]["exit_status"] == 1
    assert check_document(document) == []


@pytest.mark.parametrize("knows", [expect_little, expect_verdicts])
def test_what_a_fixture_does_not_know_is_not_held_against_a_run(knows):
    assert acceptance_report(knows)["acceptance"]["matched"] is True


def test_a_run_without_a_fixture_has_no_acceptance():
    document = acceptance_report(lambda d: d.update(acceptance=None))
    assert document["acceptance"] is None


@pytest.mark.parametrize("expected", [{}, {NATIVE: {}}, {NATIVE: {}, LMCACHE: {}}])
def test_expecting_nothing_is_no_match(expected):
    section = acceptance_report(lambda d: d["acceptance"].update(expected=expected))["acceptance"]
    assert section["matched"] is None
    assert section["mismatches"] == []


@pytest.mark.parametrize("state", ["running", "interrupted"])
def test_a_run_that_has_not_ended_is_no_match(state):
    section = acceptance_report(lambda d: d.update(state=state))["acceptance"]
    assert section["matched"] is None


def expect(target: str, probe: str, **values: object) -> Change:
    return lambda document: document["acceptance"]["expected"][target][probe].update(values)


MISMATCHES = {
    "verdict": (
        expect(NATIVE, "chat-511", verdict="fail"),
        "native_prefix_caching, chat-511: expected verdict fail, found pass",
    ),
    "passes now": (
        expect(LMCACHE, "fixture", verdict="pass"),
        "lmcache_connector_v1, fixture: expected verdict pass, found fail",
    ),
    "cached": (
        expect(LMCACHE, "chat-512", cached_tokens=[0, 512]),
        "lmcache_connector_v1, chat-512: expected cached tokens per answer 0, 512, found 0, 511",
    ),
    "cached, fewer": (
        expect(LMCACHE, "chat-512", cached_tokens=[0]),
        "lmcache_connector_v1, chat-512: expected cached tokens per answer 0, found 0, 511",
    ),
    "cached, none": (
        expect(LMCACHE, "chat-512", cached_tokens=[]),
        "lmcache_connector_v1, chat-512: expected cached tokens per answer none, found 0, 511",
    ),
    "index": (
        expect(LMCACHE, "fixture", first_differences=[None, 2, 3, 5]),
        "lmcache_connector_v1, fixture: expected first differing index per answer =, 2, 3, 5, found =, 2, 3, 4",
    ),
    "equal where a difference was": (
        expect(LMCACHE, "chat-513", first_differences=[None, None]),
        "lmcache_connector_v1, chat-513: expected first differing index per answer =, =, found =, 2",
    ),
    "index 0 is not equal": (
        expect(NATIVE, "chat-513", first_differences=[None, 0]),
        "native_prefix_caching, chat-513: expected first differing index per answer =, 0, found =, =",
    ),
    "a probe that is expected alone": (
        lambda d: d["acceptance"]["expected"][NATIVE].update(other={**d["acceptance"]["expected"][NATIVE]["fixture"]}),
        "native_prefix_caching, other: expected pass, the run has no such probe",
    ),
    "a probe of which nothing is expected": (
        lambda d: d["acceptance"]["expected"][NATIVE].pop("fixture"),
        "native_prefix_caching, fixture: the fixture expects nothing of it, the run found pass",
    ),
}


@pytest.mark.parametrize(("change", "says"), MISMATCHES.values(), ids=MISMATCHES)
def test_every_mismatch_is_said_in_words(change, says):
    document = acceptance_report(change)
    assert document["acceptance"]["matched"] is False
    assert document["acceptance"]["mismatches"] == [says]
    assert document["result"]["exit_status"] == 1
    assert check_document(document) == []


@pytest.mark.parametrize("target", [NATIVE, LMCACHE])
@pytest.mark.parametrize("silence", [lambda e, t: e.pop(t), lambda e, t: e.update({t: {}})])
def test_a_fixture_that_expects_nothing_of_one_target_matches_nothing(target, silence):
    section = acceptance_report(lambda d: silence(d["acceptance"]["expected"], target))["acceptance"]
    assert section["matched"] is False
    assert len(section["mismatches"]) == 4


def drop(arm: str, probe: str, ordinal: int) -> Change:
    return lambda d: arm_of(d, arm)["answers"].remove(answer_of(d, arm, probe, ordinal))


def edit(arm: str, probe: str, ordinal: int, **values: object) -> Change:
    return lambda d: answer_of(d, arm, probe, ordinal).update(values)


def edit_arm(name: str, **values: object) -> Change:
    return lambda d: arm_of(d, name).update(values)


def effective(name: str, path: str, value: object) -> Change:
    def change(document: Document) -> None:
        *way, last = path.split(".")
        place = arm_of(document, name)["effective"]
        for part in way:
            place = place[part]
        place[last] = value

    return change


# In each of these the verdicts and the first differing indices can come out as expected all the same: the probe fails
# by another answer, and what is not there does not differ.
LIES = {
    "no control": drop(CONTROL, "fixture", 0),
    "control failed": edit(CONTROL, "fixture", 0, error="x", generated_token_ids=None, finish_reason=None),
    "control had a hit": edit(CONTROL, "fixture", 0, cached_tokens=16, cached_tokens_local=16),
    "control's hits unknown": edit(CONTROL, "fixture", 0, cached_tokens=None),
    "control of another prompt": edit(CONTROL, "fixture", 0, submitted_sha256="ef" * 32),
    "prompt unknown": edit(LMCACHE, "fixture", 0, submitted_sha256=None),
    "no cold answer": drop(LMCACHE, "fixture", 0),
    "cold failed": edit(LMCACHE, "fixture", 0, error="x"),
    "cold cut short": edit(LMCACHE, "fixture", 0, generated_token_ids=[1]),
    "cold had a hit": edit(LMCACHE, "fixture", 0, cached_tokens=256, cached_tokens_external=256),
    "reuse cut short": lambda d: answer_of(d, LMCACHE, "fixture", 2)["generated_token_ids"].pop(),
    "reuse failed": edit(LMCACHE, "fixture", 2, error="engine died"),
    "reuse without a hit": edit(LMCACHE, "fixture", 2, cached_tokens=0, cached_tokens_external=0),
    "reuse's hits unknown": edit(LMCACHE, "fixture", 2, cached_tokens=None),
    "reuse from the other cache": edit(LMCACHE, "fixture", 2, cached_tokens_local=1280, cached_tokens_external=0),
    "tier unknown": edit(LMCACHE, "fixture", 2, cached_tokens_external=None),
    "doubted": edit(LMCACHE, "fixture", 2, doubts=["connector_degraded"]),
    "no log": edit(LMCACHE, "fixture", 2, connector_log=None),
    "log says less": lambda d: answer_of(d, LMCACHE, "fixture", 2)["connector_log"].update(retrieved_tokens=256),
    "log says a cold retrieve": lambda d: answer_of(d, LMCACHE, "fixture", 0)["connector_log"].update(
        retrieved_tokens=256
    ),
    "an answer too many": lambda d: arm_of(d, LMCACHE)["answers"].append(
        {**answer_of(d, LMCACHE, "fixture", 3), "ordinal": 4}
    ),
    "an answer to nothing": lambda d: arm_of(d, LMCACHE)["answers"].append(
        {**answer_of(d, LMCACHE, "fixture", 3), "probe": "other"}
    ),
    "arm failed": edit_arm(LMCACHE, state="failed", errors=["x"]),
    "arm hit a limit": edit_arm(LMCACHE, limit="shutdown_timeout"),
    "arm never ran": edit_arm(NATIVE, state="pending", answers=[], effective=None),
    "control's arm failed": edit_arm(CONTROL, state="failed"),
    "arm unknown": edit_arm(LMCACHE, effective=None),
    "another connector": effective(LMCACHE, "connector.module", "lmcache.integration.vllm.lmcache_connector_v1"),
    "LMCache not initialised": effective(LMCACHE, "connector.lmcache.init_failed", value=True),
    "native caching beside LMCache": effective(LMCACHE, "prefix_caching", value=True),
    "control with a cache": effective(CONTROL, "prefix_caching", value=True),
    "native without a cache": effective(NATIVE, "prefix_caching", value=False),
    "native with a connector": effective(NATIVE, "connector", {"class": "X"}),
    "error outside the arms": lambda d: d["errors"].append({"stage": "identity", "message": "x"}),
    "model changed": lambda d: d["identity"]["model"].update(unchanged_at_end=False),
    "tokenizer unknown": lambda d: d["identity"]["tokenizer"].update(unchanged_at_end=None),
    "no native arm": lambda d: d["arms"].pop(),
    "no control arm": lambda d: d["arms"].pop(0),
    "arm twice": lambda d: d["arms"].append(d["arms"][1]),
}


@pytest.mark.parametrize("knows", [expect_little, expect_verdicts])
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_nothing_that_is_missing_or_doubtful_matches(lie, knows):
    section = acceptance_report(knows, lie)["acceptance"]
    assert section["matched"] is False
    assert section["mismatches"]


def test_a_gap_is_named():
    lie = edit(LMCACHE, "fixture", 2, error="engine died")
    (says,) = acceptance_report(expect_verdicts, lie)["acceptance"]["mismatches"]
    assert says == "lmcache_connector_v1, fixture: the evidence is not whole (reuse_failed)"


def test_an_arm_that_is_something_else_is_named():
    lie = effective(LMCACHE, "connector.lmcache.init_failed", value=True)
    (says,) = acceptance_report(expect_verdicts, lie)["acceptance"]["mismatches"]
    assert says == ("lmcache_connector_v1: LMCache did not initialise, so that nothing would be reused (None)")


def test_matched_is_computed_and_never_believed():
    document = acceptance_report(expect(NATIVE, "chat-511", verdict="fail"))
    document["acceptance"] |= {"matched": True, "mismatches": []}
    assert match(document)["matched"] is False
    assert check_document(document)


def test_a_cold_answer_that_differs_without_a_hit_can_be_expected():
    def change(document: Document) -> None:
        answer_of(document, NATIVE, "chat-511", 0)["generated_token_ids"][7] += 1

    document = acceptance_report(
        change,
        expect(NATIVE, "chat-511", verdict="fail", first_differences=[7, None]),
    )
    (found,) = [p for p in document["targets"][1]["probes"] if p["id"] == "chat-511"]
    assert "difference_without_proven_reuse" in found["reasons"]
    assert document["acceptance"]["matched"] is True


@given(st.data())
def test_matched_needs_every_answer_proven_and_whole(data):
    """Whatever one fact of one answer becomes: where the run matches, each answer is one that a pass could rest on."""
    arm = data.draw(st.sampled_from([CONTROL, LMCACHE, NATIVE]))
    probe = data.draw(st.sampled_from(["fixture", "chat-511", "chat-512", "chat-513"]))
    ordinal = 0 if arm == CONTROL else data.draw(st.integers(0, 3 if probe == "fixture" else 1))
    key, value = data.draw(
        st.sampled_from(
            [
                ("submitted_sha256", None),
                ("generated_token_ids", None),
                ("generated_token_ids", []),
                ("finish_reason", None),
                ("finish_reason", "error"),
                ("cached_tokens", None),
                ("cached_tokens_local", None),
                ("cached_tokens_external", None),
                ("cached_tokens", 5000),
                ("doubts", ["x"]),
                ("error", "x"),
            ]
        )
    )
    document = acceptance_report(expect_verdicts, edit(arm, probe, ordinal, **{key: value}))
    assert document["acceptance"]["matched"] is False
    assert judge(document)[2]["exit_status"] == 1

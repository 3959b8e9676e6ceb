import json
from pathlib import Path

import pytest

from kvverify.report.document import Document
from kvverify.report.rederive import check
from kvverify.report.store import ReportStore

from .report_factory import CONTROL, NATIVE, effective, make_answer, run_arm, start


@pytest.fixture
def store(tmp_path: Path) -> ReportStore:
    store = ReportStore(tmp_path / "report.json")
    store.create()
    return store


def on_disk(store: ReportStore) -> Document:
    document: Document = json.loads(store.report.read_text())
    return document


def test_report_is_sound_and_no_pass_after_every_step_of_a_run(store: ReportStore) -> None:
    recorder = start(store)
    seen = []
    plan = recorder.document["plan"]
    for arm in (CONTROL, NATIVE):
        store.evidence_path(f"{arm}.log").write_text("log")
        recorder.arm_state(arm, "running", log=f"{arm}.log", effective=effective(arm))
        for probe in plan["probes"]:
            places = [("control", 0)] if arm == CONTROL else [("cold", 0), ("reuse", 1), ("reuse", 2), ("reuse", 3)]
            for role, ordinal in places[: 1 if arm == CONTROL else 1 + probe["reuse_count"]]:
                recorder.answer(arm, make_answer(arm, probe, role, ordinal))
                written = on_disk(store)
                seen.append(written["result"]["generations"]["completed"])
                assert written["state"] == "running"
                assert written["result"]["verdict"] == "inconclusive"
                assert check(written, store.report.parent) == []
        recorder.arm_state(arm, "complete")
    recorder.unchanged(model=True, tokenizer=True)
    assert recorder.document["result"]["verdict"] == "inconclusive"
    assert recorder.finish("complete")["result"]["verdict"] == "pass"
    assert on_disk(store)["result"] == {
        "verdict": "pass",
        "reuse_tested": True,
        "exit_status": 0,
        "generations": {"planned": 24, "completed": 24},
    }
    # The report on disk moves on with each probe: six of the control, then whole probes of 2 or 4 answers.
    assert seen[:6] == [1, 2, 3, 4, 5, 6]
    assert sorted(set(seen[6:])) == [6, 8, 12, 14, 18, 20, 24]


def test_a_failed_answer_is_written_at_once(store: ReportStore) -> None:
    recorder = start(store)
    probe = recorder.document["plan"]["probes"][1]
    answer = make_answer(NATIVE, probe, "cold", 0) | {"generated_token_ids": None, "error": "no answer"}
    recorder.answer(NATIVE, answer)
    assert on_disk(store)["arms"][1]["answers"] == [answer]


def test_interrupted_run_is_never_a_pass(store: ReportStore) -> None:
    recorder = start(store)
    run_arm(recorder, store, CONTROL)
    run_arm(recorder, store, NATIVE)
    recorder.unchanged(model=True, tokenizer=True)
    document = recorder.finish("interrupted")
    assert (document["result"]["verdict"], document["result"]["exit_status"]) == ("inconclusive", 2)


def test_finish_marks_what_was_still_running(store: ReportStore) -> None:
    recorder = start(store)
    recorder.arm_state(CONTROL, "running", effective=effective(CONTROL))
    document = recorder.finish("interrupted")
    assert [arm["state"] for arm in document["arms"]] == ["interrupted", "pending"]
    assert check(document, store.report.parent) == []


def test_errors_and_limits_are_kept(store: ReportStore) -> None:
    recorder = start(store)
    recorder.arm_state(CONTROL, "failed", limit="start_timeout", error="first")
    recorder.arm_state(CONTROL, "failed", error="second")
    recorder.error("shutdown", "third")
    document = recorder.finish("complete")
    assert (document["arms"][0]["limit"], document["arms"][0]["errors"]) == ("start_timeout", ["first", "second"])
    assert document["errors"] == [{"stage": "shutdown", "message": "third"}]
    assert document["result"]["verdict"] == "inconclusive"
    assert check(document, store.report.parent) == []


def test_accelerator_can_come_late(store: ReportStore) -> None:
    recorder = start(store)
    facts = recorder.document["environment"]["accelerator"] | {"name": "NVIDIA H200"}
    recorder.accelerator(facts)
    assert recorder.finish("complete")["environment"]["accelerator"]["name"] == "NVIDIA H200"


def test_mistakes_of_the_caller_are_refused(store: ReportStore) -> None:
    recorder = start(store)
    probe = recorder.document["plan"]["probes"][1]
    cold = make_answer(NATIVE, probe, "cold", 0)
    recorder.answer(NATIVE, make_answer(NATIVE, probe, "reuse", 1))
    wrong = [
        (NATIVE, cold),  # after the reuse that it precedes
        (NATIVE, make_answer(NATIVE, probe, "reuse", 1)),  # a second time
        (NATIVE, make_answer(NATIVE, probe, "reuse", 4)),  # not planned
        (NATIVE, make_answer(NATIVE, probe, "control", 0)),
        (CONTROL, cold),
        ("lmcache_connector_v1", cold),
        (NATIVE, cold | {"probe": "other"}),
        (NATIVE, cold | {"latency": 1}),
        (NATIVE, {key: value for key, value in cold.items() if key != "doubts"}),
    ]
    for arm, answer in wrong:
        with pytest.raises(ValueError, match=r".+"):
            recorder.answer(arm, answer)
    assert len(recorder.document["arms"][1]["answers"]) == 1


def test_later_changes_of_the_callers_objects_do_not_reach_the_report(store: ReportStore) -> None:
    recorder = start(store)
    answer = make_answer(CONTROL, recorder.document["plan"]["probes"][0], "control", 0)
    facts = effective(CONTROL)
    recorder.arm_state(CONTROL, "running", effective=facts)
    recorder.answer(CONTROL, answer)
    answer["generated_token_ids"].append(1)
    facts["prefix_caching"] = True
    assert len(recorder.document["arms"][0]["answers"][0]["generated_token_ids"]) == 16
    assert recorder.document["arms"][0]["effective"]["prefix_caching"] is False

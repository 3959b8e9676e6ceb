"""Whole runs on the real engine: a right verdict for caching that works, and for caching that does not."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from .running import CPU_SMOKE, SMALL, Ended, Running

pytestmark = pytest.mark.engine

NATIVE = "native_prefix_caching"


@pytest.fixture(scope="module")
def smoke(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Ended]]:
    """One run of the smoke suite as the README has it: control and native prefix caching."""
    with Running(smollm2, tmp_path_factory.mktemp("smoke") / "run", CPU_SMOKE) as run:
        yield run, run.end()


def test_native_prefix_caching_passes_the_smoke_suite(smoke):
    _, ended = smoke
    document = ended.document
    assert ended.status == 0, ended.errors
    assert document["state"] == "complete"
    assert document["errors"] == []
    assert document["result"] == {
        "verdict": "pass",
        "reuse_tested": True,
        "exit_status": 0,
        "generations": {"planned": 24, "completed": 24},
    }
    assert ended.reasons == []
    assert [arm["state"] for arm in document["arms"]] == ["complete", "complete"]


def test_nothing_of_a_finished_run_is_running(smoke):
    run, _ = smoke
    run.assert_nothing_left()


def test_every_reuse_hit_locally_and_nothing_else_hit(smoke):
    _, ended = smoke
    hits = {}
    for arm in ended.document["arms"]:
        for answer in arm["answers"]:
            assert answer["cached_tokens"] == answer["cached_tokens_local"]
            assert answer["cached_tokens_external"] == 0
            hits.setdefault((answer["role"], answer["probe"].rpartition("-")[0]), set()).add(answer["cached_tokens"])
    # All whole blocks of 16 but the last, which holds the token that is computed anew.
    assert hits.pop(("reuse", "chat-511")) == {496}
    assert hits.pop(("reuse", "chat-512")) == {496}
    assert hits.pop(("reuse", "chat-513")) == {512}
    assert set().union(*hits.values()) == {0}


def test_an_engine_gives_as_many_ids_as_asked_and_says_what_it_was_given(smoke):
    _, ended = smoke
    prompts = {probe["id"]: probe["prompt_sha256"] for probe in ended.document["plan"]["probes"]}
    for arm in ended.document["arms"]:
        for answer in arm["answers"]:
            assert len(answer["generated_token_ids"]) == 16
            assert answer["finish_reason"] == "length"
            assert answer["submitted_sha256"] == prompts[answer["probe"]]


def test_the_engines_say_what_they_were(smoke):
    _, ended = smoke
    for arm in ended.document["arms"]:
        effective = arm["effective"]
        assert effective["device"] == "cpu"
        assert effective["attention_backends"] == ["CPU_ATTN"]
        assert effective["connector"] is None
        assert effective["prefix_caching"] is (arm["name"] == NATIVE)
        assert effective["sampling"]["temperature"] == 0.0
        assert effective["variables"]["PYTHONHASHSEED"] == "0"
    control, native = (arm["effective"] for arm in ended.document["arms"])
    assert {key for key in control if control[key] != native[key]} == {"prefix_caching"}


def test_the_evidence_of_both_engines_is_kept(smoke):
    _, ended = smoke
    names = {file["path"] for file in ended.document["evidence"]["files"]}
    assert names == {
        "plan.json",
        *(f"{arm}.{kind}" for arm in ("control", NATIVE) for kind in ("log", "engine-config.json")),
    }
    for arm in ended.document["arms"]:
        log = ended.log(arm["name"])
        assert "Initializing a V1 LLM engine (v0.28.0)" in log
        assert "cpu_model_runner" in log


def test_progress_goes_to_stderr_and_the_verdict_to_stdout(smoke):
    _, ended = smoke
    assert f"{NATIVE}: chat-513-r3 answered, cached 0, 512, 512, 512 of 513" in ended.errors
    assert "PASS" in ended.output
    assert str(ended.report) in ended.output


def test_a_control_alone_passes_as_no_more_than_that(smollm2, tmp_path):
    arguments = (*SMALL, "--no-native-prefix-caching", "--reuse-counts", "1")
    with Running(smollm2, tmp_path / "run", arguments) as run:
        ended = run.end()
        run.assert_nothing_left()
    assert ended.status == 0, ended.errors
    assert ended.reasons == []
    result = ended.document["result"]
    assert result["verdict"] == "control_only_pass"
    assert result["reuse_tested"] is False
    assert result["generations"] == {"planned": 3, "completed": 3}
    assert [arm["name"] for arm in ended.document["arms"]] == ["control"]


@pytest.fixture(scope="module")
def faulty(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    """A run on an engine whose reuse is wrong: for 63 tokens at once, for 64 since the second reuse, for 65 never."""
    folder = tmp_path_factory.mktemp("faulty")
    installed = folder / "plugin" / "kv_fault-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: kv-fault\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[vllm.general_plugins]\nkv_fault = fault:register\n")
    variables = {
        "PYTHONPATH": f"{installed.parent}:{Path(__file__).parent}:{Path(__file__).parents[2]}",
        "KV_FAULT": "63:1,64:2",
    }
    with Running(smollm2, folder / "run", (*SMALL, "--reuse-counts", "2"), variables) as run:
        yield run.end()


def _probe(ended: Ended, name: str) -> dict:
    (target,) = ended.document["targets"]
    return next(probe for probe in target["probes"] if probe["id"] == name)


def _answers(ended: Ended, name: str) -> dict[tuple[str, int], list[int]]:
    return {
        (answer["role"], answer["ordinal"]): answer["generated_token_ids"]
        for arm in ended.document["arms"]
        for answer in arm["answers"]
        if answer["probe"] == name
    }


def _first_difference(one: list[int], other: list[int]) -> int:
    return next(place for place, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)


def test_wrong_reuse_fails_the_run(faulty):
    assert faulty.status == 1, faulty.errors
    assert faulty.reasons == []
    assert faulty.document["state"] == "complete"
    assert faulty.document["result"]["verdict"] == "fail"
    assert faulty.document["result"]["exit_status"] == 1
    assert faulty.document["control"]["verdict"] == "pass"
    assert "FAIL" in faulty.output


def test_every_counter_tells_of_a_clean_hit_all_the_same(faulty):
    answers = faulty.arm(NATIVE)["answers"]
    assert {answer["cached_tokens"] for answer in answers if answer["role"] == "reuse"} == {48, 64}
    assert {answer["cached_tokens"] for answer in answers if answer["role"] == "cold"} == {0}
    assert {answer["finish_reason"] for answer in answers} == {"length"}
    assert [answer["error"] for answer in answers if answer["error"]] == []


def test_wrong_reuse_is_found_with_the_index_of_its_first_difference(faulty):
    probe, answers = _probe(faulty, "chat-63-r2"), _answers(faulty, "chat-63-r2")
    assert probe["verdict"] == "fail"
    assert answers["cold", 0] == answers["control", 0]
    cold, *reuses = probe["comparisons"]
    assert cold["first_difference_from_control"] is None
    for reuse in reuses:
        expected = _first_difference(answers["reuse", reuse["ordinal"]], answers["control", 0])
        assert reuse["first_difference_from_control"] == reuse["first_difference_from_cold"] == expected


def test_reuse_that_is_wrong_only_the_second_time_is_found(faulty):
    probe, answers = _probe(faulty, "chat-64-r2"), _answers(faulty, "chat-64-r2")
    assert probe["verdict"] == "fail"
    _, first, second = probe["comparisons"]
    assert answers["reuse", 1] == answers["cold", 0] == answers["control", 0]
    assert first["first_difference_from_control"] is first["first_difference_from_cold"] is None
    assert second["first_difference_from_control"] == _first_difference(answers["reuse", 2], answers["control", 0])


def test_the_probe_whose_reuse_is_right_passes_beside_them(faulty):
    assert _probe(faulty, "chat-65-r2")["verdict"] == "pass"


def test_the_report_of_a_failed_run_is_ordinary_json(faulty):
    assert json.loads(faulty.report.read_text())["claim_eligible"] is False

"""The whole LMCache path on a real engine: lookup, storage, tags, settings and log, with and without faults."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvverify.engine.session import ArmSession, Limits
from kvverify.engine.wire import Generate
from kvverify.report.rederive import check
from kvverify.target.arm import EngineSettings
from kvverify.target.lmcache import lmcache_arm
from kvverify.target.lmcache_settings import resolve_settings
from kvverify.target.variables import arm_variables

pytestmark = pytest.mark.engine

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
UNRECORDED = ROOT / "fixtures" / "unrecorded.json"
CONFIG = ROOT / "fixtures" / "lmcache-local-cpu.yaml"

FAULTS = {
    "chat-511-r1": "zero_layer",
    "chat-512-r1": "shift_slots",
    "chat-513-r1": "swap_k_and_v",
    "raw-512-r1": "another_request",
    "chat-512-r3": "another_request@2",
    "raw-513-r1": "restore_nothing",
}
"""The fault that each of these probes meets whenever a chunk is restored for it; the others meet none."""


@pytest.fixture(scope="module")
def acceptance(run_lmcache: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A fault-free acceptance run against a fixture that expects nothing yet."""
    return run_lmcache(
        tmp_path_factory.mktemp("acceptance"),
        *("--suite", "acceptance", "--compare-native", "--fixture", UNRECORDED),
    )


@pytest.fixture(scope="module")
def faulty(run_lmcache: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One run in which six probes of twelve meet a fault each."""
    return run_lmcache(
        tmp_path_factory.mktemp("faulty"),
        *("--suite", "smoke", "--prompt-format", "both", "--max-model-len", 2048),
        faults=",".join(f"{probe}={fault}" for probe, fault in FAULTS.items()),
    )


def test_a_sound_transfer_passes_the_acceptance_with_the_published_hits(acceptance: Any) -> None:
    assert acceptance.status == 0, acceptance.errors
    document = acceptance.document
    assert check(document, acceptance.report.parent) == []
    assert document["result"]["generations"] == {"planned": 24, "completed": 24}
    hits = {
        name: {probe: [one["cached_tokens"] for one in arm["answers"] if one["probe"] == probe] for probe in probes}
        for arm in document["arms"]
        if (name := arm["name"]) != "control"
        for probes in [["fixture", "chat-511", "chat-512", "chat-513"]]
    }
    assert hits == {
        "lmcache_connector_v1": {
            "fixture": [0, 1280, 1280, 1280],
            "chat-511": [0, 256],
            "chat-512": [0, 511],
            "chat-513": [0, 512],
        },
        "native_prefix_caching": {
            "fixture": [0, 1488, 1488, 1488],
            "chat-511": [0, 496],
            "chat-512": [0, 496],
            "chat-513": [0, 512],
        },
    }


def test_a_fixture_without_expectations_is_no_match(acceptance: Any) -> None:
    section = acceptance.document["acceptance"]
    assert section["matched"] is None
    assert section["mismatches"] == []


def test_the_report_says_what_lmcache_ran_with(acceptance: Any) -> None:
    arm = next(one for one in acceptance.document["arms"] if one["name"] == "lmcache_connector_v1")
    connector, transfer = arm["effective"]["connector"], arm["effective"]["kv_transfer"]
    assert connector["class"] == "LMCacheConnectorV1"
    assert connector["module"] == "vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector"
    assert connector["lmcache"]["init_failed"] is False
    assert connector["lmcache"]["settings"]["chunk_size"] == {"value": 256, "source": "file"}
    assert connector["lmcache"]["settings"]["enable_blending"]["source"] == "default"
    assert transfer["kv_load_failure_policy"] == "fail"
    assert arm["effective"]["prefix_caching"] is False
    assert acceptance.document["environment"]["variables"]["LMCACHE_CPU_STANDIN"] == "none"
    assert acceptance.document["environment"]["packages"]["lmcache"]["version"]


def test_every_reuse_is_backed_by_the_connectors_log(acceptance: Any) -> None:
    arm = next(one for one in acceptance.document["arms"] if one["name"] == "lmcache_connector_v1")
    for answer in arm["answers"]:
        log = answer["connector_log"]
        assert log["retrieved_tokens"] == log["required_tokens"]
        assert (log["retrieved_tokens"] >= answer["cached_tokens_external"] > 0) == (answer["role"] == "reuse")
        assert answer["doubts"] == []
    others = [one for one in acceptance.document["arms"] if one["name"] != arm["name"]]
    assert all(answer["connector_log"] is None for one in others for answer in one["answers"])


def test_a_recorded_fixture_expects_what_was_found(acceptance: Any, tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    for command in (["record", acceptance.report, "-o", file], ["check", file]):
        done = subprocess.run([sys.executable, "-m", "kvverify", "fixture", *map(str, command)], check=False)
        assert done.returncode == 0
    expected = json.loads(file.read_text())["expected"]
    assert {name: len(probes) for name, probes in expected.items()} == {
        "lmcache_connector_v1": 4,
        "native_prefix_caching": 4,
    }
    assert expected["lmcache_connector_v1"]["fixture"] == {
        "verdict": "pass",
        "cached_tokens": [0, 1280, 1280, 1280],
        "first_differences": [None, None, None, None],
    }


def test_each_fault_is_caught_and_nothing_else_fails(faulty: Any) -> None:
    assert faulty.status == 1, faulty.errors
    assert check(faulty.document, faulty.report.parent) == []
    probes = faulty.target()
    assert {name for name, probe in probes.items() if probe["verdict"] == "fail"} == set(FAULTS)
    assert {probe["verdict"] for name, probe in probes.items() if name not in FAULTS} == {"pass"}


def test_a_connector_that_restores_nothing_finds_no_right_kv_lying_there(faulty: Any) -> None:
    """vLLM hands freed blocks to the next request, so that the cold answer's KV would still be there."""
    assert faulty.target()["raw-513-r1"]["verdict"] == "fail"


def test_cold_answers_are_right_and_only_reuses_differ(faulty: Any) -> None:
    for name in FAULTS:
        cold, *reuses = faulty.target()[name]["comparisons"]
        assert cold["first_difference_from_control"] is None
        assert reuses[-1]["first_difference_from_control"] is not None


def test_a_fault_that_begins_with_the_second_reuse_is_seen_there(faulty: Any) -> None:
    differences = [one["first_difference_from_control"] for one in faulty.target()["chat-512-r3"]["comparisons"]]
    assert differences[:2] == [None, None]
    assert None not in differences[2:]


def test_counters_and_log_are_clean_although_answers_are_wrong(faulty: Any) -> None:
    arm = next(one for one in faulty.document["arms"] if one["name"] == "lmcache_connector_v1")
    reuses = [one for one in arm["answers"] if one["role"] == "reuse" and one["probe"] in FAULTS]
    assert all(one["cached_tokens_external"] > 0 and one["doubts"] == [] and one["error"] is None for one in reuses)


@pytest.fixture(scope="module")
def session(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArmSession]:
    """An LMCache arm that a test asks directly."""
    sys.path.insert(0, str(HERE))
    from conftest import environment

    variables = arm_variables(environment("none"), "cpu")
    model = str(smollm2)
    settings = EngineSettings(model, model, "float16", 0, 2048, 16, 0.45, 16)
    arm = lmcache_arm(settings, CONFIG, resolve_settings(CONFIG, 256, variables))
    log = tmp_path_factory.mktemp("session") / "arm.log"
    with ArmSession("lmcache", log, variables | arm.variables, Limits(600, 300, 120)) as opened:
        opened.prepare(arm.engine_arguments(), settings.sampling(), clear_kv_memory=arm.clear_kv_memory)
        started = opened.start()
        assert arm.mismatches(started.effective) == []
        yield opened


def test_two_scopes_with_one_prompt_share_nothing(session: ArmSession) -> None:
    prompt = [(index * 7919 + 13) % 40000 + 100 for index in range(512)]

    def cached(request: str, scope: str, tag: str) -> int | None:
        extra = {"kv_transfer_params": {"lmcache.tag.scope": tag}}
        return session.ask(Generate(request, prompt, scope, extra)).cached_tokens

    assert cached("first.cold", "a", "a") == 0
    assert cached("first.reuse", "a", "a") == 511
    assert cached("second.cold", "b", "b") == 0
    assert cached("second.reuse", "b", "b") == 511
    # Why the scope travels as a tag: the connector does not heed the salt.
    assert cached("salt", "c", "a") == 511

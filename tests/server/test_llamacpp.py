"""llama.cpp's real server: ids in and out, and a recompute path that each request asks for."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvverify.server import http
from kvverify.server.document import judged

from .conftest import Run
from .wrong_server import Goes, Json, Proxy, in_front_of

FEW = ("--limit", "2", "--max-tokens", "32")


class IgnoresCachePrompt(Proxy):
    """Reuses what it has, whatever it is told."""

    def asked(self, body: Json) -> Json:
        return {**body, "cache_prompt": True}


class NeverReuses(Proxy):
    def asked(self, body: Json) -> Json:
        return {**body, "cache_prompt": False}


class HidesTimings(Proxy):
    """Has only ``tokens_cached``, which looks like a count of reused tokens and is none."""

    def answered(self, body: Json, answer: Json) -> Json:
        answer.pop("timings", None)
        return answer


class HidesIds(Proxy):
    def asked(self, body: Json) -> Json:
        return {**body, "return_tokens": False}


@pytest.fixture(scope="module")
def sound(llamacpp_url: str, tmp_path_factory: pytest.TempPathFactory) -> Json:
    """The report of one sound run, for the tests that only read it."""
    from click.testing import CliRunner

    from kvverify.cli import cli

    path = tmp_path_factory.mktemp("sound") / "report.json"
    CliRunner().invoke(cli, ["server", "--base-url", llamacpp_url, *FEW, "--report", str(path)], standalone_mode=False)
    report: Json = json.loads(path.read_text())
    return report


def test_every_conversation_is_valid_and_compared_by_id(sound: Json) -> None:
    """Whether there is a difference is the weights' business, not this test's: 4-bit ones often have one."""
    assert sound["servers"][0]["kind"] == "llamacpp"
    assert sound["servers"][0]["settings"] == {"slots": 1, "context": 1024, "weights": "Q4_1"}
    assert sound["plan"]["mode"] == "llamacpp"
    for one in sound["conversations"]:
        assert one["reasons"] == []
        assert (one["comparison"], one["turn2_from"]) == ("token_ids", "ids")
    assert sound["result"]["verdict"] in ("pass", "fail")
    assert sound["result"]["findings"] == []


def test_turn_2_continues_the_ids_of_turn_1_and_hits_them(sound: Json) -> None:
    turn1, cached, recomputed, *_ = sound["conversations"][0]["answers"]
    ids = [*turn1["prompt_token_ids"], *turn1["generated_token_ids"]]
    assert cached["prompt_token_ids"][: len(ids)] == ids
    assert cached["prompt_token_ids"] == recomputed["prompt_token_ids"]
    assert cached["prompt_tokens"] == len(cached["prompt_token_ids"])
    assert len(ids) - 1 <= cached["cached_tokens"] < cached["prompt_tokens"]
    assert (turn1["cached_tokens"], recomputed["cached_tokens"]) == (0, 0)


def test_its_own_metrics_agree_with_what_was_asked(sound: Json) -> None:
    load = sound["servers"][0]["load"]
    made = sum(answer["completion_tokens"] for one in sound["conversations"] for answer in one["answers"])
    assert load["generated_tokens_after"] - load["generated_tokens_before"] == made
    busier = {**load, "generated_tokens_after": load["generated_tokens_after"] + 1}
    changed = {**sound, "servers": [{**sound["servers"][0], "load": busier}]}
    assert judged(changed)["result"]["findings"] == ["other_traffic"]


@pytest.mark.parametrize(
    ("proxy", "reason"),
    [
        (IgnoresCachePrompt(), "recomputed_had_hit"),
        (NeverReuses(), "cached_without_hit"),
        (HidesTimings(), "cached_hits_unknown"),
    ],
)
def test_a_server_that_does_not_do_as_told_proves_nothing(
    run: Run, llamacpp_url: str, proxy: Proxy, reason: str
) -> None:
    with in_front_of(llamacpp_url, proxy) as url:
        status, report, said = run("--base-url", url, "--limit", "1", "--max-tokens", "32", key=False)
    assert status == 2
    assert reason in report["conversations"][0]["reasons"]
    assert "INCONCLUSIVE" in said


def test_without_ids_texts_are_compared(run: Run, llamacpp_url: str) -> None:
    with in_front_of(llamacpp_url, HidesIds()) as url:
        _, report, said = run("--base-url", url, "--limit", "1", "--max-tokens", "32", key=False)
    (one,) = report["conversations"]
    assert (one["comparison"], one["turn2_from"], one["reasons"]) == ("text", "messages", [])
    assert "token ids 0, text 1" in said


def test_a_users_own_conversations_are_asked(run: Run, llamacpp_url: str, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You like long answers."},
        {"role": "user", "content": "Tell me all about the river Nile."},
    ]
    path.write_text(json.dumps({"id": "nile", "messages": messages, "followup": "And the Amazon?"}))
    arguments = ("--base-url", llamacpp_url, "--conversations", str(path), "--max-tokens", "32", "--hide-text")
    _, report, said = run(*arguments, key=False)
    assert [one["id"] for one in report["conversations"]] == ["nile"]
    assert report["conversations"][0]["reasons"] == []
    assert report["request"]["conversations"] == "own.jsonl"
    assert "Nile" not in json.dumps(report)
    assert "nile" not in said[said.index("Result block") :]


def test_a_server_that_is_gone_is_not_asked_on(run: Run, llamacpp_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_RETRY_AFTER", (0.01, 0.01))
    with in_front_of(llamacpp_url, Goes()) as url:
        status, report, _ = run("--base-url", url, "--max-tokens", "8", key=False)
    assert status == 2
    (one,) = report["conversations"]
    assert [answer["error"] is None for answer in one["answers"]] == [True, False]
    assert one["answers"][1]["attempts"] == 3
    assert report["result"]["requests"]["retried"] == 1
    assert report["errors"][0]["message"].startswith("gave up at conversation 1")

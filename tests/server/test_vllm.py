"""vLLM's real server, and servers in front of it that do one thing wrong: each case ends in the right verdict."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from kvverify.errors import KvverifyError, PreflightError
from kvverify.server.conversations import builtin

from .conftest import KEY, Run, VllmServer
from .wrong_server import (
    Calls,
    ChangesEverySecond,
    ChangesId,
    ClaimsWholePrompt,
    ClosesMidAnswer,
    CutsPrompt,
    CutsShort,
    DropsSalts,
    HidesIds,
    IsNotJson,
    Json,
    Proxy,
    Refuses,
    Stalls,
    TellsCount,
    TellsNoCounts,
    in_front_of,
)

pytestmark = pytest.mark.engine

ONE = ("--limit", "1", "--max-tokens", "24", "--hit-tolerance", "16")
Servers = tuple[VllmServer, VllmServer, VllmServer]


@pytest.fixture
def on(vllm_servers: Servers) -> str:
    """The server whose cache is on."""
    return vllm_servers[0].url


@pytest.fixture
def off(vllm_servers: Servers) -> str:
    """The server whose cache is off."""
    return vllm_servers[1].url


@pytest.fixture
def silent(vllm_servers: Servers) -> str:
    """The server that does not report cached tokens."""
    return vllm_servers[2].url


def reasons(report: Json) -> list[str]:
    (one,) = report["conversations"]
    found: list[str] = one["reasons"]
    return found


class HidesIdsAndChangesText(HidesIds):
    def answered(self, body: Json, answer: Json) -> Json:
        if answer["usage"]["prompt_tokens_details"]["cached_tokens"]:
            choice = answer["choices"][0]
            choice["message"]["content"] = f"{choice['message']['content'][:5]}!{choice['message']['content'][6:]}"
        return answer


def test_one_server_with_salts(run: Run, on: str) -> None:
    status, report, said = run("--base-url", on, "--limit", "2", "--max-tokens", "24", "--hit-tolerance", "16")
    assert status == 0, said
    assert report["plan"]["mode"] == "one-server"
    server = report["servers"][0]
    assert (server["kind"], server["version"], server["model"]) == ("vllm", "0.28.0", "smollm2")
    assert server["settings"]["enable_prefix_caching"] == "True"
    assert server["settings"]["block_size"] == "16"
    assert report["result"]["findings"] == []
    assert report["result"]["requests"] == {"planned": 12, "answered": 12, "failed": 0, "retried": 0}
    for one in report["conversations"]:
        turn1, cached, recomputed, *_ = one["answers"]
        ids = [*turn1["prompt_token_ids"], *turn1["generated_token_ids"]]
        assert cached["prompt_token_ids"][: len(ids)] == ids
        assert len(ids) - 16 <= cached["cached_tokens"] <= len(ids)
        assert recomputed["cached_tokens"] == turn1["cached_tokens"] == 0
        assert (one["comparison"], one["turn2_from"]) == ("token_ids", "ids")


def test_the_result_block_can_be_shared(run: Run, on: str) -> None:
    _, report, said = run("--base-url", on, *ONE)
    block = said[said.index("Result block") :]
    assert "127.0.0.1" not in block
    assert report["plan"]["conversations"][0]["id"] not in block
    assert "valid 1, differing 0" in block


def test_two_servers(run: Run, on: str, off: str) -> None:
    status, report, said = run("--base-url", on, "--nocache-url", off, *ONE)
    assert status == 0, said
    assert report["plan"]["mode"] == "two-servers"
    assert [server["settings"]["enable_prefix_caching"] for server in report["servers"]] == ["True", "False"]
    assert [answer["server"] for answer in report["conversations"][0]["answers"][:3]] == ["cache", "cache", "recompute"]
    assert report["result"]["findings"] == []


def test_a_server_that_drops_salts(run: Run, on: str) -> None:
    with in_front_of(on, DropsSalts()) as url:
        status, report, said = run("--base-url", url, *ONE)
    assert status == 2
    assert "recomputed_had_hit" in reasons(report)
    assert "does not honour cache_salt" in " ".join(said.split())


def test_a_server_that_reports_no_cached_tokens(run: Run, silent: str) -> None:
    status, report, said = run("--base-url", silent, *ONE)
    assert status == 2
    assert reasons(report) == ["cached_hits_unknown", "recomputed_hits_unknown"]
    assert "--enable-prompt-tokens-details" in said


def test_unknown_counts_can_be_excused_with_two_servers_only(run: Run, silent: str, off: str) -> None:
    status, report, said = run("--base-url", silent, "--nocache-url", off, *ONE, "--skip-hit-check")
    assert status == 0, said
    assert report["result"]["verdict"] == "pass_hits_unchecked"
    assert "HITS UNCHECKED" in said
    with pytest.raises(KvverifyError, match="--skip-hit-check"):
        run("--base-url", silent, *ONE, "--skip-hit-check")


def test_both_caches_off(run: Run, off: str) -> None:
    with in_front_of(off, Proxy()) as url:
        status, report, said = run("--base-url", url, "--nocache-url", off, *ONE)
    assert status == 2
    assert reasons(report) == ["cached_without_hit"]
    assert "--no-enable-prefix-caching" in said


@pytest.mark.parametrize("excused", [(), ("--skip-hit-check",)])
def test_two_urls_of_one_server(run: Run, on: str, excused: tuple[str, ...]) -> None:
    with in_front_of(on, Proxy()) as url:
        status, report, said = run("--base-url", on, "--nocache-url", url, *ONE, *excused)
    assert status == 2
    assert "recomputed_had_hit" in reasons(report)
    assert report["result"]["findings"] == ["one_server"]
    assert "both URLs lead to one server" in said


def test_two_urls_of_one_server_that_hides_its_hits(run: Run, on: str) -> None:
    """Its own counter of tokens still tells."""
    with in_front_of(on, TellsNoCounts()) as first, in_front_of(on, TellsNoCounts()) as second:
        status, report, _ = run("--base-url", first, "--nocache-url", second, *ONE, "--skip-hit-check")
    assert reasons(report) == []
    assert report["result"]["findings"] == ["one_server"]
    assert (status, report["result"]["verdict"]) == (2, "inconclusive")


@pytest.mark.parametrize(
    ("proxy", "reason"),
    [
        (TellsNoCounts(), "cached_hits_unknown"),
        (TellsCount(None), "cached_hits_unknown"),
        (TellsCount("64"), "cached_hits_unknown"),
        (TellsCount(-1), "cached_hits_unknown"),
        (TellsCount(0), "cached_without_hit"),
        (TellsCount(7), "recomputed_had_hit"),
        (TellsCount(10_000), "cached_hits_impossible"),
        (ClaimsWholePrompt(), "cached_hits_impossible"),
        (ChangesEverySecond(), "turn1_not_repeated"),
        (CutsShort(), "turn1_not_whole"),
    ],
)
def test_a_server_that_is_wrong_proves_nothing(run: Run, on: str, proxy: Proxy, reason: str) -> None:
    with in_front_of(on, proxy) as url:
        status, report, _ = run("--base-url", url, *ONE)
    assert status == 2
    assert reason in reasons(report)


def test_one_changed_id_is_found(run: Run, on: str) -> None:
    with in_front_of(on, ChangesId()) as url:
        status, report, said = run("--base-url", url, *ONE)
    assert status == 1
    (one,) = report["conversations"]
    assert (one["verdict"], one["first_difference"]) == ("fail", {"unit": "token", "index": ChangesId.index})
    assert "FAIL: the prompt cache changed the answer in 1 of 1 valid conversation" in said


def test_without_ids_texts_are_compared(run: Run, on: str) -> None:
    with in_front_of(on, HidesIds()) as url:
        status, report, _ = run("--base-url", url, *ONE)
    (one,) = report["conversations"]
    assert (status, one["comparison"], one["turn2_from"], one["reasons"]) == (0, "text", "messages", [])


@pytest.mark.parametrize(("hidden", "index"), [((), 5), (("--hide-text",), None)])
def test_one_changed_character_is_found(run: Run, on: str, hidden: tuple[str, ...], index: int | None) -> None:
    with in_front_of(on, HidesIdsAndChangesText()) as url:
        status, report, _ = run("--base-url", url, *ONE, *hidden)
    (one,) = report["conversations"]
    assert (status, one["verdict"]) == (1, "fail")
    assert one["first_difference"] == {"unit": "character", "index": index}


def test_hidden_texts_are_nowhere(run: Run, on: str) -> None:
    with in_front_of(on, Refuses(400, after=3)) as url:
        status, report, said = run("--base-url", url, *ONE, "--hide-text")
    assert status == 2
    first = builtin()[0]
    for private in (first.messages[0].content, first.followup):
        assert private[:20] not in json.dumps(report) + said
    assert all(answer["text"] is None for answer in report["conversations"][0]["answers"])
    assert report["conversations"][0]["answers"][0]["text_sha256"]
    assert report["conversations"][0]["answers"][2]["error"] == "HTTP 400"


@pytest.mark.parametrize(
    ("proxy", "error"),
    [
        (Refuses(429), "HTTP 429: no: Bearer [hidden] asked"),
        (Refuses(500), "HTTP 500"),
        (Refuses(503, after=2), "HTTP 503"),
        (Refuses(302), "HTTP 302"),
        (ClosesMidAnswer(), "the connection broke"),
        (Stalls(drips=False), "no answer within 2 s"),
        (Stalls(drips=True), "no whole answer within 2 s"),
        (IsNotJson(), "the answer is not JSON"),
        (CutsPrompt(), "the server processed another prompt"),
    ],
)
def test_a_failed_request_is_told_and_never_sent_twice(run: Run, on: str, proxy: Proxy, error: str) -> None:
    timeout = ("--timeout", "2") if isinstance(proxy, Stalls) else ()
    with in_front_of(on, proxy) as url:
        status, report, said = run("--base-url", url, *ONE, *timeout)
    assert status == 2
    answer = report["conversations"][0]["answers"][-1]
    assert answer["error"].startswith(error)
    assert answer["attempts"] == 1
    assert report["result"]["requests"]["failed"] == 1
    assert "requests failed" in said


def test_a_run_gives_up_on_a_server_that_answers_nothing(run: Run, on: str) -> None:
    with in_front_of(on, Refuses(500)) as url:
        status, report, _ = run("--base-url", url, "--max-tokens", "8")
    assert status == 2
    assert len(report["conversations"]) == 3
    assert report["errors"][0]["stage"] == "requests"


def test_others_requests_are_noticed(run: Run, on: str) -> None:
    def ask() -> None:
        body = {"model": "smollm2", "prompt": "Hello", "max_tokens": 2}
        httpx.post(f"{on}/v1/completions", json=body, headers={"Authorization": f"Bearer {KEY}"}, timeout=60)

    with in_front_of(on, Calls(ask)) as url:
        _, report, said = run("--base-url", url, *ONE)
    assert report["result"]["findings"] == ["other_traffic"]
    assert "also working for others" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_valid_report(run: Run, on: str, number: int) -> None:
    with in_front_of(on, Calls(after(3, lambda: os.kill(os.getpid(), number)))) as url:
        status, report, said = run("--base-url", url, "--max-tokens", "24")
    assert (status, report["state"]) == (2, "interrupted")
    assert len(report["conversations"][0]["answers"]) == 2
    assert "was interrupted after 1 of 24 conversations" in said


def after(number: int, function: Callable[[], None]) -> Callable[[], None]:
    """Call ``function`` at the call of that number alone."""
    left = [number]

    def call() -> None:
        left[0] -= 1
        if left[0] == 0:
            function()

    return call


def test_a_missing_key_is_told_before_anything_is_asked(run: Run, on: str, tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="--api-key-env"):
        run("--base-url", on, *ONE, key=False)
    assert list(tmp_path.iterdir()) == []


def test_a_kind_that_is_not_known_is_asked_for_its_text(run: Run, on: str) -> None:
    """As any OpenAI-compatible server: vLLM sends its ids only to those who ask for them."""
    status, report, _ = run("--base-url", on, "--kind", "openai", *ONE)
    (one,) = report["conversations"]
    assert (status, one["comparison"], one["turn2_from"]) == (0, "text", "messages")

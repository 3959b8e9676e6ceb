"""A server check's report: what is derived from its answers, what makes it unsound, and what it says to a person."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvverify.errors import ReportError
from kvverify.families import SERVER_CHECK, check, render
from kvverify.server.advice import explain, explain_finding
from kvverify.server.conversations import builtin
from kvverify.server.document import SCHEMA, judged, text_sha256
from kvverify.server.facts import ORDER
from kvverify.server.options import conversations_sha256
from kvverify.server.reasons import REASONS

Json = dict[str, Any]
TURN1, TURN2 = list(range(40)), list(range(100))
ANSWER1, ANSWER2 = list(range(200, 248)), [7, 8, 9]


def answer(role: str, repeat: int, server: str = "cache", *, hide: bool = False) -> Json:
    generated = ANSWER1 if role == "turn1" else ANSWER2
    said = f"said in {role.replace('cached', 'turn 2').replace('recomputed', 'turn 2')}"
    return {
        "role": role,
        "repeat": repeat,
        "server": server,
        "prompt_tokens": 40 if role == "turn1" else 100,
        "prompt_token_ids": TURN1 if role == "turn1" else TURN2,
        "generated_token_ids": [*generated],
        "text": None if hide else said,
        "text_sha256": text_sha256(said),
        "completion_tokens": len(generated),
        "finish_reason": "length" if role == "turn1" else "stop",
        "cached_tokens": 80 if role == "cached" else 0,
        "attempts": 1,
        "error": None,
    }


def document(mode: str = "one-server", *, hide: bool = False) -> Json:
    """Make a sound report of two conversations that pass."""
    asked = builtin()[:2]
    two = mode == "two-servers"
    servers = [
        {
            "name": name,
            "url": f"http://127.0.0.1:{port}",
            "kind": "vllm",
            "version": "0.28.0",
            "model": "/models/some|model",
            "settings": {"block_size": "16"},
            "load": {"running_before": 0, "generated_tokens_before": 5, "generated_tokens_after": 5 + tokens},
        }
        for name, port, tokens in (("cache", 1, 2 * (96 + 6 + (0 if two else 6))), ("recompute", 2, 12))
    ]
    return judged(
        {
            "schema": SCHEMA,
            "claim_eligible": False,
            "tool": {"name": "kvverify", "version": "0.1.0"},
            "run_id": "0123456789abcdef",
            "created_at": "2026-11-29T12:00:00+00:00",
            "state": "complete",
            "request": {
                "base_url": "http://127.0.0.1:1",
                "nocache_url": "http://127.0.0.1:2" if two else None,
                "mode": mode,
                "kind": None,
                "model": None,
                "conversations": "built-in",
                "limit": 2,
                "hide_text": hide,
                "api_key_env": None,
                "timeout": 300.0,
            },
            "servers": servers[: 2 if two else 1],
            "plan": {
                "mode": mode,
                "max_tokens": 48,
                "hit_tolerance": 32,
                "skip_hit_check": False,
                "min_valid": 0.8,
                "temperature": 0,
                "seed": 0,
                "conversations_sha256": conversations_sha256(asked),
                "conversations": [
                    {
                        "id": one.id,
                        "sha256": one.sha256,
                        "messages": None if hide else [message.to_json() for message in one.messages],
                        "followup": None if hide else one.followup,
                    }
                    for one in asked
                ],
            },
            "conversations": [
                {
                    "id": one.id,
                    "turn2_from": "ids",
                    "thinking": False,
                    "answers": [
                        answer(*place, "recompute" if two and place[0] == "recomputed" else "cache", hide=hide)
                        for place in ORDER
                    ],
                }
                for one in asked
            ],
            "result": {},
            "errors": [],
        }
    )


def failing() -> Json:
    report = document()
    for place in (2, 5):
        report["conversations"][1]["answers"][place]["generated_token_ids"] = [7, 8, 10]
    return judged(report)


def test_the_two_names_of_the_schema_are_one() -> None:
    assert SERVER_CHECK == SCHEMA


@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize("mode", ["one-server", "two-servers"])
def test_a_sound_report_passes(mode: str, *, hide: bool) -> None:
    report = document(mode, hide=hide)
    assert check(report, Path()) == []
    assert report["result"]["verdict"] == "pass"
    assert report["result"]["findings"] == []


def test_a_difference_is_derived_with_its_place() -> None:
    report = failing()
    assert check(report, Path()) == []
    assert report["conversations"][1]["first_difference"] == {"unit": "token", "index": 2}
    assert (report["result"]["verdict"], report["result"]["exit_status"]) == ("fail", 1)


def edit(report: Json, path: list[str | int], value: Any) -> Json:
    changed = copy.deepcopy(report)
    inner: Any = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (["result", "verdict"], "pass", "result.verdict: says"),
        (["result", "exit_status"], 0, "result.exit_status"),
        (["result", "findings"], ["thinking"], "result.findings"),
        (["result", "conversations", "valid"], 1, "result.conversations"),
        (["conversations", 1, "verdict"], "pass", "conversations[1].verdict"),
        (["conversations", 1, "first_difference"], None, "conversations[1].first_difference"),
        (["conversations", 1, "first_difference", "index"], 1, "conversations[1].first_difference"),
        (["conversations", 1, "comparison"], "text", "conversations[1].comparison"),
        (["conversations", 0, "reasons"], ["cached_empty"], "conversations[0].reasons"),
        (["conversations", 0, "answers", 1, "cached_tokens"], None, "conversations[0].verdict"),
        (["conversations", 0, "answers", 1, "text"], "other", "text_sha256"),
        (["conversations", 0, "answers", 1, "server"], "recompute", "another server"),
        (["conversations", 0, "answers", 1, "role"], "recomputed", "order of the requests"),
        (["conversations", 0, "id"], "other", "not the planned ones"),
        (["plan", "conversations", 0, "followup"], "other", "sha256 says"),
        (["plan", "conversations", 0, "followup"], None, "request.hide_text"),
        (["plan", "conversations", 0, "sha256"], "0" * 64, "plan.conversations_sha256"),
        (["plan", "conversations", 1, "id"], "rain", "is there twice"),
        (["plan", "mode"], "two-servers", "servers:"),
        (["request", "hide_text"], True, "holds a text"),
        (["request", "api_key"], "x", "members that a report does not have"),
        (["conversations", 0, "answers", 0, "cached_tokens"], -1, "must be"),
        (["conversations", 0, "answers", 0, "prompt_tokens"], True, "of type"),
        (["conversations", 0, "answers", 0, "prompt_tokens"], 40.0, "of type"),
    ],
)
def test_what_does_not_follow_from_the_answers_is_named(path: list[str | int], value: Any, says: str) -> None:
    found = check(edit(failing(), path, value), Path())
    assert any(says in reason for reason in found), found


@given(st.data())
def test_no_edit_of_one_fact_turns_a_failure_into_a_sound_pass(data: st.DataObject) -> None:
    report = failing()
    path: list[str | int] = []
    inner: Any = report
    while isinstance(inner, dict | list) and inner:
        step = data.draw(st.sampled_from([*inner] if isinstance(inner, dict) else [*range(len(inner))]))
        path.append(step)
        inner = inner[step]
    value = data.draw(st.one_of(st.none(), st.booleans(), st.integers(0, 300), st.text(max_size=5), st.just("pass")))
    changed = edit(report, path, value)
    if changed != report and not check(changed, Path()):
        assert changed["result"]["verdict"] != "pass"


@pytest.mark.parametrize("value", [None, [], 3, "x", {}, {"schema": SCHEMA}])
def test_any_json_value_is_answered_with_reasons(value: object) -> None:
    assert check(value, Path())


def moved(report: Json, *tokens: int | None) -> Json:
    """Let the servers' counters have moved by ``tokens``."""
    for server, number in zip(report["servers"], tokens, strict=True):
        server["load"]["generated_tokens_after"] = None if number is None else 5 + number
    return judged(report)


@pytest.mark.parametrize(
    ("tokens", "findings"),
    [
        ((204, 12), []),
        ((None, None), []),
        ((216, 216), ["one_server"]),
        ((205, 12), ["other_traffic"]),
        ((204, 13), ["other_traffic"]),
        ((204, None), []),
    ],
)
def test_counters_tell_one_server_from_two_and_others_from_us(
    tokens: tuple[int | None, ...], findings: list[str]
) -> None:
    report = moved(document("two-servers"), *tokens)
    assert report["result"]["findings"] == findings
    assert report["result"]["verdict"] == ("inconclusive" if "one_server" in findings else "pass")


def test_requests_of_others_before_the_run_are_noticed() -> None:
    report = document()
    report["servers"][0]["load"]["running_before"] = 1
    assert judged(report)["result"]["findings"] == ["other_traffic"]


@pytest.mark.parametrize("state", ["running", "interrupted"])
def test_a_run_that_did_not_end_is_no_pass(state: str) -> None:
    assert judged({**document(), "state": state})["result"]["verdict"] == "inconclusive"


def test_a_failed_request_is_no_pass_whatever_share_is_valid() -> None:
    report = document()
    report["plan"]["min_valid"] = 0.1
    report["conversations"][1]["answers"][5].update(error="HTTP 500", generated_token_ids=None, text=None)
    assert judged(report)["result"]["verdict"] == "inconclusive"


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_the_summary_says_the_verdict_first_and_shares_only_counts(form: str) -> None:
    said = render(failing(), Path("report.json"), form)
    assert "FAIL: the prompt cache changed the answer in 1 of 2 valid conversations" in said.splitlines()[0]
    assert "token 2" in said
    block = said[said.index("Result block") :]
    for private in ("127.0.0.1", "/models/", "rain", "said in"):
        assert private not in block
    assert "some|model" in block
    assert "differing 1" in block


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_an_option_to_copy_is_never_broken(form: str) -> None:
    report = document()
    for one in report["conversations"]:
        for each in one["answers"]:
            each["cached_tokens"] = None
    said = render(judged(report), Path("report.json"), form)
    assert "vLLM with --enable-prompt-tokens-details" in " ".join(said.split())


def test_markdown_keeps_untrusted_text_in_its_place() -> None:
    report = document()
    report["servers"][0]["version"] = "1 | <b> @someone `"
    said = render(judged(report), Path("r.json"), "markdown")
    row = next(line for line in said.splitlines() if line.startswith("| cache server"))
    assert row.count("|") == 3
    assert "```\n" in said


def test_an_unsound_report_has_no_summary() -> None:
    with pytest.raises(ReportError, match="is not a sound report"):
        render(edit(failing(), ["result", "verdict"], "pass"), Path("report.json"), "text")


def test_every_code_is_explained_for_every_kind_and_mode() -> None:
    for code in REASONS:
        for kind in ("vllm", "llamacpp", "sglang", "openai"):
            for mode in ("llamacpp", "one-server", "two-servers"):
                assert REASONS[code] in explain(code, kind, mode)
                assert "None" not in explain(code, kind, mode)
    assert explain("of_another_version", "vllm", "one-server") == "of_another_version"
    assert explain_finding("of_another_version", "vllm") == "of_another_version"


def test_the_report_is_json() -> None:
    assert json.loads(json.dumps(document())) == document()


@pytest.mark.parametrize("command", ["validate", "summary"])
def test_reading_a_report_needs_no_http_library(command: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document()))
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "kvverify", command, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pass" in done.stdout.lower()
    assert "kvverify.server.document" in done.stderr
    assert "httpx" not in done.stderr

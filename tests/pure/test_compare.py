"""Two reports across an upgrade: what counts as a regression, and what cannot be compared."""

import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvverify import cli
from kvverify.report.compare import compare, render_comparison
from kvverify.report.document import Document, judged

from .acceptance_factory import CONTROL, LMCACHE, NATIVE, acceptance_report, answer_of, arm_of
from .report_factory import make_report

Change = Callable[[Document], object]


def run(*changes: Change) -> Document:
    """A run in which the native arm passes and LMCache fails, changed and judged."""
    return acceptance_report(lambda d: d.update(acceptance=None), *changes)


def edit(arm: str, probe: str, ordinal: int, **values: object) -> Change:
    return lambda d: answer_of(d, arm, probe, ordinal).update(values)


def differ(arm: str, probe: str, ordinal: int = 1) -> Change:
    def change(document: Document) -> None:
        answer_of(document, arm, probe, ordinal)["generated_token_ids"][5] += 1

    return change


def repair(document: Document) -> None:
    """LMCache answers exactly."""
    for answer in arm_of(document, LMCACHE)["answers"]:
        control = answer_of(document, CONTROL, answer["probe"], 0)
        answer["generated_token_ids"] = list(control["generated_token_ids"])


def test_a_report_and_itself_show_no_regression():
    found = compare(run(), run())
    assert found.exit_status == 0
    assert len(found.unchanged) == 8
    assert "lmcache_connector_v1, chat-511: fail" in found.unchanged
    assert "native_prefix_caching, chat-511: pass" in found.unchanged
    assert [title for title, _ in found.sections()] == ["Unchanged"]
    assert found.verdict.startswith("NO REGRESSION")


def test_a_probe_that_fails_now_is_a_regression():
    found = compare(run(), run(differ(NATIVE, "chat-512")))
    assert found.exit_status == 1
    assert found.newly_failing == ["native_prefix_caching, chat-512: pass, now fail"]
    assert found.verdict == "REGRESSION: 1 probes fail now that did not fail before"


def test_a_probe_that_passes_now_is_none():
    found = compare(run(), run(repair))
    assert found.exit_status == 0
    assert len(found.newly_passing) == 4
    assert "lmcache_connector_v1, fixture: fail, now pass" in found.newly_passing


def test_a_repair_does_not_make_up_for_a_regression():
    found = compare(run(), run(repair, differ(NATIVE, "chat-512")))
    assert found.exit_status == 1


def test_a_failure_after_an_inconclusive_probe_is_one_that_was_not_there_before():
    found = compare(run(edit(NATIVE, "chat-512", 1, cached_tokens=None)), run(differ(NATIVE, "chat-512")))
    assert found.exit_status == 1
    assert found.newly_failing == ["native_prefix_caching, chat-512: inconclusive, now fail"]


def test_a_regression_is_one_whatever_else_cannot_be_compared():
    found = compare(run(), run(differ(NATIVE, "chat-512"), edit(NATIVE, "chat-511", 1, cached_tokens=None)))
    assert found.exit_status == 1
    assert found.inconclusive == ["native_prefix_caching, chat-511: pass, now inconclusive"]


INCONCLUSIVE = {
    "hits unknown": edit(NATIVE, "chat-511", 1, cached_tokens=None),
    "no hit": edit(NATIVE, "chat-511", 1, cached_tokens=0, cached_tokens_local=0),
    "an error": edit(NATIVE, "chat-511", 1, error="x"),
    "no control": lambda d: arm_of(d, CONTROL)["answers"].clear(),
    "the arm failed after its answers": lambda d: arm_of(d, NATIVE).update(state="failed", errors=["x"]),
    "the arm did not end in time": lambda d: arm_of(d, NATIVE).update(limit="shutdown_timeout"),
    "the control's arm failed": lambda d: arm_of(d, CONTROL).update(state="failed"),
    "the arm is something else": lambda d: (arm_of(d, NATIVE)["effective"] or {}).update(prefix_caching=None),
    "the control is something else": lambda d: arm_of(d, CONTROL)["effective"].update(connector={"class": "x"}),
    "the arm is unknown": lambda d: arm_of(d, NATIVE).update(effective=None),
    "interrupted": lambda d: d.update(state="interrupted"),
    "still running": lambda d: d.update(state="running"),
    "the model changed": lambda d: d["identity"]["model"].update(unchanged_at_end=False),
    "the model was not looked at again": lambda d: d["identity"]["model"].update(unchanged_at_end=None),
    "an error outside the arms": lambda d: d["errors"].append({"stage": "identity", "message": "x"}),
}


@pytest.mark.parametrize("change", INCONCLUSIVE.values(), ids=INCONCLUSIVE)
def test_what_is_not_known_now_is_no_proof(change):
    for before in (run(), run(change)):
        found = compare(before, run(change))
        assert found.exit_status == 2
        assert found.inconclusive
        assert found.verdict.startswith("NOT COMPARABLE")
    assert any("native_prefix_caching, chat-511" in line for line in compare(run(), run(change)).inconclusive)


@pytest.mark.parametrize("change", INCONCLUSIVE.values(), ids=INCONCLUSIVE)
def test_what_was_not_known_before_may_pass_now(change):
    assert compare(run(change), run()).exit_status == 0


def both(part: str, **values: object) -> Change:
    return lambda d: d["identity"][part].update(values)


OTHER_QUESTIONS = {
    "another model": both("model", revision="f" * 40),
    "another tokenizer": both("tokenizer", revision="f" * 40),
    "another model's files": both("model", files_sha256="ab" * 32),
    "another dtype": lambda d: d["request"].update(dtype="bfloat16"),
    "another device": lambda d: d["request"].update(device="cpu"),
    "another max_tokens": lambda d: d["plan"].update(max_tokens=17),
    "another seed": lambda d: d["plan"].update(seed=1),
    "another block_size": lambda d: d["plan"].update(block_size=32),
    "another max_model_len": lambda d: d["plan"].update(max_model_len=4096),
}


@pytest.mark.parametrize(("reason", "change"), OTHER_QUESTIONS.items(), ids=OTHER_QUESTIONS)
@pytest.mark.parametrize("swap", [False, True])
def test_answers_to_another_question_are_not_compared(reason, change, swap):
    reports = [run(), run(change)]
    found = compare(*(reversed(reports) if swap else reports))
    assert found.exit_status == 2
    assert len(found.incomparable) == 8
    assert not found.unchanged
    assert reason.removesuffix("'s files") in found.incomparable[0]


def test_two_unknown_models_are_not_the_same_one():
    unknown = both("model", revision=None, files_sha256=None)
    found = compare(run(unknown), run(unknown))
    assert found.exit_status == 2
    assert "the model is not known" in found.incomparable[0]


def probe_of(document: Document, name: str) -> Document:
    return next(probe for probe in document["plan"]["probes"] if probe["id"] == name)


def test_another_prompt_under_the_same_name_is_not_compared():
    def change(document: Document) -> None:
        probe_of(document, "chat-511")["prompt_sha256"] = "ab" * 32
        for arm in document["arms"]:
            for answer in arm["answers"]:
                if answer["probe"] == "chat-511":
                    answer["submitted_sha256"] = "ab" * 32

    found = compare(run(), run(change))
    assert found.exit_status == 2
    assert found.incomparable == [
        "lmcache_connector_v1, chat-511: another prompt",
        "native_prefix_caching, chat-511: another prompt",
    ]
    assert len(found.unchanged) == 6


def without_probe(document: Document) -> None:
    document["plan"]["probes"].remove(probe_of(document, "chat-513"))
    for arm in document["arms"]:
        arm["answers"] = [answer for answer in arm["answers"] if answer["probe"] != "chat-513"]


def without_native(document: Document) -> None:
    document["request"]["compare_native"] = False
    document["arms"].pop()


@pytest.mark.parametrize(("change", "count"), [(without_probe, 2), (without_native, 4)])
def test_what_is_in_one_report_only_is_not_compared(change, count):
    for reports, where in (((run(), run(change)), "before"), ((run(change), run()), "after")):
        found = compare(*reports)
        assert found.exit_status == 2
        assert len(found.incomparable) == count
        assert all(line.endswith(f"only in the report {where}") for line in found.incomparable)


def control_alone(document: Document) -> None:
    document["request"] |= {"kv_connector": "none", "native_prefix_caching": False, "compare_native": False}
    del document["arms"][1:]


def test_two_controls_compare_nothing():
    found = compare(run(control_alone), run(control_alone))
    assert found.exit_status == 2
    assert list(found.sections()) == []


def test_what_changed_in_the_runtime_is_said():
    def upgrade(document: Document) -> None:
        document["environment"]["packages"]["lmcache"]["version"] = "0.5.6"
        document["environment"]["packages"].pop("torch")
        document["environment"]["accelerator"]["driver"] = "600.1"
        document["environment"]["variables"]["VLLM_X"] = "1" * 500
        document["environment"]["python"] = "3.12.1"
        for arm in document["arms"]:
            arm["effective"]["attention_backends"] = ["FLASHINFER"]

    found = compare(run(), run(upgrade))
    assert found.exit_status == 0
    assert "packages.lmcache.version: 0.5.4, now 0.5.6" in found.runtime
    assert any(line.startswith("packages.torch: ") and line.endswith("now nothing") for line in found.runtime)
    assert "accelerator.driver: 580.95.05, now 600.1" in found.runtime
    assert "python: 3.11.7, now 3.12.1" in found.runtime
    assert f"variables.VLLM_X: nothing, now {'1' * 97}..." in found.runtime
    assert "native_prefix_caching.attention_backends: ['FLASH_ATTN'], now ['FLASHINFER']" in found.runtime
    assert len(found.runtime) == 5 + len(run()["arms"])


@pytest.mark.parametrize("markdown", [True, False])
def test_the_verdict_comes_first(markdown):
    found = compare(run(), run(differ(NATIVE, "chat-512")))
    text = render_comparison(found, markdown=markdown)
    assert "REGRESSION" in text.splitlines()[0]
    assert "native_prefix_caching, chat-512: pass, now fail" in text
    assert text.index("Newly failing") < text.index("Unchanged")


def test_text_from_outside_stays_text_in_markdown():
    hostile = lambda d: d["environment"]["variables"].update(VLLM_X="`<img src=x>`|\n# pass")  # noqa: E731 - one use
    text = render_comparison(compare(run(), run(hostile)), markdown=True)
    assert "\n# pass" not in text


BREAKS = [
    differ(NATIVE, "chat-511"),
    differ(NATIVE, "fixture", 3),
    differ(LMCACHE, "chat-513", 0),
    repair,
    without_native,
    without_probe,
    control_alone,
    *INCONCLUSIVE.values(),
    *OTHER_QUESTIONS.values(),
]


def passed(document: Document) -> set[tuple[str, str]]:
    return {
        (target["name"], probe["id"])
        for target in document["targets"]
        for probe in target["probes"]
        if probe["verdict"] == "pass"
    }


def applied(changes: list[Change]) -> Document:
    document = run()
    for change in changes:
        try:
            change(document)
        except (IndexError, KeyError, StopIteration, ValueError):
            continue  # an earlier change took away what this one changes
    return judged(document)


@given(st.lists(st.sampled_from(BREAKS), max_size=3), st.lists(st.sampled_from(BREAKS), max_size=3))
def test_status_0_only_if_whatever_passed_before_passes_now(before_changes, after_changes):
    before, after = applied(before_changes), applied(after_changes)
    found = compare(before, after)
    still = passed(after)
    failing = {
        (target["name"], probe["id"])
        for target in after["targets"]
        for probe in target["probes"]
        if probe["verdict"] == "fail"
    }
    if found.exit_status == 0:
        assert passed(before) <= still
        sound = {target["name"] for target in after["targets"] if target["verdict"] in ("pass", "fail")}
        assert {name for name, _ in passed(before)} <= sound
        assert after["result"]["verdict"] != "inconclusive"
    if found.exit_status == 1:
        assert failing
    named = [*found.newly_failing, *found.newly_passing, *found.inconclusive, *found.unchanged, *found.incomparable]
    everything = {
        f"{target['name']}, {probe['id']}"
        for one in (before, after)
        for target in one["targets"]
        for probe in target["probes"]
    }
    assert {line.partition(":")[0] for line in named} == everything
    assert len(named) == len(everything)


def in_process(monkeypatch, *arguments: object) -> object:
    monkeypatch.setattr(sys, "argv", ["kvverify", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def written(file: Path, document: Document) -> Path:
    file.write_text(json.dumps(document))
    return file


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_the_command_ends_with_the_status_that_it_says(monkeypatch, capfd, tmp_path, form):
    before = written(tmp_path / "before.json", run())
    for name, change, status, says in (
        ("same", lambda _: None, 0, "NO REGRESSION"),
        ("worse", differ(NATIVE, "chat-512"), 1, "REGRESSION"),
        ("unknown", INCONCLUSIVE["no hit"], 2, "NOT COMPARABLE"),
    ):
        after = written(tmp_path / f"{name}.json", run(change))
        assert in_process(monkeypatch, "compare", before, after, "--format", form) == status
        captured = capfd.readouterr()
        assert says in captured.out.splitlines()[0]
        assert captured.err == ""


def test_an_edited_report_is_compared_with_nothing(monkeypatch, capfd, tmp_path):
    sound, _ = make_report(tmp_path / "sound.json")
    edited = copy.deepcopy(sound)
    edited["arms"][1]["answers"][1]["generated_token_ids"][0] += 1
    written(tmp_path / "edited.json", edited)
    for names in (("sound", "edited"), ("edited", "sound"), ("sound", "none")):
        assert in_process(monkeypatch, "compare", *(tmp_path / f"{name}.json" for name in names)) == 2
        captured = capfd.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("kvverify: error: ")
        assert captured.err.count("\n") == 1


def test_a_fixture_is_no_report(monkeypatch, capfd, tmp_path):
    fixture = Path(__file__).resolve().parents[2] / "fixtures" / "efim-018-l4.json"
    assert in_process(monkeypatch, "compare", fixture, fixture) == 2
    assert capfd.readouterr().err.count("\n") == 1

"""What GitHub shows of a report, and when a job goes green."""

import copy
import re

import pytest
from click.testing import CliRunner

from kvverify.comparison.arms import CONTROL, LMCACHE, NATIVE
from kvverify.github.annotations import annotations, command
from kvverify.github.command import github
from kvverify.github.gate import decide
from kvverify.github.outputs import outputs, render_outputs
from kvverify.github.step_summary import LIMIT_BYTES, cut, step_summary

from .report_factory import make_plan, make_report


def differs(arm, answer):
    if arm != CONTROL and answer["role"] == "reuse":
        answer["generated_token_ids"][4] += 1
    return answer


def reuses_nothing(arm, answer):
    return answer | {"cached_tokens": 0, "cached_tokens_local": 0, "cached_tokens_external": 0}


@pytest.fixture
def passing(tmp_path):
    return make_report(tmp_path / "report.json")[0]


@pytest.fixture
def failing(tmp_path):
    return make_report(tmp_path / "failing.json", arms=(CONTROL, LMCACHE, NATIVE), change=differs)[0]


@pytest.fixture
def inconclusive(tmp_path):
    return make_report(tmp_path / "inconclusive.json", change=reuses_nothing)[0]


def test_outputs_count_the_probes_of_every_target(failing):
    assert outputs(failing) == {
        "verdict": "fail",
        "exit-code": "1",
        "acceptance-matched": "",
        "probes": "12",
        "failed": "12",
        "inconclusive": "0",
    }


def test_outputs_of_a_control_alone_are_the_controls(tmp_path):
    document, _ = make_report(tmp_path / "report.json", arms=(CONTROL,))

    assert outputs(document)["verdict"] == "control_only_pass"
    assert outputs(document)["probes"] == "6"


@pytest.mark.parametrize(("matched", "says"), [(True, "true"), (False, "false"), (None, "false"), ("yes", "false")])
def test_only_true_is_a_match(passing, matched, says):
    assert outputs({**passing, "acceptance": {"matched": matched}})["acceptance-matched"] == says


def test_an_output_is_one_line():
    assert render_outputs({"verdict": "pass", "probes": "6"}) == "verdict=pass\nprobes=6\n"


def test_a_failing_probe_is_an_error_that_says_where_and_an_inconclusive_one_a_warning(failing, inconclusive):
    errors, warnings = annotations(failing), annotations(inconclusive)

    assert errors[0].startswith(
        "::error title=kvverify fail%3A lmcache_connector_v1%2C chat-511-r1::differs: reuse 1 at"
    )
    assert all(line.startswith("::warning title=kvverify inconclusive%3A native") for line in warnings)
    assert len(warnings) == 6


def test_no_more_annotations_than_github_keeps_and_the_last_says_so(failing):
    lines = annotations(failing)

    assert len(lines) == 10
    assert lines[-1] == "::error title=kvverify::and 3 more: see the step summary"


def test_a_pass_annotates_nothing(passing):
    assert annotations(passing) == []


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "::error::x", "100%", "%0A"])
def test_a_command_is_one_line_whatever_its_texts_hold(text):
    line = command("error", text, text)

    assert "\n" not in line
    assert "\r" not in line
    assert re.fullmatch(r"::error title=[^:,]*::.*", line)


@pytest.mark.parametrize(
    ("fixture", "gate", "ended_with", "lenient", "status"),
    [
        ("passing", "verdict", 0, False, 0),
        ("failing", "verdict", 1, False, 1),
        ("failing", "verdict", 1, True, 1),
        ("inconclusive", "verdict", 2, False, 2),
        ("inconclusive", "verdict", 2, True, 0),
        ("passing", "verdict", 1, False, 2),
        ("failing", "verdict", 0, True, 2),
        ("inconclusive", "verdict", 137, True, 2),
        ("passing", "acceptance", 0, False, 2),
    ],
)
def test_a_job_is_green_only_for_a_status_and_a_report_that_agree(
    request, fixture, gate, *, ended_with, lenient, status
):
    document = request.getfixturevalue(fixture)

    assert decide(document, gate=gate, ended_with=ended_with, allow_inconclusive=lenient).exit_status == status


@pytest.mark.parametrize("state", ["running", "interrupted"])
@pytest.mark.parametrize("gate", ["verdict", "acceptance"])
def test_a_run_that_did_not_end_is_never_green(inconclusive, state, gate):
    document = {**inconclusive, "state": state, "acceptance": {"matched": True}}

    assert decide(document, gate=gate, ended_with=2, allow_inconclusive=True).exit_status == 2


@pytest.mark.parametrize(("matched", "status"), [(True, 0), (False, 1), (None, 2), ("true", 1)])
def test_the_acceptance_gate_goes_by_the_fixture_alone(failing, matched, status):
    document = {**failing, "acceptance": {"matched": matched}}

    assert decide(document, gate="acceptance", ended_with=1, allow_inconclusive=False).exit_status == status


def test_evidence_that_is_not_whole_says_nothing_about_a_fixture(failing):
    document = copy.deepcopy({**failing, "acceptance": {"matched": False}})
    document["targets"][0]["probes"][0]["reasons"].append("reuse_doubted")

    assert decide(document, gate="acceptance", ended_with=1, allow_inconclusive=False).exit_status == 2


def test_the_summary_begins_with_the_verdict_then_what_the_job_does_and_where_the_report_is():
    text = step_summary("## KV reuse: PASS\n\nrest\n", "Green: the verdict is pass", "https://x.example/1")

    assert text.splitlines()[:3] == [
        "## KV reuse: PASS",
        "",
        "Green: the verdict is pass. [Report and evidence](https://x.example/1)",
    ]
    assert "rest" in text


def test_only_a_web_address_becomes_a_link():
    assert "[Report" not in step_summary("## x\n", "Green", "javascript:alert(1)")
    assert "[Report" not in step_summary("## x\n", "Green", "")


def test_a_long_summary_is_cut_at_a_line_and_says_so():
    text = "## heading\n" + "| \N{SNOWMAN} row | 1 |\n" * 100_000

    short = cut(text, LIMIT_BYTES)

    assert len(short.encode()) <= LIMIT_BYTES < 1024 * 1024
    assert short.startswith("## heading\n")
    assert short.endswith("The report holds everything.\n")
    assert text.startswith(short.partition("\n> **This summary was cut here**")[0])
    assert cut(text[:1000], LIMIT_BYTES) == text[:1000]


def test_the_command_writes_all_three_and_ends_as_the_gate_says(tmp_path):
    make_report(tmp_path / "report.json", change=differs, plan=make_plan(lengths=(512,)))
    into = tmp_path / "shown"
    into.mkdir()
    arguments = [str(tmp_path / "report.json"), f"--into={into}", "--ended-with=1", "--shown-as=out/report.json"]

    done = CliRunner().invoke(github, arguments, standalone_mode=False)

    assert done.return_value == 1
    assert (into / "outputs").read_text().startswith("verdict=fail\n")
    assert (into / "annotations").read_text().count("::error") == 2
    assert "`out/report.json`" in (into / "summary.md").read_text()
    assert done.output == "Red: the verdict is fail\n"


def test_a_report_that_its_evidence_contradicts_is_not_shown(tmp_path):
    _, store = make_report(tmp_path / "report.json")
    store.evidence_path("control.log").write_text("changed")

    done = CliRunner().invoke(github, [str(store.report), f"--into={tmp_path}", "--ended-with=0"])

    assert "control.log" in str(done.exception)
    assert not (tmp_path / "outputs").exists()

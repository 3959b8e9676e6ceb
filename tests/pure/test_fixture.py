"""Acceptance fixtures: what is one, what a run must have to be held against it, and what can be recorded as one."""

import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvverify import cli
from kvverify.errors import PreflightError, ReportError, UsageError
from kvverify.report.document import Document
from kvverify.report.fixture import check_fixture, check_needs, check_prompts, load_fixture, record

from .acceptance_factory import CONTROL, LMCACHE, NATIVE, acceptance_report
from .report_factory import make_report
from .test_acceptance import LIES, expect_verdicts

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "fixtures").glob("*.json"))
COMMIT = "0123456789abcdef0123456789abcdef01234567"
Change = Callable[[Document], object]


def recorded(*changes: Change) -> Document:
    fixture = copy.deepcopy(record(acceptance_report(), "mine"))
    for change in changes:
        change(fixture)
    return fixture


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_every_shipped_fixture_is_sound_and_named_like_its_file(file):
    fixture = load_fixture(file)
    assert fixture.document["name"] == file.stem
    assert sum(1 + 2 * (1 + spec.reuse_count) for spec in fixture.specs()) == 24


def test_the_published_fixture_says_what_was_published_and_that_nobody_here_ran_it():
    document = load_fixture(ROOT / "fixtures" / "efim-018-l4.json").document
    assert document["provenance"]["source"] == "published"
    assert "this project has not run it" in document["provenance"]["statement"]
    assert document["needs"]["gpu"] == {"name": "NVIDIA L4", "compute_capability": "8.9"}
    expected = document["expected"]
    assert {one["verdict"] for one in expected[LMCACHE].values()} == {"fail"}
    assert {one["verdict"] for one in expected[NATIVE].values()} == {"pass"}
    cached = {name: one["cached_tokens"] for name, one in expected[LMCACHE].items()}
    assert cached == {
        "fixture": [0, 1280, 1280, 1280],
        "chat-511": [0, 256],
        "chat-512": [0, 511],
        "chat-513": [0, 512],
    }


def test_a_recorded_fixture_expects_what_its_run_found_and_says_where_it_comes_from():
    report = acceptance_report()
    fixture = record(report, "mine")
    assert check_fixture(fixture) == []
    assert fixture["provenance"]["source"] == "recorded"
    assert fixture["provenance"]["run_id"] == report["run_id"]
    assert fixture["provenance"]["date"] == report["created_at"][:10]
    assert fixture["needs"]["gpu"] == {"name": "NVIDIA L4", "compute_capability": "8.9"}
    assert fixture["needs"]["packages"] == {"vllm": ["0.28.0"], "lmcache": ["0.5.4"]}
    assert fixture["needs"]["model"]["revision"] == COMMIT
    assert [probe["prompt_sha256"] for probe in fixture["probes"]] == [
        probe["prompt_sha256"] for probe in report["plan"]["probes"]
    ]
    assert fixture["expected"][LMCACHE]["fixture"] == {
        "verdict": "fail",
        "cached_tokens": [0, 1280, 1280, 1280],
        "first_differences": [None, 2, 3, 4],
    }
    assert fixture["expected"][NATIVE]["chat-512"] == {
        "verdict": "pass",
        "cached_tokens": [0, 496],
        "first_differences": [None, None],
    }


def test_the_run_that_a_fixture_was_recorded_from_matches_it():
    fixture = recorded()
    report = acceptance_report(lambda d: d["acceptance"].update(expected=fixture["expected"]))
    assert report["acceptance"]["matched"] is True


def test_a_run_on_a_cpu_needs_no_gpu():
    report = acceptance_report(lambda d: d["environment"]["accelerator"].update(device="cpu", compute_capability=None))
    assert record(report, "mine")["needs"]["gpu"] is None


# A report without acceptance section, or of other arms, is refused before its gaps are looked at.
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_nothing_is_recorded_from_a_run_with_a_gap(lie):
    with pytest.raises(ReportError) as refused:
        record(acceptance_report(expect_verdicts, lie), "mine")
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(acceptance=None), "not of an acceptance run"),
        (lambda d: d["arms"].pop(), "not of an acceptance run"),
        (lambda d: d.update(state="interrupted"), "did not complete"),
        (lambda d: d["request"].pop("dtype"), "--dtype"),
        (lambda d: d["plan"]["probes"].pop(), "the evidence is not whole|exactly 24|no planned probe"),
    ],
)
def test_a_report_of_another_kind_is_not_recorded(change, says):
    with pytest.raises(ReportError, match=says):
        record(acceptance_report(change), "mine")


def test_a_report_of_a_run_without_acceptance_is_not_recorded(tmp_path):
    document, _ = make_report(tmp_path / "report.json", (CONTROL, LMCACHE, NATIVE))
    with pytest.raises(ReportError, match="not of an acceptance run"):
        record(document, "mine")


def test_a_name_that_is_no_name_is_refused():
    with pytest.raises(ReportError, match="name"):
        record(acceptance_report(), "no name")


UNSOUND = {
    "another schema": (lambda f: f.update(schema="x"), "schema"),
    "a member too many": (lambda f: f.update(extra=1), "extra"),
    "no provenance": (lambda f: f.pop("provenance"), "provenance"),
    "a probe more": (lambda f: f["probes"].append({**f["probes"][0], "id": "more"}), "exactly 24"),
    "a probe less": (lambda f: f["probes"].pop(), "exactly 24"),
    "one reuse more": (lambda f: f["probes"][1].update(reuse_count=2), "exactly 24"),
    "an id twice": (lambda f: f["probes"][1].update(id="chat-512"), "two have the same id"),
    "expectations that nobody made": (lambda f: f["provenance"].update(source="unrecorded"), "unrecorded"),
    "no expectations": (lambda f: f.update(expected={}), "unrecorded"),
    "empty expectations": (lambda f: f.update(expected={LMCACHE: {}, NATIVE: {}}), "unrecorded"),
    "nothing of one target": (lambda f: f["expected"].pop(NATIVE), "expected.native_prefix_caching: says nothing of"),
    "nothing of LMCache": (
        lambda f: f["expected"].update({LMCACHE: {}}),
        "expected.lmcache_connector_v1: says nothing",
    ),
    "nothing of one probe": (lambda f: f["expected"][LMCACHE].pop("chat-512"), "says nothing of chat-512"),
    "an unknown probe": (
        lambda f: f["expected"][LMCACHE].update(other=f["expected"][LMCACHE]["fixture"]),
        "there is no such probe",
    ),
    "an unknown target": (lambda f: f["expected"].update(control={}), "control"),
    "inconclusive": (
        lambda f: f["expected"][LMCACHE]["chat-512"].update(verdict="inconclusive"),
        "nothing can be expected to be inconclusive",
    ),
    "a verdict that is none": (lambda f: f["expected"][LMCACHE]["chat-512"].update(verdict=None), "verdict"),
    "too few counts": (lambda f: f["expected"][LMCACHE]["chat-512"].update(cached_tokens=[0]), "needs one entry"),
    "no counts": (lambda f: f["expected"][LMCACHE]["chat-512"].update(cached_tokens=[]), "needs one entry"),
    "an unknown count": (lambda f: f["expected"][LMCACHE]["chat-512"].update(cached_tokens=[0, None]), "cached_tokens"),
    "a count that is a bool": (
        lambda f: f["expected"][LMCACHE]["chat-512"].update(cached_tokens=[False, 511]),
        "cached_tokens",
    ),
    "too many indices": (
        lambda f: f["expected"][LMCACHE]["chat-512"].update(first_differences=[None, 1, 1]),
        "needs one entry",
    ),
    "a negative index": (
        lambda f: f["expected"][LMCACHE]["chat-512"].update(first_differences=[None, -1]),
        "first_differences",
    ),
    "a model without its commit": (lambda f: f["needs"]["model"].update(revision=None), "go together"),
    "a commit without its model": (lambda f: f["needs"]["model"].update(name=None), "go together"),
    "a branch": (lambda f: f["needs"]["model"].update(revision="main"), "revision"),
    "no version": (lambda f: f["needs"]["packages"].update(vllm=[]), "vllm"),
    "no seed": (lambda f: f["settings"].pop("seed"), "seed"),
}


@pytest.mark.parametrize(("change", "says"), UNSOUND.values(), ids=UNSOUND)
def test_an_unsound_fixture_is_told_why(change, says, tmp_path):
    fixture = recorded(change)
    reasons = check_fixture(fixture)
    assert any(says in reason for reason in reasons), reasons
    file = tmp_path / "fixture.json"
    file.write_text(json.dumps(fixture))
    with pytest.raises(UsageError, match="--fixture"):
        load_fixture(file)


@pytest.mark.parametrize("document", [None, [], "fixture", 1, {}])
def test_what_is_no_fixture_at_all_is_told_so(document):
    assert check_fixture(document)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1, "a": 2}', "NaN", '"\\ud800"'])
def test_a_file_that_is_no_fixture_is_refused(tmp_path, content):
    file = tmp_path / "fixture.json"
    file.write_text(content)
    with pytest.raises(UsageError, match="--fixture"):
        load_fixture(file)


@pytest.mark.parametrize("name", ["none.json", "."])
def test_a_fixture_that_cannot_be_read_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match="--fixture"):
        load_fixture(tmp_path / name)


def fixture_file(tmp_path: Path, *changes: Change):
    file = tmp_path / "fixture.json"
    file.write_text(json.dumps(recorded(*changes)))
    return load_fixture(file)


def found(fixture: Document, **changes: Document) -> Document:
    report = acceptance_report()
    parts = {
        "accelerator": report["environment"]["accelerator"],
        "packages": report["environment"]["packages"],
        "model": report["identity"]["model"],
        "settings": fixture["settings"],
    }
    return {name: {**part, **changes.get(name, {})} for name, part in parts.items()}


def test_the_run_that_a_fixture_was_made_for_has_what_it_needs(tmp_path):
    fixture = fixture_file(tmp_path)
    check_needs(fixture, found(fixture.document))


MISSING = {
    "another GPU": ({"accelerator": {"name": "NVIDIA H200"}}, "made for NVIDIA L4", "fixture record"),
    "another capability": ({"accelerator": {"compute_capability": "9.0"}}, "NVIDIA L4 .9.0", "fixture record"),
    "a CPU": (
        {"accelerator": {"name": "x86", "compute_capability": None}},
        "this machine has x86 .none.",
        "fixture record",
    ),
    "another LMCache": (
        {"packages": {"lmcache": {"version": "0.5.6"}}},
        "made for lmcache 0.5.4, 0.5.6 is installed",
        "install that version",
    ),
    "no LMCache": ({"packages": {"lmcache": {}}}, "none is installed", "install that version"),
    "another engine": ({"packages": {"vllm": {"version": "0.27.0"}}}, "vllm 0.28.0, 0.27.0", "install that version"),
    "another model": ({"model": {"requested": "org/other"}}, "--model", "name that model"),
    "another commit": ({"model": {"revision": "f" * 40}}, "--model", "name that model"),
    "unknown commit": ({"model": {"revision": None}}, "--model", "name that model"),
    "another data type": ({"settings": {"dtype": "bfloat16"}}, "--dtype: the fixture needs float16", "give --dtype"),
    "another limit": ({"settings": {"max_model_len": 4096}}, "--max-model-len", "give --max-model-len 2048"),
    "another block": ({"settings": {"block_size": 32}}, "--block-size", "give --block-size 16"),
    "another chunk": ({"settings": {"chunk_size": 64}}, "--chunk-size", "give --chunk-size 256"),
    "another length": ({"settings": {"max_tokens": 8}}, "--max-tokens", "give --max-tokens 16"),
    "another seed": ({"settings": {"seed": 1}}, "--seed", "give --seed 0"),
}


@pytest.mark.parametrize(("change", "problem", "remedy"), MISSING.values(), ids=MISSING)
def test_a_run_that_is_not_what_the_fixture_needs_is_refused(tmp_path, change, problem, remedy):
    fixture = fixture_file(tmp_path)
    with pytest.raises(PreflightError, match=problem) as refused:
        check_needs(fixture, found(fixture.document, **change))
    assert remedy in refused.value.remedy


def test_a_fixture_may_allow_any_gpu_any_version_and_any_model(tmp_path):
    fixture = fixture_file(
        tmp_path,
        lambda f: f["needs"].update(
            gpu=None, packages={}, model={"name": None, "revision": None, "files_sha256": None}
        ),
    )
    check_needs(
        fixture,
        found(
            fixture.document,
            accelerator={"name": "x"},
            packages={"vllm": {"version": "9"}},
            model={"revision": None, "files_sha256": "ab" * 32},
        ),
    )


def of_folder(digest: str) -> Change:
    return lambda f: f["needs"]["model"].update(name=None, revision=None, files_sha256=digest)


def test_a_model_folder_is_known_by_the_digest_of_its_files(tmp_path):
    fixture = fixture_file(tmp_path, of_folder("ab" * 32))
    check_needs(fixture, found(fixture.document, model={"files_sha256": "ab" * 32, "revision": None, "requested": "m"}))
    for digest in ("cd" * 32, None):
        with pytest.raises(PreflightError, match="files sha256 abab"):
            check_needs(fixture, found(fixture.document, model={"files_sha256": digest}))


def test_a_commit_does_not_excuse_other_files(tmp_path):
    fixture = fixture_file(tmp_path, lambda f: f["needs"]["model"].update(files_sha256="ab" * 32))
    check_needs(fixture, found(fixture.document, model={"files_sha256": "ab" * 32, "revision": None}))
    check_needs(fixture, found(fixture.document, model={"files_sha256": None}))
    with pytest.raises(PreflightError, match="another model"):
        check_needs(fixture, found(fixture.document, model={"files_sha256": "cd" * 32}))


def test_a_prompt_that_comes_out_otherwise_is_refused(tmp_path):
    fixture = fixture_file(tmp_path)
    probes = [SimpleNamespace(id=p["id"], prompt_sha256=p["prompt_sha256"]) for p in fixture.document["probes"]]
    check_prompts(fixture, SimpleNamespace(probes=probes))
    probes[2].prompt_sha256 = "ab" * 32
    with pytest.raises(PreflightError, match="chat-512 does not come out"):
        check_prompts(fixture, SimpleNamespace(probes=probes))


def test_a_prompt_whose_digest_nobody_knows_is_not_checked(tmp_path):
    fixture = fixture_file(tmp_path, lambda f: [probe.update(prompt_sha256=None) for probe in f["probes"]])
    probes = [SimpleNamespace(id=p["id"], prompt_sha256="ab" * 32) for p in fixture.document["probes"]]
    check_prompts(fixture, SimpleNamespace(probes=probes))


def in_process(monkeypatch, *arguments: object) -> object:
    monkeypatch.setattr(sys, "argv", ["kvverify", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


@pytest.fixture
def report(tmp_path):
    file = tmp_path / "report.json"
    file.write_text(json.dumps(acceptance_report()))
    return file


def test_record_and_check_on_the_command_line(monkeypatch, capfd, tmp_path, report):
    output = tmp_path / "mine.json"
    assert in_process(monkeypatch, "fixture", "record", report, "-o", output) == 0
    assert capfd.readouterr().out == f"wrote {output}: it expects 8 verdicts\n"
    assert json.loads(output.read_text()) == record(acceptance_report(), "mine")
    assert in_process(monkeypatch, "fixture", "check", output) == 0
    assert capfd.readouterr().out == f"{output} is a sound acceptance fixture\n"


def test_a_fixture_is_never_overwritten(monkeypatch, capfd, tmp_path, report):
    output = tmp_path / "mine.json"
    output.write_text("mine")
    assert in_process(monkeypatch, "fixture", "record", report, "-o", output) == 2
    assert output.read_text() == "mine"
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("kvverify: error: --output")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("output", ["no/such/folder.json", ".", "no name.json"])
def test_a_fixture_that_cannot_be_written_is_one_line(monkeypatch, capfd, tmp_path, report, output):
    before = sorted(tmp_path.rglob("*"))
    assert in_process(monkeypatch, "fixture", "record", report, "-o", tmp_path / output) == 2
    assert capfd.readouterr().err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_an_edited_report_is_not_recorded(monkeypatch, capfd, tmp_path):
    document = acceptance_report()
    document["targets"][0]["probes"][0]["verdict"] = "pass"
    file = tmp_path / "report.json"
    file.write_text(json.dumps(document))
    assert in_process(monkeypatch, "fixture", "record", file, "-o", tmp_path / "mine.json") == 2
    assert "not a sound report" in capfd.readouterr().err
    assert not (tmp_path / "mine.json").exists()


def test_check_says_every_reason_on_a_line_of_its_own(monkeypatch, capfd, tmp_path):
    file = tmp_path / "fixture.json"
    file.write_text(json.dumps(recorded(lambda f: f["expected"].pop(NATIVE), lambda f: f["expected"][LMCACHE].clear())))
    assert in_process(monkeypatch, "fixture", "check", file) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert all(line.startswith(f"{file}: ") for line in captured.err.splitlines())

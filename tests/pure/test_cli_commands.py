"""What the command line does besides refusing: help, a dry run, and how it ends when something comes in between."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kvverify import cli, verification
from kvverify.interrupts import Interrupted, raise_on_signals
from kvverify.plan.manifest import manifest_sha256
from kvverify.report.schema import validate
from kvverify.report.store import ReportStore

from .report_factory import make_report
from .tiny_model import make_model

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def signals():
    """Put the handlers of the signals back."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def in_process(monkeypatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["kvverify", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def outside(*arguments: object, **more: object) -> subprocess.CompletedProcess[bytes]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "kvverify", *arguments], env=variables, check=False, timeout=300, **more
    )


def options(model: Path, folder: Path) -> list[str]:
    given = {"model": model, "kv-connector": "none", "device": "cpu", "report": folder / "report.json"}
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


def dry_run(monkeypatch, capfd, model, folder, *more: str) -> dict:
    assert in_process(monkeypatch, "run", *options(model, folder), "--dry-run", *more) == 0
    captured = capfd.readouterr()
    assert captured.err == "dry run: nothing was verified\n"
    assert list(folder.iterdir()) == []
    manifest: dict = json.loads(captured.out)
    return manifest


def test_a_dry_run_prints_the_manifest_and_writes_nothing(monkeypatch, capfd, model, tmp_path):
    manifest = dry_run(monkeypatch, capfd, model, tmp_path)
    assert manifest["suite"] == "standard"
    assert manifest["generations"] == 96
    assert len(manifest["probes"]) == 24
    for probe in manifest["probes"]:
        assert len(probe["prompt_token_ids"]) == probe["prompt_tokens"]
    assert manifest_sha256(manifest) == manifest["manifest_sha256"]


def test_a_dry_run_follows_the_options(monkeypatch, capfd, model, tmp_path):
    more = ("--suite", "smoke", "--chunk-size", "64", "--reuse-counts", "2", "--prompt-format", "raw", "--tenant", "me")
    manifest = dry_run(monkeypatch, capfd, model, tmp_path, *more)
    assert [probe["id"] for probe in manifest["probes"]] == ["raw-127-r2", "raw-128-r2", "raw-129-r2"]
    assert {probe["scope"].partition(".")[0] for probe in manifest["probes"]} == {"me"}
    assert manifest["generations"] == 12


def test_the_same_options_give_the_same_manifest_and_another_seed_another(monkeypatch, capfd, model, tmp_path):
    first, again, other = (
        dry_run(monkeypatch, capfd, model, tmp_path, "--suite", "smoke", "--seed", seed) for seed in ("7", "7", "8")
    )
    assert first == again
    assert first["manifest_sha256"] != other["manifest_sha256"]


def test_a_dry_run_refuses_what_a_run_refuses(monkeypatch, capfd, model, tmp_path):
    (tmp_path / "report.json").write_text("{}")
    assert in_process(monkeypatch, "run", *options(model, tmp_path), "--dry-run") == 2
    assert "--report" in capfd.readouterr().err


def test_without_a_command_the_help_is_shown_and_nothing_was_proven(monkeypatch, capfd):
    assert in_process(monkeypatch) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Usage: kvverify ")
    assert "Commands:\n" in captured.err


def test_an_unknown_command_is_one_line(monkeypatch, capfd):
    assert in_process(monkeypatch, "prove") == 2
    assert capfd.readouterr().err == "kvverify: error: No such command 'prove'.\n"


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("run", "--help"), ("--version",)])
def test_help_and_version_succeed(monkeypatch, capfd, arguments):
    assert in_process(monkeypatch, *arguments) == 0
    assert "kvverify" in capfd.readouterr().out


@pytest.mark.parametrize("error", [RuntimeError("odd"), MemoryError(), AssertionError(), OSError("no such device")])
def test_a_mistake_of_ours_never_looks_like_a_failed_check(monkeypatch, capfd, model, tmp_path, error):
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(ReportStore, "check", broken)
    assert in_process(monkeypatch, "run", *options(model, tmp_path)) == 2
    captured = capfd.readouterr()
    assert captured.err.splitlines()[-1].startswith("kvverify: error: internal error")
    assert captured.out == ""


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("error", [Interrupted("SIGTERM"), KeyboardInterrupt()])
def test_an_interruption_before_there_is_a_report_is_no_failed_check(monkeypatch, capfd, model, tmp_path, error):
    def interrupted(*_: object) -> None:
        raise error

    monkeypatch.setattr(verification, "verify", interrupted)
    assert in_process(monkeypatch, "run", *options(model, tmp_path)) == 2
    captured = capfd.readouterr()
    assert captured.err.splitlines()[-1].startswith("kvverify: error: interrupted")
    assert "Traceback" not in captured.err
    assert list(tmp_path.iterdir()) == []


def test_output_that_nobody_reads_is_no_failed_check(model, tmp_path):
    """A closed pipe must not end with status 1, whoever meets it first."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = outside("run", *options(model, tmp_path), "--dry-run", stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert ended.returncode == 2
    assert b"Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("signals")
def test_only_the_first_signal_raises():
    raise_on_signals()
    with pytest.raises(Interrupted, match="SIGTERM"):
        os.kill(os.getpid(), signal.SIGTERM)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(os.getpid(), number)  # none disturbs the cleaning up


@pytest.mark.usefixtures("signals")
def test_signals_that_come_together_raise_once_and_say_nothing_more():
    every = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    raise_on_signals()
    complaints = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", complaints.append)
        with pytest.raises(Interrupted, match="SIGHUP"):
            together(every)
        sum(range(10_000))  # time for Python to look at what is pending
    assert complaints == []


def together(numbers: tuple[signal.Signals, ...]) -> None:
    """Let several signals become pending in this thread before Python sees the first."""
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    for number in numbers:
        signal.pthread_kill(threading.get_ident(), number)  # os.kill could hand them to another thread
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def test_no_handler_of_errors_takes_an_interruption_for_one():
    assert not issubclass(Interrupted, Exception)


def test_a_sound_report_validates_whatever_its_verdict(monkeypatch, capfd, tmp_path):
    def wrong(arm, answer):
        return {**answer, "generated_token_ids": [0] * 16} if answer["role"] == "reuse" else answer

    document, store = make_report(tmp_path / "report.json", change=wrong)
    assert document["result"]["verdict"] == "fail"
    assert validate(document) == []
    assert in_process(monkeypatch, "validate", str(store.report)) == 0
    assert "is sound" in capfd.readouterr().out


def test_a_report_that_was_edited_does_not_validate(monkeypatch, capfd, tmp_path):
    document, store = make_report(tmp_path / "report.json")
    document["arms"][1]["answers"][1]["generated_token_ids"][0] += 1
    store.report.write_text(json.dumps(document))
    assert in_process(monkeypatch, "validate", str(store.report)) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert all(line.startswith(str(store.report)) for line in captured.err.splitlines())


@pytest.mark.parametrize("command", ["validate", "summary"])
def test_a_report_that_is_not_there_is_one_line(monkeypatch, capfd, tmp_path, command):
    assert in_process(monkeypatch, command, str(tmp_path / "none.json")) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("kvverify: error: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_summary_is_printed_whatever_the_verdict(monkeypatch, capfd, tmp_path, form):
    _, store = make_report(tmp_path / "report.json")
    assert in_process(monkeypatch, "summary", str(store.report), "--format", form) == 0
    assert "pass" in capfd.readouterr().out.lower()


def test_an_unknown_format_of_a_summary_is_refused(monkeypatch, capfd, tmp_path):
    _, store = make_report(tmp_path / "report.json")
    assert in_process(monkeypatch, "summary", str(store.report), "--format", "pdf") == 2
    assert "'text', 'markdown'" in capfd.readouterr().err

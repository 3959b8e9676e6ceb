"""Runs on the real engine that do not come to their end: nothing stays running, and the report is sound and no pass."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from .running import SMALL, Ended, Running, clone, own_copy, until

pytestmark = pytest.mark.engine

CONTROL_ONLY = (*SMALL, "--no-native-prefix-caching", "--reuse-counts", "1")
ANSWERED = "control: chat-63-r1 answered"


def longer(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Answers that take long enough for something to happen during one."""
    return (*arguments, "--max-tokens", "180")


def assert_sound_and_no_pass(ended: Ended, state: str) -> None:
    assert ended.reasons == []
    assert ended.document["state"] == state
    assert ended.document["result"]["verdict"] == "inconclusive"
    assert ended.document["result"]["exit_status"] == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_an_answer_ends_both_engines(smollm2, tmp_path, number):
    with Running(smollm2, tmp_path / "run", longer(SMALL)) as run:
        run.wait_for(ANSWERED)
        until(lambda: run.look() and len(run.groups()) == 2, "the next arm's process")
        run.send(number)
        ended = run.end()
        run.assert_nothing_left()
    assert ended.status == 2
    assert f"interrupted by {number.name}" in ended.errors
    assert "Traceback" not in ended.errors
    assert_sound_and_no_pass(ended, "interrupted")
    assert ended.arm()["state"] == "interrupted"
    assert ended.arm("native_prefix_caching")["state"] == "pending"
    assert 1 <= ended.document["result"]["generations"]["completed"] < 6
    assert "INCONCLUSIVE" in ended.output


def test_signals_while_an_engine_starts_end_it_however_many_they_are(smollm2, tmp_path):
    with Running(smollm2, tmp_path / "run", CONTROL_ONLY) as run:
        run.wait_for("control: starting the engine")
        until(lambda: len(run.look()) > 1, "the engine's own processes")
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            run.send(number)
        ended = run.end()
        run.assert_nothing_left()
    assert ended.status == 2
    assert "Traceback" not in ended.errors
    assert_sound_and_no_pass(ended, "interrupted")
    assert ended.document["result"]["generations"]["completed"] == 0


def test_killing_the_run_takes_its_engines_along(smollm2, tmp_path):
    with Running(smollm2, tmp_path / "run", longer(SMALL)) as run:
        run.wait_for(ANSWERED)
        until(lambda: run.look() and len(run.groups()) == 2, "the next arm's process")
        run.send(signal.SIGKILL)
        ended = run.end()
        run.assert_nothing_left(seconds=15)
    assert ended.status == -signal.SIGKILL
    assert_sound_and_no_pass(ended, "running")
    assert ended.arm()["state"] == "running"
    assert ended.document["result"]["generations"]["completed"] >= 1


def test_a_killed_engine_worker_fails_the_arm_with_its_cause(smollm2, tmp_path):
    with Running(smollm2, tmp_path / "run", longer(CONTROL_ONLY)) as run:
        run.wait_for(ANSWERED)
        os.kill(run.engine_worker(), signal.SIGKILL)
        ended = run.end()
        run.assert_nothing_left()
    assert ended.status == 2
    assert_sound_and_no_pass(ended, "complete")
    arm = ended.arm()
    assert arm["state"] == "failed"
    assert arm["limit"] is None
    (error,) = arm["errors"]
    assert "EngineDeadError" in error
    assert "Worker proc VllmWorker-0 died unexpectedly" in error
    assert f"] {error}\n" in ended.errors
    assert "control.log" in error


def test_an_engine_that_hangs_is_given_up_at_the_answer_limit(smollm2, tmp_path):
    with Running(smollm2, tmp_path / "run", longer((*CONTROL_ONLY, "--answer-timeout", "20"))) as run:
        run.wait_for(ANSWERED)
        run.look()
        (group,) = run.groups()
        os.killpg(group, signal.SIGSTOP)
        ended = run.end()
        run.assert_nothing_left()
    assert ended.status == 2
    assert_sound_and_no_pass(ended, "complete")
    assert ended.arm()["state"] == "failed"
    assert ended.arm()["limit"] == "answer_timeout"
    (error,) = ended.arm()["errors"]
    assert "--answer-timeout 20 s" in error


def test_an_engine_that_does_not_start_in_time_is_given_up(smollm2, tmp_path):
    with Running(smollm2, tmp_path / "run", (*SMALL, "--start-timeout", "0.5")) as run:
        ended = run.end()
        run.assert_nothing_left()
    assert ended.status == 2
    assert_sound_and_no_pass(ended, "complete")
    assert ended.arm()["limit"] == "start_timeout"
    (error,) = ended.arm()["errors"]
    assert "--start-timeout 0.5 s" in error
    assert ended.arm("native_prefix_caching")["state"] == "pending"


def test_an_engine_that_cannot_start_fails_the_arm_with_the_cause_from_its_log(smollm2, tmp_path):
    model = clone(smollm2, tmp_path / "model")
    weights = model / "model.safetensors"
    weights.unlink()
    with (smollm2 / "model.safetensors").open("rb") as whole:
        weights.write_bytes(whole.read(1 << 20))
    with Running(model, tmp_path / "run", SMALL) as run:
        ended = run.end()
        run.assert_nothing_left()
    assert ended.status == 2
    assert_sound_and_no_pass(ended, "complete")
    assert ended.arm()["state"] == "failed"
    (error,) = ended.arm()["errors"]
    assert "SafetensorError" in error
    assert "SafetensorError" in ended.log()
    assert error in ended.errors
    assert ended.arm("native_prefix_caching")["state"] == "pending"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"needs to mount a small file system: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
        while filler.write(b"\0" * 4096):
            pass
    assert os.statvfs(disk).f_bavail == 0


def test_a_full_disk_ends_the_run_and_leaves_the_last_report_whole(smollm2, tmp_path, small_disk):
    with Running(smollm2, small_disk, longer(CONTROL_ONLY)) as run:
        run.wait_for(ANSWERED)
        fill(small_disk)
        ended = run.end()
        run.assert_nothing_left()
    assert ended.status == 2
    assert "Traceback" not in ended.errors
    (line,) = [line for line in ended.errors.splitlines() if line.startswith("kvverify: error:")]
    assert "No space left on device" in line
    assert "free some space" in line
    assert_sound_and_no_pass(ended, "running")
    assert ended.document["result"]["generations"]["completed"] >= 1
    assert [file.name for file in small_disk.iterdir() if file.name.endswith("-tmp")] == []


def test_a_model_folder_that_is_written_while_the_engine_runs_is_noticed(smollm2, tmp_path):
    model = clone(smollm2, tmp_path / "model")
    config = own_copy(model / "generation_config.json")
    with Running(model, tmp_path / "run", CONTROL_ONLY) as run:
        run.wait_for("control: starting the engine")
        config.write_bytes(config.read_bytes())
        ended = run.end()
        run.assert_nothing_left()
    assert ended.status == 2, ended.errors
    assert_sound_and_no_pass(ended, "complete")
    assert ended.document["identity"]["model"]["unchanged_at_end"] is False
    assert ended.document["result"]["generations"] == {"planned": 3, "completed": 3}
    assert ended.document["control"]["verdict"] == "pass"

"""How the container of a run ends: by the time limit, by a cancelled step, and by itself when the runner is gone."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from .act import ROOT, wait_until
from .daemon import Daemon

pytestmark = pytest.mark.docker

DEFAULTS = {
    f"KVV_{name.upper().replace('-', '_')}": str(given.get("default", ""))
    for name, given in yaml.safe_load((ROOT / "action.yml").read_text())["inputs"].items()
}


@pytest.fixture
def environment(tmp_path: Path, daemon: Daemon, scripted_image: str) -> dict[str, str]:
    """Give the environment of a step whose run never ends by itself."""
    for name in ("workspace", "temp", "model"):
        (tmp_path / name).mkdir()
    for name in ("output", "status", "endless"):
        (tmp_path / "model" / name).write_text("0")
    return {
        **DEFAULTS,
        "PATH": os.environ["PATH"],
        "DOCKER_HOST": daemon.url,
        "GITHUB_WORKSPACE": str(tmp_path / "workspace"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "RUNNER_TEMP": str(tmp_path / "temp"),
        "KVV_MODEL": str(tmp_path / "model"),
        "KVV_KV_CONNECTOR": "none",
        "KVV_DEVICE": "cpu",
        "KVV_IMAGE": scripted_image,
    }


@pytest.fixture
def step(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Give a step that has been verifying for a moment."""
    with subprocess.Popen(
        [ROOT / "entrypoint" / "action.sh", "verify"], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def running(daemon: Daemon) -> list[str]:
    """Names of the containers that verify."""
    return [container.name for container in daemon.client.containers.list() if "doctor" not in container.name]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_step_alone_removes_the_container_in_time(step, daemon, number):
    """GitHub signals the step's process only, and kills it ten seconds later."""
    wait_until(lambda: len(running(daemon)) == 1, 30, "the container runs")

    step.send_signal(number)

    assert step.wait(9) == 130
    assert daemon.client.containers.list(all=True) == []


def test_a_killed_step_takes_its_container_with_it(step, daemon):
    wait_until(lambda: len(running(daemon)) == 1, 30, "the container runs")

    step.kill()

    wait_until(lambda: daemon.client.containers.list(all=True) == [], 10, "the container is gone")


def test_cleaning_up_removes_what_a_job_of_this_runner_left(environment, daemon):
    script = f'source "{ROOT}/entrypoint/action.sh"; set_scene; printf %s "$OWNER_LABEL"'
    label = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True).stdout
    left = daemon.client.containers.run(
        environment["KVV_IMAGE"],
        ["600"],
        entrypoint="sleep",
        detach=True,
        network_mode="none",
        labels=dict([label.split("=")]),
    )
    other = daemon.client.containers.run(
        environment["KVV_IMAGE"],
        ["600"],
        entrypoint="sleep",
        detach=True,
        network_mode="none",
        labels=dict([f"{label}0".split("=")]),
    )

    subprocess.run([ROOT / "entrypoint" / "action.sh", "cleanup"], env=environment, check=True)

    assert [container.id for container in daemon.client.containers.list(all=True)] == [other.id]
    assert left.id != other.id
    other.remove(force=True)


def test_past_the_time_limit_the_container_is_stopped_and_the_job_is_red(environment, daemon, tmp_path):
    script = f'source "{ROOT}/entrypoint/action.sh"; time_limit() {{ echo 3; }}; main'

    verify, conclude = (
        subprocess.run(["bash", "-c", f"{script} {step}"], check=False, env=environment, capture_output=True, text=True)
        for step in ("verify", "conclude")
    )

    assert verify.returncode == conclude.returncode == 2
    assert "the run left no report" in verify.stdout
    assert daemon.client.containers.list(all=True) == []
    assert "## KV reuse: NOT VERIFIED" in (tmp_path / "summary").read_text()


def test_past_its_own_limit_the_container_ends_by_itself(environment, daemon, cpu_image):
    """The limit inside the container is a minute longer than the runner's; here it is the time that is left."""
    script = f'source "{ROOT}/entrypoint/action.sh"; set_scene; time_limit() {{ echo -55; }}; read_inputs; '
    report = (
        "mkdir -p $STATE $REPORT_DIRECTORY; RUN_MOUNTS+=(--mount type=bind,source=$REPORT_DIRECTORY,target=/report); "
    )

    subprocess.run(
        ["bash", "-c", f"{script}{report}IMAGE_ID={environment['KVV_IMAGE']}; start_run; sleep 20"],
        env=environment,
        check=True,
    )

    wait_until(lambda: daemon.client.containers.list(all=True) == [], 30, "the container is gone")

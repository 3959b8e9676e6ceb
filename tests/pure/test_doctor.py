"""What doctor says of a machine; the machine is this one, so that only what holds on any is tested."""

import json
import re

import pytest
from click.testing import CliRunner

from kvverify import doctor
from kvverify.cli import cli
from kvverify.doctor import Diagnosis, Space, Target, available_memory, examine, render
from kvverify.target.accelerator import Accelerator
from kvverify.target.runtimes import CONNECTORS, RUNTIMES, installed_version

GIB = 1 << 30


def diagnosis(**changes):
    facts = {
        "versions": {"kvverify": "1", "vllm": "0.28.0", "lmcache": None},
        "gpu": Accelerator("cuda", "NVIDIA L4", "8.9", "580.95.05", 24 * GIB),
        "gpu_free_bytes": 20 * GIB,
        "gpu_obstacle": None,
        "memory_free_bytes": 8 * GIB,
        "spaces": (
            Space("reports", "/work", writable=True, free_bytes=5 * GIB),
            Space("model cache", "/cache", writable=False, free_bytes=None),
        ),
        "targets": (Target("cuda", "native", None), Target("cuda", "lmcache", "lmcache is not installed")),
    }
    return Diagnosis(**{**facts, **changes})


def test_it_reads_as_one_line_a_fact():
    assert render(diagnosis()).splitlines() == [
        "versions  kvverify 1, vllm 0.28.0 (not installed: lmcache)",
        "gpu       NVIDIA L4, compute capability 8.9, driver 580.95.05, 20.0 GiB free of 24.0 GiB",
        "memory    8.0 GiB free",
        "disk      /work (reports): 5.0 GiB free",
        "disk      /cache (model cache): an unknown amount free, NOT WRITABLE",
        "target    native on cuda: can run",
        "target    lmcache on cuda: cannot run: lmcache is not installed",
    ]


def test_without_a_gpu_it_says_why():
    text = render(diagnosis(gpu=None, gpu_free_bytes=None, gpu_obstacle="no driver answers"))

    assert "gpu       none: no driver answers" in text


def test_it_is_healthy_where_anything_can_run():
    assert diagnosis().healthy()
    assert not diagnosis(targets=(Target("cuda", "native", "no"),)).healthy()
    assert not diagnosis(targets=()).healthy()


def test_every_fact_is_in_the_json():
    found = json.loads(json.dumps(diagnosis().to_json()))

    assert found["healthy"] is True
    assert found["gpu"]["driver"] == "580.95.05"
    assert found["targets"][1] == {"device": "cuda", "name": "lmcache", "obstacle": "lmcache is not installed"}


def test_this_machine_is_told_by_what_is_installed_on_it():
    found = examine()

    for runtime in RUNTIMES:
        assert found.versions[runtime.distribution] == installed_version(runtime.distribution)
    for distribution, _ in CONNECTORS.values():
        assert distribution in found.versions
    assert {(target.device, target.name) for target in found.targets} == {
        (device, name) for device in ("cuda", "cpu") for name in ("native_prefix_caching", "lmcache_connector_v1")
    }
    assert all(space.free_bytes and space.writable for space in found.spaces)
    assert (found.gpu is None) == (found.gpu_obstacle is not None)
    assert found.memory_free_bytes > 0


def test_an_engine_whose_compiled_part_does_not_load_cannot_run(monkeypatch):
    broken = "print('ImportError(libnuma.so.1: cannot open shared object file: No such file)'); raise SystemExit(1)"
    monkeypatch.setattr(doctor, "_LOAD", broken)

    says = doctor._engine_fault.__wrapped__()

    assert says is not None
    assert "does not load (libnuma.so.1: cannot open shared object file)" in says


def test_lmcache_never_runs_on_a_cpu():
    target = next(one for one in examine(["cpu"]).targets if one.name == "lmcache_connector_v1")

    assert target.obstacle is not None
    assert "\n" not in target.obstacle


@pytest.mark.parametrize(
    ("content", "expected"), [("MemTotal: 9 kB\nMemAvailable:   2048 kB\n", 2048 * 1024), ("", None)]
)
def test_free_memory_is_the_kernels_estimate(tmp_path, content, expected):
    (tmp_path / "meminfo").write_text(content)

    assert available_memory(tmp_path / "meminfo") == expected
    assert available_memory(tmp_path / "missing") is None


def test_the_command_ends_with_2_where_nothing_can_run():
    asked = CliRunner().invoke(cli, ["doctor", "--json"], standalone_mode=False)

    assert asked.return_value == (0 if json.loads(asked.output)["healthy"] else 2)


def test_the_command_asks_about_one_device():
    asked = CliRunner().invoke(cli, ["doctor", "--device", "cuda"], standalone_mode=False)

    assert set(re.findall(r"^target .* on (\w+):", asked.output, re.MULTILINE)) == {"cuda"}

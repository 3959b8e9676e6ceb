"""The image's locks: one for each LMCache release, alike in everything that decides what an engine computes."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
LOCKS = {path.stem.removeprefix("gpu-lmcache-"): path for path in (ROOT / "requirements").glob("gpu-lmcache-*.lock")}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def pins(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", lock.read_text(), re.MULTILINE))


def wanted(extra: str) -> dict[str, str]:
    return dict(requirement.split("==") for requirement in EXTRAS[extra])


def test_there_is_a_lock_for_each_release_that_an_upgrade_is_judged_on():
    script = (ROOT / "scripts" / "lock.sh").read_text()
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "gpu-acceptance.yml").read_text())

    versions = re.search(r"LMCACHE_VERSIONS=\((.*?)\)", script)
    assert versions is not None
    assert versions[1].split() == workflow["jobs"]["verify"]["strategy"]["matrix"]["lmcache"]
    assert set(versions[1].split()) == LOCKS.keys()


@pytest.mark.parametrize("version", sorted(LOCKS))
def test_a_lock_holds_its_lmcache_and_the_supported_engine(version):
    found = pins(LOCKS[version])

    assert found["lmcache"] == version
    assert {name: found[name] for name in ("vllm", "torch")} == {
        name: wanted("gpu")[name] for name in ("vllm", "torch")
    }


@pytest.mark.parametrize("version", sorted(LOCKS))
def test_releases_differ_in_nothing_that_computes(version):
    default, other = pins(LOCKS[wanted("gpu")["lmcache"]]), pins(LOCKS[version])
    changed = {name for name in default.keys() | other.keys() if default.get(name) != other.get(name)}

    assert changed <= {"lmcache"} | {name for name in changed if name.startswith("grpcio")}


@pytest.mark.parametrize(
    "lock", [*sorted(LOCKS.values()), ROOT / "requirements" / "cpu.lock"], ids=lambda path: path.stem
)
def test_every_requirement_has_a_hash(lock):
    entries = re.split(r"^(?=[a-z0-9])", lock.read_text(), flags=re.MULTILINE)[1:]

    assert len(entries) == len(pins(lock)) > 50
    assert all("--hash=sha256:" in entry for entry in entries)


def test_the_dockerfile_installs_the_extra_s_lmcache_and_pins_its_bases():
    dockerfile = (ROOT / "Dockerfile").read_text()

    assert set(re.findall(r"^ARG LMCACHE_VERSION=(\S+)$", dockerfile, re.MULTILINE)) == {wanted("gpu")["lmcache"]}
    assert (
        len(
            re.findall(r"^ARG [GC]PU_BASE=python:3\.1[12]-slim-bookworm@sha256:[0-9a-f]{64}$", dockerfile, re.MULTILINE)
        )
        == 2
    )
    assert re.findall(r"^FROM (\S+) AS gpu$", dockerfile, re.MULTILINE) == ["gpu-engine"]
    assert dockerfile.rindex("\nFROM ") == dockerfile.index("\nFROM gpu-engine AS gpu\n")  # what a plain build builds

"""One daemon, one build of the image and one runner for all tests of them."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import images
from .act import Runner, runner_home
from .daemon import Daemon, UnavailableError, install_packages, running_daemon


@pytest.fixture(scope="session")
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """Give a daemon that accepts requests for GPUs. KVVERIFY_TEST_DOCKER_HOST names one that is kept between runs."""
    kept = os.environ.get("KVVERIFY_TEST_DOCKER_HOST")
    if kept:
        running = Daemon(kept)
        yield running
        running.client.close()
        return
    try:
        install_packages()
        with running_daemon(gives_gpus=True) as running:
            yield running
    except UnavailableError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI must run the tests of the image: {error}")
        message = f"THE IMAGE AND THE ACTION ARE NOT TESTED: {error}"
        reporter = request.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"\n\n{message}\n", red=True, bold=True)
        pytest.skip(message)


@pytest.fixture(scope="session")
def cpu_image(daemon: Daemon) -> str:
    images.build_cpu(daemon)
    return images.CPU


@pytest.fixture(scope="session")
def scripted_image(daemon: Daemon, cpu_image: str) -> str:
    images.build_scripted(daemon)
    return images.SCRIPTED


@pytest.fixture(scope="session")
def runner(daemon: Daemon) -> Iterator[Runner]:
    with runner_home() as folder:
        yield Runner(folder, daemon)


@pytest.fixture(scope="session")
def model(runner: Runner, smollm2: Path) -> Path:
    """Return a copy of the model that every user can read, wherever the cache is."""
    copy = runner.folder / "model"
    shutil.copytree(smollm2, copy)
    subprocess.run(["chmod", "-R", "a+rX", copy], check=True)
    return copy


@pytest.fixture(autouse=True)
def no_container_left(daemon: Daemon) -> Iterator[None]:
    """Every test leaves no container behind."""
    yield
    left = [container.name for container in daemon.client.containers.list(all=True)]
    assert left == []

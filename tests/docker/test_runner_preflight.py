"""What the action finds out about a runner before it pulls an image."""

from collections.abc import Iterator

import pytest

from .act import Runner, runner_home
from .daemon import Daemon, running_daemon
from .test_action import inputs

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def bare_runner(daemon: Daemon) -> Iterator[Runner]:
    """Give a runner whose Docker gives out no GPU."""
    with running_daemon(gives_gpus=False) as bare, runner_home() as folder:
        yield Runner(folder, bare)


def test_a_runner_without_gpus_is_refused_before_the_pull(bare_runner, model):
    job = bare_runner.job(inputs(model, "kvverify:no-such-image", device="cuda"))

    assert job.status != 0
    assert any("Docker on this runner gives out no GPU" in line for line in job.annotations("error")), job.log[-3000:]
    assert "NVIDIA Container Toolkit" in job.summary
    assert "pulling" not in job.log
    assert bare_runner.daemon.client.containers.list(all=True) == []
    assert bare_runner.daemon.client.images.list(all=True) == []


def test_without_gpus_asked_for_docker_is_not_asked(bare_runner, model):
    job = bare_runner.job(inputs(model, "localhost:1/kvverify:none"))

    assert any("cannot be pulled" in line for line in job.annotations("error")), job.log[-3000:]

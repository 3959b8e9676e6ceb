"""A Docker daemon of the tests' own: private socket, private data, no network set up, nothing left behind."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker

CLIENT = "/usr/bin/docker"  # the one that comes with the daemon, whose builder it knows
PACKAGES = ("docker.io", "iptables", "mmdebstrap")
RUNNER = 1001
"""User and group that the runner of the action has; it may use the daemon's socket."""

STUB = Path(__file__).parent / "stub"


class UnavailableError(Exception):
    """Docker cannot be had on this machine, and why."""


def install_packages() -> None:
    """Install Docker and the maker of base images from Debian where they are missing."""
    missing = [name for name in PACKAGES if not _installed(name)]
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise UnavailableError(f"not root on Debian, and {', '.join(missing)} not installed")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    wait = ["-o", "DPkg::Lock::Timeout=300"]
    for command in (
        ["apt-get", *wait, "update", "-qq"],
        ["apt-get", *wait, "install", "-y", "-qq", "--no-install-recommends", *missing],
    ):
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise UnavailableError(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")


def _installed(package: str) -> bool:
    return subprocess.run(["dpkg", "-s", package], check=False, capture_output=True).returncode == 0


class Daemon:
    """A running daemon."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.gpu_requests = Path(url.removeprefix("unix://")).parent / "gpu-requests"
        """What the stand-in hook noted, one variable a line."""
        self.client = docker.DockerClient(base_url=url, timeout=120)

    def command(self, *arguments: str | Path, timeout: float = 900) -> subprocess.CompletedProcess[str]:
        """Run the docker command against this daemon."""
        environment = {**os.environ, "DOCKER_HOST": self.url, "DOCKER_BUILDKIT": "1"}
        return subprocess.run(
            [CLIENT, *arguments],
            check=False,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )


@contextmanager
def running_daemon(*, gives_gpus: bool) -> Iterator[Daemon]:
    """Start a daemon; ``gives_gpus`` puts a stand-in for NVIDIA's hook on its path, which notes what was asked for."""
    if os.geteuid() != 0:
        raise UnavailableError("a Docker daemon needs root")
    folder = Path(tempfile.mkdtemp(prefix="kvverify-docker-"))
    folder.chmod(0o711)
    path = os.environ["PATH"]
    environment = {
        **os.environ,
        "PATH": f"{STUB}:{path}" if gives_gpus else path,
        "HOOK_STATE": str(folder / "gpu-requests"),
    }
    arguments = ["--host", f"unix://{folder}/socket", "--group", str(RUNNER)]
    for option, name in (("data-root", "data"), ("exec-root", "exec"), ("pidfile", "pid")):
        arguments += [f"--{option}", str(folder / name)]
    arguments += ["--bridge=none", "--iptables=false", "--ip6tables=false"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(["dockerd", *arguments], env=environment, stdout=log, stderr=log)
    try:
        daemon = _answering(f"unix://{folder}/socket", process, folder / "log")
        yield daemon
        for container in daemon.client.containers.list(all=True):
            container.remove(force=True)
        daemon.client.close()
    finally:
        process.terminate()
        process.wait(60)
        for mount in (folder / "exec" / "netns").glob("*"):
            subprocess.run(["umount", mount], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def _answering(url: str, process: subprocess.Popen[bytes], log: Path) -> Daemon:
    """Wait with the command: a client of the SDK that finds no daemon leaves its socket open."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        asked = subprocess.run([CLIENT, "--host", url, "version"], check=False, capture_output=True)
        if asked.returncode == 0:
            return Daemon(url)
        time.sleep(0.2)
    raise UnavailableError(f"dockerd does not start here: {log.read_text()[-1500:]}")

"""Real servers that the tests share: each starts once, and is gone when the tests are done."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from kvverify.cli import cli
from kvverify.families import check
from kvverify.report.load import load_report

KEY = "a-made-up-key-0123456789"
START_SECONDS = 600
"""A quiet machine needs a tenth of it."""

Run = Callable[..., tuple[int, dict[str, Any], str]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class VllmServer:
    """vLLM's OpenAI-compatible server in a process group of its own."""

    def __init__(self, model: Path, log: Path, core: int, *arguments: str) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = log
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        command += ["--served-model-name", "smollm2", "--host", "127.0.0.1", "--port", self.url.rsplit(":", 1)[1]]
        command += [
            "--max-model-len",
            "512",
            "--max-num-seqs",
            "2",
            "--block-size",
            "16",
            "--dtype",
            "float32",
            "--enforce-eager",
        ]
        command += ["--generation-config", "vllm", *arguments]
        environment = {
            **os.environ,
            "VLLM_CPU_OMP_THREADS_BIND": str(core),  # one thread each, so that all add in one order
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "PYTHONHASHSEED": "0",
            "HF_HUB_OFFLINE": "1",
        }
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command, env=environment, cwd=log.parent, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )

    def wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                if httpx.get(f"{self.url}/health", timeout=2).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.5)
        raise RuntimeError(f"vLLM did not start:\n{self.log.read_text(errors='replace')[-3000:]}")

    def stop(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                os.killpg(self._process.pid, number)
                try:
                    self._process.wait(30)
                except subprocess.TimeoutExpired:
                    continue
        with suppress(ProcessLookupError):  # its engine process can outlive it
            os.killpg(self._process.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def vllm_servers(
    smollm2: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[VllmServer, VllmServer, VllmServer]]:
    """Start three servers: with the cache on, with it off, and with it on but without a word on cached tokens.

    The first two want a key.
    """
    logs = tmp_path_factory.mktemp("vllm")
    tells = ["--enable-prompt-tokens-details"]
    key = ["--api-key", KEY]
    cores = sorted(os.sched_getaffinity(0))
    servers = (
        VllmServer(smollm2, logs / "on.log", cores[0], *tells, *key),
        VllmServer(smollm2, logs / "off.log", cores[-1], "--no-enable-prefix-caching", *tells, *key),
        VllmServer(smollm2, logs / "silent.log", cores[0]),
    )
    try:
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.stop()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Give a function that runs ``kvverify server`` and returns exit status, report and all that it printed.

    The report must be sound, and neither it nor what is printed may hold the key.
    """

    def check_server(*arguments: str, key: bool = True) -> tuple[int, dict[str, Any], str]:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        # A run handles signals from then on; pytest wants its own back.
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        monkeypatch.setenv("A_KEY", KEY)
        try:
            done = CliRunner().invoke(
                cli,
                ["server", *arguments, *(["--api-key-env", "A_KEY"] if key else []), "--report", str(path)],
                standalone_mode=False,
            )
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if done.exception is not None:
            raise done.exception
        assert KEY not in done.output
        assert KEY not in path.read_text()
        document = load_report(path)
        assert check(document, path.parent) == []
        assert done.return_value == document["result"]["exit_status"]
        return done.return_value, document, done.output

    return check_server


@pytest.fixture(scope="session")
def llamacpp_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start llama.cpp's server, as the package xllamacpp holds it, with the demo model's 4-bit weights."""
    scripts = Path(__file__).resolve().parents[2] / "scripts"
    made = subprocess.run(
        [sys.executable, scripts / "smollm2.py", "--gguf"], stdout=subprocess.PIPE, text=True, check=True
    )
    log = tmp_path_factory.mktemp("llamacpp") / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("llamacpp_server.py"), made.stdout.strip()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=out,
            text=True,
        )
    with server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            if not url:
                raise RuntimeError(f"llama.cpp did not start:\n{log.read_text(errors='replace')[-3000:]}")
            yield url
        finally:
            server.kill()

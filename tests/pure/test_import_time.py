"""What runs without an engine starts without one: no heavy import, and fast."""

import os
import re
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

HEAVY = {"torch", "vllm", "transformers", "lmcache", "numpy", "huggingface_hub"}
LIMIT_SECONDS = 0.2
RUNS = 7

COMMANDS = [
    pytest.param(["-c", "import kvverify"], id="import"),
    pytest.param(
        ["-m", "kvverify", "--help"],
        id="help",
        marks=pytest.mark.skipif(find_spec("kvverify.cli") is None, reason="no command line yet"),
    ),
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A user's environment: byte code is kept (here, in a folder of the test's own), no coverage measured."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "COVERAGE", "PYTHON"))}
    return {**kept, "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("bytecode"))}


def run(arguments: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True)
    return done.stderr


@pytest.mark.parametrize("arguments", COMMANDS)
def test_no_engine_is_imported(arguments: list[str], environment: dict[str, str]) -> None:
    trace = run(["-X", "importtime", *arguments], environment)
    imported = {name.split(".")[0] for name in re.findall(r"^import time:.*\|\s*(\S+)$", trace, re.MULTILINE)}
    assert "kvverify" in imported
    assert not imported & HEAVY


@pytest.mark.parametrize("arguments", COMMANDS)
def test_it_answers_fast(arguments: list[str], environment: dict[str, str]) -> None:
    run(arguments, environment)  # the first run compiles
    seconds = []
    for _ in range(RUNS):
        before, start = os.times(), time.perf_counter()
        run(arguments, environment)
        wall, after = time.perf_counter() - start, os.times()
        # The smaller of wall and processor time: on a busy machine, waiting for a core is not start-up.
        used = after.children_user + after.children_system - before.children_user - before.children_system
        seconds.append(min(wall, used))
    assert statistics.median(seconds) < LIMIT_SECONDS


def test_the_package_says_that_it_is_typed() -> None:
    spec = find_spec("kvverify")
    assert spec is not None
    assert spec.origin is not None
    assert (Path(spec.origin).parent / "py.typed").exists()

"""Runs of the product with the real LMCache on the real engine; only LMCache's transfer is a stand-in."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CONFIG = ROOT / "fixtures" / "lmcache-local-cpu.yaml"


@dataclass(frozen=True)
class Run:
    """A run that has ended."""

    status: int
    output: str
    errors: str
    report: Path

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.report.read_text())
        return document

    def target(self, name: str = "lmcache_connector_v1") -> dict[str, dict[str, Any]]:
        """A target's probes by id."""
        return {
            probe["id"]: probe
            for target in self.document["targets"]
            if target["name"] == name
            for probe in target["probes"]
        }


def environment(faults: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(HERE / "standin")])
    return {**os.environ, "PYTHONPATH": path, "LMCACHE_CPU_STANDIN": faults}


@pytest.fixture(scope="session")
def run_lmcache(smollm2: Path) -> Callable[..., Run]:
    """Run ``kvverify run`` with the LMCache target on the CPU engine."""

    def run(folder: Path, *arguments: object, faults: str = "none", variables: Mapping[str, str] = {}) -> Run:
        report = folder / "report.json"
        command = [sys.executable, HERE / "launcher.py", "run", "--model", smollm2, "--device", "cpu"]
        command += ["--kv-connector", "LMCacheConnectorV1", "--lmcache-config", CONFIG, "--report", report]
        done = subprocess.run(
            [*map(str, command), *map(str, arguments)],
            env=environment(faults) | dict(variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=1500,
        )
        return Run(done.returncode, done.stdout, done.stderr, report)

    return run

"""No way to start the command line, however broken, may end with status 1: that means a failed check."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("arguments", [["validate", "/nonexistent"], ["run", "--bogus"], ["compare", "a", "b"]])
def test_an_error_that_cannot_be_written_still_ends_with_2(arguments):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "kvverify", *arguments], cwd=ROOT, stderr=full, check=False)
    assert done.returncode == 2


def test_output_that_cannot_be_written_ends_with_2():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "kvverify", "--help"], cwd=ROOT, stdout=full, check=False)
    assert done.returncode == 2


def test_a_broken_installation_ends_with_2(tmp_path):
    (tmp_path / "click.py").write_text("raise ImportError('broken')")
    variables = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin"}
    done = subprocess.run(
        [sys.executable, "-m", "kvverify", "--help"], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "kvverify: error: ImportError: broken\n"

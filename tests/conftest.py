"""What every test may use."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# An example that waits for a core on a busy machine is no slow example.
settings.register_profile("kvverify", deadline=None)
settings.load_profile("kvverify")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Return the folder of SmolLM2-135M-Instruct (float16): a small real model with a real chat template.

    It is made on first use, checked by sha256 later, and shared by all checkouts: do not write into it.
    """
    made = subprocess.run(
        [sys.executable, ROOT / "scripts" / "smollm2.py"], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(made.stdout.strip())

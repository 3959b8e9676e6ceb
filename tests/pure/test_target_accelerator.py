import ctypes

import pytest

from kvverify.errors import PreflightError
from kvverify.target.accelerator import find_accelerator, memory_in_use, wait_until_free


def test_a_cpu_has_a_name_and_memory_but_no_driver():
    found = find_accelerator("cpu").to_json()
    assert found["device"] == "cpu"
    assert found["name"]
    assert found["memory_bytes"] > 1 << 30
    assert found["driver"] is found["compute_capability"] is None


def test_a_cpu_engine_without_libnuma_is_refused_with_the_remedy(monkeypatch):
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(PreflightError, match=r"libnuma\.so\.1 is missing.*apt-get install libnuma1"):
        find_accelerator("cpu")


def test_a_cpu_has_no_device_memory_to_wait_for():
    assert memory_in_use("cpu") is None
    assert wait_until_free("cpu", None, 0.0) is True

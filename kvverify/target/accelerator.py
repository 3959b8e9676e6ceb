"""The device that an engine will run on, seen from outside: NVML only, so that no process holds a device context."""

import ctypes
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pynvml

from kvverify.errors import PreflightError

_SLACK_BYTES = 64 << 20
"""Memory that may stay in use on a device that an engine has left, for what the driver keeps."""


@dataclass(frozen=True)
class Accelerator:
    """What the engine's device is."""

    device: str
    """``cuda`` or ``cpu``."""
    name: str
    compute_capability: str | None
    """For example ``9.0``; None on a CPU."""
    driver: str | None
    memory_bytes: int | None
    """The device's own memory, or the machine's on a CPU."""

    def to_json(self) -> dict[str, Any]:
        """The facts as the report holds them."""
        return asdict(self)


def find_accelerator(device: str) -> Accelerator:
    """The device that an engine would use; PreflightError where ``cuda`` is asked for and there is none."""
    if device == "cpu":
        _check_libnuma()
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return Accelerator("cpu", _cpu_name(), None, None, memory)
    with _first_visible_gpu() as gpu:
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(gpu)
        return Accelerator(
            "cuda",
            str(pynvml.nvmlDeviceGetName(gpu)),
            f"{major}.{minor}",
            str(pynvml.nvmlSystemGetDriverVersion()),
            int(pynvml.nvmlDeviceGetMemoryInfo(gpu).total),
        )


def memory_in_use(device: str) -> int | None:
    """Bytes of device memory in use by anybody; None on a CPU."""
    if device == "cpu":
        return None
    with _first_visible_gpu() as gpu:
        return int(pynvml.nvmlDeviceGetMemoryInfo(gpu).used)


def wait_until_free(device: str, before: int | None, seconds: float) -> bool:
    """Whether no more device memory than ``before`` (bytes) is in use within ``seconds``; always so on a CPU."""
    deadline = time.monotonic() + seconds
    while before is not None and (memory_in_use(device) or 0) > before + _SLACK_BYTES:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@contextmanager
def _first_visible_gpu() -> Iterator[Any]:
    """NVML's handle of the first GPU that CUDA_VISIBLE_DEVICES leaves (an index or a UUID)."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise PreflightError(
            f"--device cuda: no NVIDIA driver answers ({error})",
            "run on a machine with an NVIDIA GPU (in a container: with --gpus), or ask for --device cpu",
        ) from None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    try:
        if visible.isdigit():
            yield pynvml.nvmlDeviceGetHandleByIndex(int(visible))
        else:
            yield pynvml.nvmlDeviceGetHandleByUUID(visible)
    except pynvml.NVMLError as error:
        raise PreflightError(
            f"--device cuda: the GPU {visible or '(none)'} cannot be used ({error})",
            "check CUDA_VISIBLE_DEVICES",
        ) from None
    finally:
        pynvml.nvmlShutdown()


def _check_libnuma() -> None:
    # Without it vLLM's CPU build only warns, then dies at the engine's start with an unrelated error.
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError:
        raise PreflightError(
            "--device cpu: libnuma.so.1 is missing, which the engine's CPU build needs",
            "install it (Debian and Ubuntu: apt-get install libnuma1)",
        ) from None


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()

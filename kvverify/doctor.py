"""What this machine or container can verify, and why not the rest: facts first, then one line a target."""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import kvverify
from kvverify.comparison.arms import CONTROL, LMCACHE, NATIVE
from kvverify.errors import PreflightError
from kvverify.target.accelerator import Accelerator, find_accelerator, memory_in_use
from kvverify.target.runtimes import CONNECTORS, RUNTIMES, find_runtime, installed_version

DEVICES = tuple(runtime.device for runtime in RUNTIMES)
_GIB = 1 << 30
T = TypeVar("T")

_LOAD_SECONDS = 120
_LOAD = "import torch; from vllm.platforms import current_platform as p; p.import_kernels(); torch.ops._C.rms_norm"
"""Loads the kernels as a worker does. vLLM only warns where that fails; an operator that is not there is the proof."""


@dataclass(frozen=True)
class Target:
    """A target on a device, and what stands against it here."""

    device: str
    name: str
    obstacle: str | None
    """Why it cannot run; None where it can."""


@dataclass(frozen=True)
class Space:
    """A folder that a run writes to."""

    purpose: str
    path: str
    writable: bool
    free_bytes: int | None
    """None where the folder cannot be looked at."""


@dataclass(frozen=True)
class Diagnosis:
    """Everything that ``kvverify doctor`` says."""

    versions: dict[str, str | None]
    """Our own, Python's, and those of engine and connector distributions; None where one is not installed."""
    gpu: Accelerator | None
    gpu_free_bytes: int | None
    gpu_obstacle: str | None
    """Why no GPU can be used; None where one can."""
    memory_free_bytes: int | None
    """What the machine can still give, as the kernel estimates it; a container's own limit is not in it."""
    spaces: tuple[Space, ...]
    targets: tuple[Target, ...]

    def healthy(self) -> bool:
        """Whether any target can run on any device that was asked about."""
        return any(target.obstacle is None for target in self.targets)

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {**asdict(self), "healthy": self.healthy()}


def examine(devices: Iterable[str] = DEVICES) -> Diagnosis:
    """Look at this machine: packages, GPU, memory, disk, and which targets can run on ``devices``."""
    gpu, gpu_obstacle = _try(lambda: find_accelerator("cuda"))
    in_use, _ = _try(lambda: memory_in_use("cuda"))
    total = gpu.memory_bytes if gpu else None
    return Diagnosis(
        versions=_versions(),
        gpu=gpu,
        gpu_free_bytes=None if total is None or in_use is None else total - in_use,
        gpu_obstacle=gpu_obstacle,
        memory_free_bytes=available_memory(Path("/proc/meminfo")),
        spaces=tuple(_space(purpose, path) for purpose, path in _folders()),
        targets=tuple(
            Target(device, name, _obstacle(device, name)) for device in devices for name in (NATIVE, LMCACHE)
        ),
    )


def available_memory(meminfo: Path) -> int | None:
    """Bytes that the kernel says can be had without swapping (``MemAvailable``), None where it does not say."""
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    sizes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(sizes[0]) * 1024 if sizes else None


def render(diagnosis: Diagnosis) -> str:
    """Lay a diagnosis out for a terminal; the last lines say what can run."""
    versions = ", ".join(f"{name} {version}" for name, version in diagnosis.versions.items() if version)
    absent = ", ".join(name for name, version in diagnosis.versions.items() if not version)
    lines = [f"versions  {versions}" + (f" (not installed: {absent})" if absent else "")]
    gpu = diagnosis.gpu
    if gpu is None:
        lines.append(f"gpu       none: {diagnosis.gpu_obstacle}")
    else:
        lines.append(
            f"gpu       {gpu.name}, compute capability {gpu.compute_capability}, driver {gpu.driver}, "
            f"{_size(diagnosis.gpu_free_bytes)} free of {_size(gpu.memory_bytes)}"
        )
    lines.append(f"memory    {_size(diagnosis.memory_free_bytes)} free")
    for space in diagnosis.spaces:
        state = f"{_size(space.free_bytes)} free" + ("" if space.writable else ", NOT WRITABLE")
        lines.append(f"disk      {space.path} ({space.purpose}): {state}")
    for target in diagnosis.targets:
        state = "can run" if target.obstacle is None else f"cannot run: {target.obstacle}"
        lines.append(f"target    {target.name} on {target.device}: {state}")
    return "\n".join(lines)


def _versions() -> dict[str, str | None]:
    distributions = (*(r.distribution for r in RUNTIMES), *(name for name, _ in CONNECTORS.values()), "torch")
    return {
        "kvverify": kvverify.__version__,
        "python": platform.python_version(),
        **{name: installed_version(name) for name in distributions},
    }


def _obstacle(device: str, target: str) -> str | None:
    """Say what preflight would say first against a target, then whether the engine loads; every run has a control."""
    _, obstacle = _try(lambda: find_runtime(device, (CONTROL, target)))
    if obstacle is None:
        _, obstacle = _try(lambda: find_accelerator(device))
    return obstacle or _engine_fault()


@cache
def _engine_fault() -> str | None:
    """Say why the installed engine's compiled part does not load; None where it does.

    A process of its own tries as the engine does: a missing system library shows nowhere else before an engine starts.
    """
    variables = {**os.environ, "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _LOAD],
            check=False,
            capture_output=True,
            text=True,
            env=variables,
            timeout=_LOAD_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"the engine's compiled part did not load within {_LOAD_SECONDS} s; see what keeps this machine busy"
    if done.returncode == 0:
        return None
    said = done.stdout + done.stderr
    library = re.search(r"lib[\w.+-]+: cannot open shared object file", said)
    last = said.strip().rpartition("\n")[2]
    cause = library[0] if library else last or f"status {done.returncode}"
    return f"the engine's compiled part does not load ({cause}); install the system library or package that is missing"


def _try(look: Callable[[], T]) -> tuple[T | None, str | None]:
    try:
        return look(), None
    except PreflightError as error:
        return None, str(error)


def _folders() -> tuple[tuple[str, Path], ...]:
    hub = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    return (("reports", Path.cwd()), ("temporary files", Path(tempfile.gettempdir())), ("model cache", Path(hub)))


def _space(purpose: str, path: Path) -> Space:
    existing = next((folder for folder in (path, *path.parents) if folder.exists()), path)
    try:
        free = shutil.disk_usage(existing).free
    except OSError:
        free = None
    return Space(purpose, str(path), os.access(existing, os.W_OK), free)


def _size(count: int | None) -> str:
    return "an unknown amount" if count is None else f"{count / _GIB:.1f} GiB"

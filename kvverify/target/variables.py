"""The environment of the engine processes: what kvverify sets, and what a report records."""

import os
from collections.abc import Mapping
from pathlib import Path

import kvverify
from kvverify.redaction import without_secrets

ENFORCED = {
    "PYTHONHASHSEED": "0",  # LMCache draws its first hash from it: unequal processes never hit
    "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "LMCACHE_TRACK_USAGE": "false",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONSAFEPATH": "1",  # never import vllm or LMCache from the folder that the caller happens to be in
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order of NVML, which tells us about the GPU
    "PYTHONUNBUFFERED": "1",  # a log without its last lines would hide the cause of a crash
}
"""Set to these values in every arm, whatever the caller's environment says."""

_RECORDED_PREFIXES = (
    "VLLM_",
    "LMCACHE_",
    "CUDA_",
    "NCCL_",
    "TORCH",
    "PYTORCH_",
    "OMP_",
    "MKL_",
    "FLASHINFER_",
    "HF_",
)
_RECORDED_NAMES = (
    "PYTHONHASHSEED",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "TRANSFORMERS_OFFLINE",
    "NVIDIA_VISIBLE_DEVICES",
)
_SECRET_WORDS = ("TOKEN", "KEY", "SECRET", "PASSW", "PASSPHRASE", "CREDENTIAL", "_AUTH")


def arm_variables(environment: Mapping[str, str], device: str) -> dict[str, str]:
    """The whole environment of an arm's processes, from the caller's.

    On a CPU every arm is bound to the same core: vLLM would otherwise give an arm with a connector one thread
    fewer (vllm/utils/ompmultiprocessing.py), and with it another order of reductions. A caller's own
    binding or cache size is kept, since it is the same for every arm.
    """
    variables = {**environment, **ENFORCED}
    # With a safe path Python does not look in the current folder, where a checkout of kvverify itself may be.
    own = str(Path(kvverify.__file__).resolve().parent.parent)
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), own]))
    if device == "cpu":
        first_core = min(os.sched_getaffinity(0))
        variables.setdefault("VLLM_CPU_OMP_THREADS_BIND", str(first_core))
        variables.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
    return variables


def recorded_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that can change what an engine computes, by name; values of secrets are never among them."""
    return {
        name: "(set, not recorded)" if any(word in name.upper() for word in _SECRET_WORDS) else without_secrets(value)
        for name, value in sorted(variables.items())
        if name.startswith(_RECORDED_PREFIXES) or name in _RECORDED_NAMES
    }

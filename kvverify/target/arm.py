"""One arm's engine: the settings that all arms of a run share, and what an arm adds to them."""

from dataclasses import dataclass, field
from typing import Any

from kvverify.comparison.arms import misfits


@dataclass(frozen=True)
class EngineSettings:
    """What every arm of a run has in common: only the caches may differ between arms."""

    model: str
    """Folder of the model."""
    tokenizer: str
    dtype: str
    seed: int
    max_model_len: int
    """Tokens, prompt and answer together."""
    block_size: int
    """Tokens of one KV block."""
    gpu_memory_utilization: float
    """Share of the device's memory, between 0 and 1."""
    max_tokens: int
    """Generated tokens an answer."""

    def engine_arguments(self) -> dict[str, Any]:
        """Keyword arguments of vLLM's EngineArgs, caches left out."""
        return {
            "model": self.model,
            "tokenizer": self.tokenizer,
            "dtype": self.dtype,
            "seed": self.seed,
            "max_model_len": self.max_model_len,
            "block_size": self.block_size,
            "gpu_memory_utilization": self.gpu_memory_utilization,
            "generation_config": "vllm",  # not the model's sampling defaults
            "enforce_eager": True,  # graphs and compilation would be one more thing that could differ
            "max_num_seqs": 1,  # one request at a time: no batch whose composition changes a reduction
            "max_num_batched_tokens": self.max_model_len,  # a prompt is one prefill, never split by a budget
        }

    def sampling(self) -> dict[str, Any]:
        """Keyword arguments of vLLM's SamplingParams: greedy, and exactly ``max_tokens`` tokens.

        End-of-sequence ids are ignored: an answer that ends early compares fewer ids, and shorter checks miss
        differences.
        """
        return {
            "temperature": 0.0,
            "seed": self.seed,
            "max_tokens": self.max_tokens,
            "ignore_eos": True,
            "detokenize": False,
        }


@dataclass(frozen=True)
class Arm:
    """One engine of a run."""

    name: str
    """One of the names in ``kvverify.comparison.arms``."""
    settings: EngineSettings
    caching: dict[str, Any]
    """The engine arguments that select this arm's caches."""
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables that this arm adds."""
    scope_tag: str | None = None
    """KV transfer parameter that carries the cache scope to a connector; None where the salt does."""
    connector_settings: dict[str, Any] = field(default_factory=dict)
    """Settings that the connector in the engine's worker must have, as preflight resolved them."""

    @property
    def has_connector(self) -> bool:
        """Whether a KV connector serves the arm's reuses."""
        return "kv_transfer_config" in self.caching

    @property
    def clear_kv_memory(self) -> bool:
        """Whether the engine's own KV memory must be cleared before each answer: where only a connector may reuse."""
        return self.has_connector

    def engine_arguments(self) -> dict[str, Any]:
        """All keyword arguments of vLLM's EngineArgs."""
        return self.settings.engine_arguments() | self.caching

    def sampling_extra(self, scope: str) -> dict[str, Any]:
        """``extra_args`` of a request in a cache scope; the salt, which every arm sends, is not part of them."""
        return {} if self.scope_tag is None else {"kv_transfer_params": {self.scope_tag: scope}}

    def mismatches(self, effective: dict[str, Any]) -> list[str]:
        """What the engine resolved otherwise than asked; empty where all is as it must be."""
        found = misfits(self.name, effective)
        asked = self.settings
        for key, value in (
            ("model", asked.model),
            ("dtype", f"torch.{asked.dtype}"),
            ("max_model_len", asked.max_model_len),
            ("block_size", asked.block_size),
            ("max_num_seqs", 1),
            ("enforce_eager", True),
        ):
            if effective.get(key) != value:
                found.append(f"the engine's {key} is {effective.get(key)!r}, asked for was {value!r}")
        sampling = effective.get("sampling", {})
        for key, value in asked.sampling().items():
            if sampling.get(key) != value:
                found.append(f"the engine's sampling field {key} is {sampling.get(key)!r}, asked for was {value!r}")
        lmcache = (effective.get("connector") or {}).get("lmcache")
        for name, origin in (("vllm", effective.get("code")), ("lmcache", lmcache and lmcache.get("code"))):
            if (name == "vllm" or self.has_connector) and (origin or {}).get("installed") is not True:
                found.append(f"the engine imported {name} from {(origin or {}).get('file')}, not as it is installed")
        settings = ((effective.get("connector") or {}).get("lmcache") or {}).get("settings", {})
        for key, value in self.connector_settings.items():
            if settings.get(key, {"value": "unknown"})["value"] != value:
                found.append(f"the connector's {key} is not {value!r}, which preflight resolved")
        return found

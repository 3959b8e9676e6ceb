"""A stand-in for the one part of LMCache that has no CPU path: the copy between its chunks and vLLM's paged KV cache.

A vLLM general plugin of these tests, never part of the product. Everything else of LMCache runs as it is. The variable
``LMCACHE_CPU_STANDIN`` must be set, so that every report made with it says so in its environment. Its value names
faults to inject when a chunk is restored, by probe: ``chat-511-r1=zero_layer,chat-512-r3=shift_slots``; ``none`` for no
fault. A fault that ends in ``@2`` begins with the second reuse.
"""

import os
import re
from typing import Any

VARIABLE = "LMCACHE_CPU_STANDIN"


def register() -> None:
    """Let LMCache find a CPU connector; called by vLLM in each of its processes."""
    if VARIABLE not in os.environ:
        return
    import lmcache.v1.gpu_connector as connectors
    from lmcache.utils import EngineType

    create = connectors.CreateGPUConnector

    def create_or_stand_in(config: Any, metadata: Any, engine: Any, *rest: Any, **named: Any) -> Any:
        if engine == EngineType.VLLM:
            return make_connector(metadata)
        return create(config, metadata, engine, *rest, **named)

    connectors.CreateGPUConnector = create_or_stand_in


def make_connector(metadata: Any) -> Any:
    import torch
    from lmcache.v1.gpu_connector.gpu_connectors import GPUConnectorInterface

    class CPUConnector(GPUConnectorInterface):  # type: ignore[misc]  # LMCache is not typed for us
        """Copies chunks ``[2, layers, tokens, heads * size]`` from and to blocks ``[blocks, heads, block, 2 * size]``."""

        def __init__(self) -> None:
            self.layers, _, _, self.heads, self.size = metadata.kv_shape
            self.caches: list[torch.Tensor] = []
            self.first_stored: torch.Tensor | None = None

        def initialize_kvcaches_ptr(self, **named: Any) -> None:
            if "kvcaches" in named:
                self.caches = list(named["kvcaches"])

        def blocks(self, start: int, end: int, named: dict[str, Any]) -> torch.Tensor:
            self.initialize_kvcaches_ptr(**named)
            slots = named["slot_mapping"][start:end]
            block = self.caches[0].shape[2]
            assert len(slots) % block == 0
            return (slots[::block] // block).long()

        def split(self, side: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
            """One layer's K or V of a chunk, seen as the blocks are laid out."""
            block = self.caches[0].shape[2]
            return side.view(len(blocks), block, self.heads, self.size).transpose(1, 2)

        def from_gpu(self, memory_obj: Any, start: int, end: int, **named: Any) -> None:
            blocks, chunk = self.blocks(start, end, named), memory_obj.tensor
            for layer, cache in enumerate(self.caches):
                self.split(chunk[0, layer], blocks).copy_(cache[blocks][..., : self.size])
                self.split(chunk[1, layer], blocks).copy_(cache[blocks][..., self.size :])
            if self.first_stored is None:
                self.first_stored = chunk.clone()

        def to_gpu(self, memory_obj: Any, start: int, end: int, **named: Any) -> None:
            blocks = self.blocks(start, end, named)
            chunk = self.faulty(memory_obj.tensor.clone(), start, str(named.get("req_id", "")))
            for layer, cache in enumerate(self.caches):
                both = [self.split(chunk[side, layer], blocks) for side in (0, 1)]
                cache[blocks] = torch.cat(both, dim=-1)

        def faulty(self, chunk: torch.Tensor, start: int, request: str) -> torch.Tensor:
            fault, first = fault_for(request)
            if fault is None or reuse_ordinal(request) < first:
                return chunk
            if fault == "zero_layer" and start == 0:
                chunk[:, self.layers // 2] = 0
            elif fault == "shift_slots":
                chunk = torch.roll(chunk, 1, dims=2)
            elif fault == "swap_k_and_v":
                head = slice(0, self.size)
                chunk[..., head] = chunk[..., head].flip(0)
            elif fault == "another_request":
                assert self.first_stored is not None
                chunk = self.first_stored.clone()
            return chunk

        def batched_from_gpu(self, memory_objs: Any, starts: Any, ends: Any, **named: Any) -> None:
            for one, start, end in zip(memory_objs, starts, ends, strict=True):
                self.from_gpu(one, start, end, **named)

        def batched_to_gpu(self, memory_objs: Any, starts: Any, ends: Any, **named: Any) -> None:
            for one, start, end in zip(memory_objs, starts, ends, strict=True):
                self.to_gpu(one, start, end, **named)

        def get_shape(self, num_tokens: int) -> torch.Size:
            return torch.Size([2, self.layers, num_tokens, self.heads * self.size])

    return CPUConnector()


def fault_for(request: str) -> tuple[str | None, int]:
    """The fault of the probe that a request belongs to, and the reuse that it begins with."""
    for entry in os.environ[VARIABLE].split(","):
        probe, _, fault = entry.partition("=")
        if fault and f".{probe}." in request:
            name, _, first = fault.partition("@")
            return name, int(first or 1)
    return None, 1


def reuse_ordinal(request: str) -> int:
    found = re.search(r"\.reuse\.(\d+)", request)
    return int(found[1]) if found else 0

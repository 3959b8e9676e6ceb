"""The copy itself, and the faults that it can be given."""

import os
import re
from typing import Any

import torch
from lmcache.v1.gpu_connector.gpu_connectors import GPUConnectorInterface


class CPUConnector(GPUConnectorInterface):
    """Copies chunks from and to the blocks of vLLM's paged cache.

    A chunk is ``[2, layers, tokens, heads * size]``, a layer's cache ``[blocks, heads, block, 2 * size]``.
    """

    def __init__(self, metadata: Any) -> None:
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
        request = str(named.get("req_id", ""))
        if fault_for(request)[0] == "restore_nothing":
            return
        blocks = self.blocks(start, end, named)
        chunk = self.faulty(memory_obj.tensor.clone(), start, request)
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


def fault_for(request: str) -> tuple[str | None, int]:
    """The fault of the probe that a request belongs to, and the reuse that it begins with."""
    for entry in os.environ["LMCACHE_CPU_STANDIN"].split(","):
        probe, _, fault = entry.partition("=")
        if fault and f".{probe}." in request:
            name, _, first = fault.partition("@")
            return name, int(first or 1)
    return None, 1


def reuse_ordinal(request: str) -> int:
    found = re.search(r"\.reuse\.(\d+)", request)
    return int(found[1]) if found else 0

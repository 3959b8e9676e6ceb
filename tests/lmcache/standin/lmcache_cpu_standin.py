"""A stand-in for the one part of LMCache that has no CPU path: the copy between its chunks and vLLM's paged KV cache.

A vLLM general plugin of these tests, never part of the product. Everything else of LMCache runs as it is. The variable
``LMCACHE_CPU_STANDIN`` must be set, so that every report made with it says so in its environment. Its value names
faults to inject when a chunk is restored, by probe: ``chat-511-r1=zero_layer,chat-512-r3=shift_slots``; ``none`` for no
fault. A fault that ends in ``@2`` begins with the second reuse.
"""

import os
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
            from lmcache_cpu_connector import CPUConnector

            return CPUConnector(metadata)
        return create(config, metadata, engine, *rest, **named)

    connectors.CreateGPUConnector = create_or_stand_in

"""A vLLM general plugin that breaks reuse, for real: it zeroes KV that a request is about to reuse.

``KV_FAULT`` says which prompts and since which of their hits, for example ``63:1,64:2``: prompts of 63 tokens from
their first hit on, prompts of 64 from their second. Only KV that a prefix hit found is touched, so every counter
still tells of a clean hit, and whatever is computed is right.
"""

import os
from collections import Counter
from typing import Any


def register() -> None:
    """Wrap the CPU model runner's ``execute_model``; called by vLLM in each of its processes."""
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    first_hit = {int(tokens): int(hit) for tokens, _, hit in (one.partition(":") for one in _faults())}
    hits: Counter[tuple[int, ...]] = Counter()
    execute_model = CPUModelRunner.execute_model

    def with_fault(self: Any, scheduler_output: Any, *rest: Any, **named: Any) -> Any:
        for request in scheduler_output.scheduled_new_reqs:
            prompt = tuple(request.prompt_token_ids)
            if request.num_computed_tokens == 0 or len(prompt) not in first_hit:
                continue
            hits[prompt] += 1
            if hits[prompt] >= first_hit[len(prompt)]:
                for layer in self.kv_caches:
                    layer[request.block_ids[0][0]].zero_()
        return execute_model(self, scheduler_output, *rest, **named)

    CPUModelRunner.execute_model = with_fault


def _faults() -> list[str]:
    return os.environ["KV_FAULT"].split(",")

"""The generations of one arm with vLLM's own ``LLM`` class and nothing else; the task is JSON on standard input."""

import json
import sys
from typing import Any


def main(task: dict[str, Any]) -> None:
    from vllm import LLM, SamplingParams, TokensPrompt
    from vllm.config import KVTransferConfig

    arguments = task["engine_arguments"]
    if "kv_transfer_config" in arguments:
        arguments["kv_transfer_config"] = KVTransferConfig(**arguments["kv_transfer_config"])
    llm = LLM(**arguments)
    for prompt in task["prompts"]:
        sampling = SamplingParams(**task["sampling"], extra_args=prompt["extra"] or None)
        llm.generate(TokensPrompt(prompt_token_ids=prompt["ids"], cache_salt=prompt["scope"]), sampling, use_tqdm=False)


if __name__ == "__main__":
    main(json.load(sys.stdin))

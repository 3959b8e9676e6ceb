"""What the arm's process does with each command: prepare, start, generate, stop."""

import asyncio
import os
import traceback
from queue import SimpleQueue
from typing import Any

import torch
from vllm import SamplingParams, TokensPrompt
from vllm.config import KVTransferConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import RequestOutputKind
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.executor import Executor
from vllm.v1.metrics.loggers import StatLoggerBase

from kvverify.engine.wire import (
    Answered,
    Failed,
    Generate,
    Message,
    Prepare,
    Prepared,
    Start,
    Started,
    Stop,
    Stopped,
    encode,
)
from kvverify.engine.worker.inspection import EXTENSION, effective_facts, json_value


class PromptTokenSources(StatLoggerBase):  # type: ignore[misc]  # vLLM is not typed for us
    """Keeps the split of the prompt tokens of the requests since ``clear``, summed over iterations.

    ``RequestOutput.num_cached_tokens`` is the sum of both caches and starts at 0; the split comes only to a
    stat logger
    (vllm/v1/metrics/stats.py, ``PromptTokenStats``). One request runs at a time, so the sums are that
    request's.
    """

    latest: "PromptTokenSources"

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        self.clear()
        PromptTokenSources.latest = self

    def clear(self) -> None:
        self.total = self.local = self.external = 0

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        if iteration_stats is not None:
            prompt = iteration_stats.prompt_token_stats
            self.total += prompt.total
            self.local += prompt.local_cache_hit
            self.external += prompt.external_kv_transfer

    def log_engine_initialized(self) -> None:
        pass


class Engine:
    """One vLLM engine and the settings it was prepared with."""

    def __init__(self, prepare: Prepare) -> None:
        given = dict(prepare.engine_arguments)
        if transfer := given.pop("kv_transfer_config", None):
            given["kv_transfer_config"] = KVTransferConfig(**transfer)
        arguments = AsyncEngineArgs(**given, worker_extension_cls=EXTENSION)
        self.config = arguments.create_engine_config(UsageContext.ENGINE_CONTEXT)
        self.sampling = prepare.sampling
        self.clear_kv_memory = prepare.clear_kv_memory
        self.shutdown_seconds = prepare.shutdown_seconds
        self.llm: AsyncLLM | None = None

    async def start(self) -> Started:
        self.llm = AsyncLLM(
            vllm_config=self.config,
            executor_class=Executor.get_class(self.config),
            log_stats=False,
            log_requests=False,
            stat_loggers=[PromptTokenSources],
        )
        (worker,) = await self.llm.collective_rpc("kvverify_inspect")
        sampling = self.sampling_params({})
        fields = {name: json_value(getattr(sampling, name)) for name in SamplingParams.__struct_fields__}
        facts = effective_facts(self.config, worker, fields) | {"kv_memory_cleared": self.clear_kv_memory}
        return Started(facts, json_value(self.config))

    def sampling_params(self, extra: dict[str, Any]) -> SamplingParams:
        return SamplingParams(**self.sampling, output_kind=RequestOutputKind.FINAL_ONLY, extra_args=extra or None)

    async def answer(self, command: Generate) -> Answered:
        if self.llm is None:
            raise RuntimeError("Generate came before Start")
        if self.clear_kv_memory:
            await self.llm.collective_rpc("kvverify_clear_kv_memory")
        sources = PromptTokenSources.latest
        sources.clear()
        prompt = TokensPrompt(prompt_token_ids=command.prompt_token_ids, cache_salt=command.scope)
        sampling = self.sampling_params(command.sampling_extra)
        try:
            (output,) = [each async for each in self.llm.generate(prompt, sampling, command.request)]
        except EngineDeadError:
            raise  # no further request can be answered either: the arm has failed, not this one answer
        except Exception as error:
            return Answered(command.request, None, None, None, None, None, None, f"{type(error).__name__}: {error}")
        # The final output is queued just before its iteration's statistics are recorded (async_llm.py,
        # output_handler).
        for _ in range(50):
            if sources.total:
                break
            await asyncio.sleep(0.01)
        split_known = sources.total == len(command.prompt_token_ids)
        (completion,) = output.outputs
        return Answered(
            request=command.request,
            prompt_token_ids=output.prompt_token_ids,
            generated_token_ids=list(completion.token_ids),
            finish_reason=completion.finish_reason,
            cached_tokens=output.num_cached_tokens,
            cached_tokens_local=sources.local if split_known else None,
            cached_tokens_external=sources.external if split_known else None,
            error=None,
        )

    def stop(self) -> None:
        if self.llm is not None:
            self.llm.shutdown(timeout=self.shutdown_seconds)


def serve(commands: "SimpleQueue[Message]", events_out: int) -> None:
    """Carry out commands in order; an exception is sent as Failed and ends the process with status 1."""
    asyncio.run(_serve(commands, events_out))


async def _serve(commands: "SimpleQueue[Message]", events_out: int) -> None:
    engine: Engine | None = None

    def send(event: Message) -> None:
        data = encode(event)
        while data:
            data = data[os.write(events_out, data) :]

    while True:
        command = await asyncio.to_thread(commands.get)
        try:
            match command, engine:
                case Prepare(), None:
                    engine = Engine(command)
                    send(Prepared(device_initialized=torch.cuda.is_initialized()))
                case Start(), Engine():
                    send(await engine.start())
                case Generate(), Engine():
                    send(await engine.answer(command))
                case Stop(), _:
                    if engine is not None:
                        engine.stop()
                    send(Stopped())
                    return
                case _:
                    raise RuntimeError(f"{type(command).__name__} came out of order")
        except Exception as error:
            traceback.print_exc()  # to the arm's log, where the parent looks for causes
            send(Failed(type(command).__name__, f"{type(error).__name__}: {error}"))
            raise SystemExit(1) from None

"""SGLang's server: token ids in and out through its native ``/generate``."""

from collections.abc import Sequence
from typing import Any

from kvverify.server import metrics
from kvverify.server.client import CacheUse, Identity, Kind, Load, Prompt, Reply, count, ids, member, text
from kvverify.server.conversations import Message
from kvverify.server.http import RequestFailed, Transport
from kvverify.server.openai import GREEDY_EXTENDED, chat, failed, salted

_SAMPLING: dict[str, Any] = {
    "temperature": 0,
    "top_p": 1,
    "top_k": -1,
    "min_p": 0,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "repetition_penalty": 1,
}
_SETTINGS = (
    "disable_radix_cache",
    "page_size",
    "enable_cache_report",
    "sampling_defaults",
    "attention_backend",
    "sampling_backend",
    "dtype",
    "kv_cache_dtype",
    "quantization",
    "chunked_prefill_size",
    "tp_size",
    "enable_deterministic_inference",
)
"""Members of ``/server_info`` that bear on reuse and numerics. It holds keys, too: nothing else is read."""


class SGLangClient:
    """An SGLang server."""

    kind: Kind = "sglang"

    def __init__(self, transport: Transport, model: str) -> None:
        self._transport = transport
        self._model = model

    def identify(self) -> Identity:
        try:
            info = self._transport.get("/server_info")
        except RequestFailed:
            info = None
        told = {name: member(info, name) for name in _SETTINGS}
        settings = {name: value for name, value in told.items() if isinstance(value, bool | int | str)}
        return Identity(self.kind, text(member(info, "version")), self._model, settings)

    def render(self, messages: Sequence[Message]) -> tuple[int, ...] | None:
        body = {"model": self._model, "messages": [message.to_json() for message in messages]}
        try:
            said, _ = self._transport.post("/v1/tokenize", body)
        except RequestFailed as error:
            if error.unreachable:
                raise
            return None
        return ids(member(said, "tokens"))

    def answer(self, prompt: Prompt, max_tokens: int, cache: CacheUse) -> Reply:
        if prompt.ids is None:
            return chat(self._transport, self._model, prompt, max_tokens, salted(GREEDY_EXTENDED, cache))
        body: dict[str, Any] = {
            "input_ids": list(prompt.ids),
            "sampling_params": {**_SAMPLING, "max_new_tokens": max_tokens},
        }
        try:
            said, attempts = self._transport.post("/generate", salted(body, cache))
        except RequestFailed as error:
            return failed(error)
        answer = text(member(said, "text"))
        return Reply(
            prompt_tokens=count(member(said, "meta_info", "prompt_tokens")),
            generated=ids(member(said, "output_ids")),
            text=answer,
            completion_tokens=count(member(said, "meta_info", "completion_tokens")),
            finish_reason=text(member(said, "meta_info", "finish_reason", "type")),
            cached_tokens=count(member(said, "meta_info", "cached_tokens")),
            reasoning="</think>" in (answer or ""),
            attempts=attempts,
        )

    def load(self) -> Load:
        """Read the metrics, where the server was started with ``--enable-metrics``."""
        try:
            told = self._transport.get_text("/metrics")
        except RequestFailed:
            told = ""
        return Load(
            running=metrics.total(told, "sglang:num_running_reqs"),
            generated_tokens=metrics.total(told, "sglang:generation_tokens_total"),
        )

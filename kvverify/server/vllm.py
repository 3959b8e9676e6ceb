"""vLLM's OpenAI-compatible server: token ids in and out."""

from collections.abc import Sequence
from dataclasses import replace

from kvverify.server import metrics
from kvverify.server.client import CacheUse, Identity, Kind, Load, Prompt, Reply, ids, member, text
from kvverify.server.conversations import Message
from kvverify.server.http import RequestFailed, Transport
from kvverify.server.openai import GREEDY_EXTENDED, chat, failed, salted, usage

_FIELDS = {**GREEDY_EXTENDED, "return_token_ids": True}
_SETTINGS = ("enable_prefix_caching", "block_size", "cache_dtype", "prefix_caching_hash_algo", "sliding_window")
"""Labels of ``vllm:cache_config_info`` that bear on reuse."""


class VllmClient:
    """A vLLM server. Where it renders no prompts (no ``/tokenize``), messages are sent as they are."""

    kind: Kind = "vllm"

    def __init__(self, transport: Transport, model: str) -> None:
        self._transport = transport
        self._model = model

    def identify(self) -> Identity:
        try:
            version = text(member(self._transport.get("/version"), "version"))
        except RequestFailed:
            version = None
        told = metrics.labels(self._metrics(), "vllm:cache_config_info")
        settings = {name: told[name] for name in _SETTINGS if told.get(name, "None") != "None"}
        return Identity(self.kind, version, self._model, settings)

    def render(self, messages: Sequence[Message]) -> tuple[int, ...] | None:
        body = {"model": self._model, "messages": [message.to_json() for message in messages]}
        try:
            said, _ = self._transport.post("/tokenize", {**body, "add_generation_prompt": True})
        except RequestFailed as error:
            if error.unreachable:
                raise
            return None
        return ids(member(said, "tokens"))

    def answer(self, prompt: Prompt, max_tokens: int, cache: CacheUse) -> Reply:
        fields = salted(_FIELDS, cache)
        if prompt.ids is None:
            return chat(self._transport, self._model, prompt, max_tokens, fields)
        body = {"model": self._model, "prompt": list(prompt.ids), "max_tokens": max_tokens, **fields}
        try:
            said, attempts = self._transport.post("/v1/completions", body)
        except RequestFailed as error:
            return failed(error)
        choice = member(said, "choices", 0)
        reply = Reply(
            **usage(said),
            prompt_token_ids=ids(member(choice, "prompt_token_ids")),
            generated=ids(member(choice, "token_ids")),
            text=text(member(choice, "text")),
            finish_reason=text(member(choice, "finish_reason")),
            attempts=attempts,
        )
        return replace(reply, reasoning="</think>" in (reply.text or ""))

    def load(self) -> Load:
        told = self._metrics()
        return Load(
            running=metrics.total(told, "vllm:num_requests_running"),
            generated_tokens=metrics.total(told, "vllm:generation_tokens_total"),
        )

    def _metrics(self) -> str:
        try:
            return self._transport.get_text("/metrics")
        except RequestFailed:
            return ""

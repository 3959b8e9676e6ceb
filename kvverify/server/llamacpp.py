"""llama.cpp's server: token ids in and out, and a word for each request on whether the cache may be read.

``timings.cache_n`` counts reused prompt tokens. ``tokens_cached`` does not: it is what the slot holds after the answer.
"""

from collections.abc import Sequence
from typing import Any

from kvverify.server import metrics
from kvverify.server.client import SEED, CacheUse, Identity, Kind, Load, Prompt, Reply, count, ids, member, text
from kvverify.server.conversations import Message
from kvverify.server.http import RequestFailed, Transport
from kvverify.server.openai import GREEDY, chat, failed

_SAMPLING: dict[str, Any] = {
    "temperature": 0,
    "seed": SEED,
    "top_k": 0,
    "top_p": 1,
    "min_p": 0,
    "typical_p": 1,
    "repeat_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "dry_multiplier": 0,
    "xtc_probability": 0,
    "mirostat": 0,
    "stream": False,
}
_FINISH = {"eos": "stop", "word": "stop", "limit": "length"}
"""llama.cpp's words for why an answer ended, and OpenAI's for the same."""


class LlamaCppClient:
    """A llama.cpp server. All requests go to its first slot, whose KV is what a next request may reuse."""

    kind: Kind = "llamacpp"

    def __init__(self, transport: Transport, model: str) -> None:
        self._transport = transport
        self._model = model

    def identify(self) -> Identity:
        try:
            props = self._transport.get("/props")
        except RequestFailed:
            props = None
        told = {
            "slots": member(props, "total_slots"),
            "context": member(props, "default_generation_settings", "n_ctx"),
            "weights": member(props, "model_ftype"),
        }
        settings = {name: value for name, value in told.items() if isinstance(value, int | str)}
        return Identity(self.kind, text(member(props, "build_info")), self._model, settings)

    def render(self, messages: Sequence[Message]) -> tuple[int, ...] | None:
        try:
            asked = {"messages": [message.to_json() for message in messages]}
            said, _ = self._transport.post("/apply-template", asked)
            prompt = text(member(said, "prompt"))
            if prompt is None:
                return None
            said, _ = self._transport.post("/tokenize", {"content": prompt, "add_special": True, "parse_special": True})
        except RequestFailed as error:
            if error.unreachable:
                raise
            return None
        return ids(member(said, "tokens"))

    def answer(self, prompt: Prompt, max_tokens: int, cache: CacheUse) -> Reply:
        use = {"cache_prompt": cache.reuse, "id_slot": 0}
        if prompt.ids is None:
            return chat(self._transport, self._model, prompt, max_tokens, {**GREEDY, **_SAMPLING, **use})
        fields = {**_SAMPLING, **use, "n_predict": max_tokens, "return_tokens": True}
        try:
            said, attempts = self._transport.post("/completion", {"prompt": list(prompt.ids), **fields})
        except RequestFailed as error:
            return failed(error)
        answer = text(member(said, "content"))
        ended = text(member(said, "stop_type"))
        return Reply(
            prompt_tokens=count(member(said, "tokens_evaluated")),
            generated=ids(member(said, "tokens")) or None,  # a server that knows no return_tokens answers an empty list
            text=answer,
            completion_tokens=count(member(said, "tokens_predicted")),
            finish_reason=None if member(said, "truncated") is not False else _FINISH.get(ended or ""),
            cached_tokens=count(member(said, "timings", "cache_n")),
            reasoning="</think>" in (answer or ""),
            attempts=attempts,
        )

    def load(self) -> Load:
        """Read the slots, and the metrics where the server was started with ``--metrics``."""
        try:
            slots = self._transport.get("/slots")
            running = sum(member(slot, "is_processing") is True for slot in slots) if isinstance(slots, list) else None
        except RequestFailed:
            running = None
        try:
            told = self._transport.get_text("/metrics")
        except RequestFailed:
            told = ""
        return Load(running, metrics.total(told, "llamacpp:tokens_predicted_total"))

"""Any server that speaks OpenAI's chat completions: by text, or by ids where a kind of server adds them."""

from collections.abc import Sequence
from typing import Any

from kvverify.server.client import SEED, CacheUse, Identity, Kind, Load, Prompt, Reply, count, ids, member, text
from kvverify.server.conversations import Message
from kvverify.server.http import RequestFailed, Transport

GREEDY: dict[str, Any] = {
    "temperature": 0,
    "top_p": 1,
    "n": 1,
    "seed": SEED,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "stream": False,
}
"""Sampling fields that every OpenAI-compatible server knows, all said, so that no default of its own takes part."""

GREEDY_EXTENDED: dict[str, Any] = {**GREEDY, "top_k": -1, "min_p": 0, "repetition_penalty": 1}
"""The same for vLLM and SGLang, which take more of them."""


class OpenAIClient:
    """An OpenAI-compatible server of no kind that is known better."""

    kind: Kind = "openai"

    def __init__(self, transport: Transport, model: str) -> None:
        self._transport = transport
        self._model = model

    def identify(self) -> Identity:
        return Identity(self.kind, None, self._model)

    def render(self, _messages: Sequence[Message]) -> tuple[int, ...] | None:
        return None

    def answer(self, prompt: Prompt, max_tokens: int, cache: CacheUse) -> Reply:
        return chat(self._transport, self._model, prompt, max_tokens, salted(GREEDY, cache))

    def load(self) -> Load:
        return Load()


def salted(fields: dict[str, Any], cache: CacheUse) -> dict[str, Any]:
    """Add the cache's salt, where there is one, to a request's fields."""
    return fields if cache.salt is None else {**fields, "cache_salt": cache.salt}


def chat(transport: Transport, model: str, prompt: Prompt, max_tokens: int, fields: dict[str, Any]) -> Reply:
    """Ask for a chat completion; whatever ids and counts come with it are taken along."""
    body = {
        "model": model,
        "messages": [message.to_json() for message in prompt.messages],
        "max_tokens": max_tokens,
        **fields,
    }
    try:
        said, attempts = transport.post("/v1/chat/completions", body)
    except RequestFailed as error:
        return failed(error)
    message = member(said, "choices", 0, "message")
    thinking = member(message, "reasoning_content") or member(message, "reasoning")
    return Reply(
        **usage(said),
        prompt_token_ids=ids(member(said, "prompt_token_ids")),
        generated=ids(member(said, "choices", 0, "token_ids")),
        text=_whole_text(thinking, member(message, "content")),
        finish_reason=text(member(said, "choices", 0, "finish_reason")),
        reasoning=bool(thinking),
        attempts=attempts,
    )


def usage(said: Any) -> dict[str, Any]:
    """Read OpenAI's counts from a completion."""
    counts = member(said, "usage")
    return {
        "prompt_tokens": count(member(counts, "prompt_tokens")),
        "completion_tokens": count(member(counts, "completion_tokens")),
        "cached_tokens": count(member(counts, "prompt_tokens_details", "cached_tokens")),
    }


def failed(error: RequestFailed) -> Reply:
    """Make an answer of a request that has none."""
    return Reply(attempts=error.attempts, error=str(error), unreachable=error.unreachable)


def _whole_text(thinking: Any, content: Any) -> str | None:
    """Put what the server set aside as thinking before the answer: it was generated like the rest."""
    parts = [part for part in (thinking, content) if isinstance(part, str)]
    return "".join(parts) if parts else None

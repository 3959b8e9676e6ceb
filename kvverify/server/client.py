"""What every kind of server offers to a run; one module a kind implements it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from kvverify.comparison.facts import is_count
from kvverify.server.conversations import Message

Kind = Literal["vllm", "llamacpp", "sglang", "openai"]
"""A kind of server; ``openai`` is any other one that speaks OpenAI's chat completions."""

SEED = 0
"""Seed of every request. Greedy decoding does not draw, but a server may want one."""


@dataclass(frozen=True)
class Prompt:
    """What a request asks to be continued: messages, and their ids where the server takes ids."""

    messages: tuple[Message, ...]
    """The messages; sent as they are where there are no ids."""
    ids: tuple[int, ...] | None = None
    """The rendered prompt; sent instead of the messages."""


@dataclass(frozen=True)
class CacheUse:
    """What a server's cache may do with a request, in the terms that the kinds of servers know."""

    reuse: bool
    """Whether it may be read; only llama.cpp can be told."""
    salt: str | None = None
    """Separates this request's cache entries from others'; None sends none."""


@dataclass(frozen=True)
class Reply:
    """What a server answered to one request; None wherever it does not say."""

    prompt_tokens: int | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    generated: tuple[int, ...] | None = None
    text: str | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    cached_tokens: int | None = None
    reasoning: bool = False
    """Whether the server put part of the answer aside as the model's thinking."""
    attempts: int = 1
    """How often the request was sent: more than once only after connections that failed."""
    error: str | None = None
    """Why there is no answer."""
    unreachable: bool = False
    """Whether no connection to the server came about."""


@dataclass(frozen=True)
class Identity:
    """What a server says about itself."""

    kind: Kind
    version: str | None
    """Its build, in its own words."""
    model: str
    """The model that is asked for."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What it tells of its configuration that bears on caching and numerics; never a key."""


@dataclass(frozen=True)
class Load:
    """What a server's own metrics say about its work; None where it tells no such thing."""

    running: int | None = None
    """Requests in work at this moment."""
    generated_tokens: int | None = None
    """All tokens that it has generated since it started."""


class Client(Protocol):
    """One server. Each method but ``answer`` gives None, or raises RequestFailed, where the server does not answer."""

    kind: Kind

    def identify(self) -> Identity:
        """Ask the server what it is."""

    def render(self, messages: Sequence[Message]) -> tuple[int, ...] | None:
        """Give the ids of ``messages`` in the server's chat template, up to and with the opening of the next answer."""

    def answer(self, prompt: Prompt, max_tokens: int, cache: CacheUse) -> Reply:
        """Have the server continue a prompt greedily; a failure is an answer with an error."""

    def load(self) -> Load:
        """Read the server's own metrics."""


def count(value: Any) -> int | None:
    """Give a number of tokens, or None for whatever is none."""
    return value if is_count(value) else None


def ids(value: Any) -> tuple[int, ...] | None:
    """Give a list of token ids as a tuple, or None for whatever is none."""
    return tuple(value) if isinstance(value, list) and all(is_count(one) for one in value) else None


def text(value: Any) -> str | None:
    """Give a text, or None for whatever is none."""
    return value if isinstance(value, str) else None


def member(value: Any, *path: str | int) -> Any:
    """Follow ``path`` into a JSON value; None where it leads nowhere."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value

"""Messages between the parent and an arm's process: one JSON object a line, over pipes of their own.

Engine output goes to the arm's log and never to these pipes, so that nothing an engine prints can be read
as a result.
"""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Prepare:
    """Import the engine and resolve its configuration, without touching the device."""

    engine_arguments: dict[str, Any]
    """Keyword arguments of vLLM's AsyncEngineArgs."""
    sampling: dict[str, Any]
    """Keyword arguments of vLLM's SamplingParams, the same for every answer of the arm."""
    clear_kv_memory: bool
    """Whether the engine's own KV memory is zeroed before each answer, so that what was computed before cannot hide
    that a connector restored to the wrong places."""
    shutdown_seconds: float
    """How long the engine may take to stop by itself."""


@dataclass(frozen=True)
class Start:
    """Start the engine that was prepared: from here on the device is in use."""


@dataclass(frozen=True)
class Generate:
    """Generate one answer."""

    request: str
    """Identifier of the request, unique within the arm."""
    prompt_token_ids: list[int]
    """Token IDs to submit, as they are."""
    scope: str
    """Cache scope: answers of other scopes must never be reused for this one."""
    sampling_extra: dict[str, Any]
    """``extra_args`` of vLLM's SamplingParams for this request; empty for none."""


@dataclass(frozen=True)
class Stop:
    """Stop the engine and end the process."""


@dataclass(frozen=True)
class Prepared:
    """Imports are done and the configuration is resolved; the device has not been touched."""

    device_initialized: bool
    """Whether the process holds a device context, which it must not before Start."""


@dataclass(frozen=True)
class Started:
    """The engine is ready; what it resolved and what its worker process says about itself."""

    effective: dict[str, Any]
    """Facts as the engine resolved them: device, attention backend, KV layout, connector, caching, sampling."""
    engine_config: dict[str, Any]
    """vLLM's whole VllmConfig as JSON values."""


@dataclass(frozen=True)
class Answered:
    """One generation returned."""

    request: str
    prompt_token_ids: list[int] | None
    """The prompt's token IDs as the engine echoes them."""
    generated_token_ids: list[int] | None
    finish_reason: str | None
    cached_tokens: int | None
    """Prompt tokens that were not computed, local and external together; None where the engine does not tell."""
    cached_tokens_local: int | None
    cached_tokens_external: int | None
    error: str | None
    """What the engine raised instead of answering."""


@dataclass(frozen=True)
class Stopped:
    """The engine has shut down; the process ends next."""


@dataclass(frozen=True)
class Failed:
    """A stage ended in an exception."""

    stage: str
    error: str


Message = Prepare | Start | Generate | Stop | Prepared | Started | Answered | Stopped | Failed

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Prepare, Start, Generate, Stop, Prepared, Started, Answered, Stopped, Failed)
}


def encode(message: Message) -> bytes:
    """The message as one line of JSON, newline included."""
    return (json.dumps({"message": type(message).__name__, **asdict(message)}) + "\n").encode()


def decode(line: bytes) -> Message:
    """The message that a line holds; ValueError for anything else, so that no stray write passes for a result."""
    try:
        body = json.loads(line)
        kind = _KINDS[body.pop("message")]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"not a message of this protocol: {line[:80]!r}") from None
    expected = {field.name for field in fields(kind)}
    if set(body) != expected:
        raise ValueError(f"a {kind.__name__} message must have the fields {sorted(expected)}, not {sorted(body)}")
    message: Message = kind(**body)
    return message

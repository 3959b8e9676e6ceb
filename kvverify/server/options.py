"""What a user asks of a server check, and every mistake in it that can be seen without a request."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from kvverify.errors import UsageError
from kvverify.server.client import Kind
from kvverify.server.conversations import Conversation, builtin, load, select
from kvverify.server.http import Address, parse_url

Mode = Literal["llamacpp", "one-server", "two-servers"]
"""How the recompute path is made: by a word in each request, by fresh salts, or by a server without a cache."""


@dataclass(frozen=True)
class ServerOptions:
    """The options of ``kvverify server`` as given."""

    base_url: str
    nocache_url: str | None
    mode: Mode | None
    kind: Kind | None
    model: str | None
    conversations: Path | None
    limit: int | None
    max_tokens: int
    hit_tolerance: int
    skip_hit_check: bool
    min_valid: float
    hide_text: bool
    api_key_env: str | None
    timeout: float
    report: Path


@dataclass(frozen=True)
class Asked:
    """Options without a mistake, and what they name."""

    options: ServerOptions
    cache: Address
    """The server whose cache is checked."""
    nocache: Address | None
    """The server that recomputes, in two-servers mode."""
    key: str | None
    """The key that servers are asked with; never shown."""
    conversations: tuple[Conversation, ...]

    def request(self) -> dict[str, Any]:
        """The options as the report holds them: no credentials, and of a key only where it came from."""
        options = self.options
        return {
            "base_url": self.cache.url,
            "nocache_url": None if self.nocache is None else self.nocache.url,
            "mode": options.mode,
            "kind": options.kind,
            "model": options.model,
            "conversations": "built-in" if options.conversations is None else options.conversations.name,
            "limit": options.limit,
            "hide_text": options.hide_text,
            "api_key_env": options.api_key_env,
            "timeout": options.timeout,
        }


def check_options(options: ServerOptions, environment: Mapping[str, str]) -> Asked:
    """Check everything that can be checked before the first request. Raises UsageError."""
    cache = parse_url(options.base_url, "--base-url")
    nocache = None if options.nocache_url is None else parse_url(options.nocache_url, "--nocache-url")
    if options.mode is not None:
        check_mode(options, options.mode, options.kind)
    if nocache is not None and nocache.url == cache.url:
        raise UsageError("--nocache-url: is the same as --base-url", "name the server that runs without a cache")
    key = _key(options.api_key_env, environment)
    if key is not None and (cache.login or (nocache and nocache.login)):
        raise UsageError("--api-key-env: a URL holds credentials already", "use one of the two")
    found = builtin() if options.conversations is None else load(options.conversations)
    return Asked(options, cache, nocache, key, select(found, options.limit))


def choose_mode(options: ServerOptions, kind: Kind) -> Mode:
    """Give the mode asked for, or the one that fits the servers. Raises UsageError where the two do not fit."""
    mode = options.mode
    if mode is None:
        by_kind: Mode = "llamacpp" if kind == "llamacpp" else "one-server"
        mode = by_kind if options.nocache_url is None else "two-servers"
    check_mode(options, mode, kind)
    return mode


def check_mode(options: ServerOptions, mode: Mode, kind: Kind | None) -> None:
    """Refuse what does not go together; ``kind`` is None where it is not known yet."""
    if mode == "two-servers" and options.nocache_url is None:
        raise UsageError("--mode two-servers: no second server", "name the one without a cache by --nocache-url")
    if mode != "two-servers" and options.nocache_url is not None:
        raise UsageError(f"--nocache-url: mode {mode} asks one server only", "use --mode two-servers")
    if mode == "one-server" and options.skip_hit_check:
        raise UsageError(
            "--skip-hit-check: in one-server mode only the counts show that salts are honoured",
            "use --mode two-servers, or a server that reports cached tokens",
        )
    if mode == "one-server" and kind == "llamacpp":
        raise UsageError("--mode one-server: llama.cpp knows no cache salts", "use --mode llamacpp")
    if mode == "llamacpp" and kind not in (None, "llamacpp"):
        raise UsageError(f"--mode llamacpp: the server is of kind {kind}", "use --mode one-server or two-servers")


def conversations_sha256(conversations: tuple[Conversation, ...]) -> str:
    """Return the hex sha256 over all conversations' own, so that two runs can be seen to ask the same."""
    return sha256("".join(f"{one.sha256}\n" for one in conversations).encode("ascii")).hexdigest()


def _key(name: str | None, environment: Mapping[str, str]) -> str | None:
    if name is None:
        return None
    key = environment.get(name, "").strip()
    if not key:
        raise UsageError("--api-key-env: the variable that it names is not set", "export the key in it")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UsageError(
            "--api-key-env: the variable's value cannot be sent as a key", "see that it holds the key alone"
        )
    return key

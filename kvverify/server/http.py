"""Requests to one server: time limits, retries of connections alone, and no secret in anything that is said of them."""

import json
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx

from kvverify.errors import UsageError
from kvverify.server.client import member

CONNECT_TIMEOUT = 10.0
"""Seconds for one connection to come about."""
MOST_BYTES = 1 << 26
"""Largest answer that is read."""
_RETRY_AFTER = (0.5, 2.0)
"""Seconds before each further attempt to connect."""
_MOST_QUOTED = 300
"""Most characters of a server's error that are quoted."""


@dataclass(frozen=True)
class Address:
    """Where a server is, apart from who may ask it."""

    url: str
    """Scheme, host, port and path, without credentials: safe to show."""
    login: tuple[str, str] | None = field(default=None, repr=False)
    """User and password from the URL."""


def parse_url(value: str, option: str) -> Address:
    """Take a base URL apart; a final ``/v1`` may be there or not. Raises UsageError that never quotes credentials."""
    try:
        parts = urlsplit(value.strip())
        host, port = parts.hostname, parts.port
        httpx.URL(value.strip())
    except (ValueError, httpx.InvalidURL):
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"{option}: not an HTTP URL", "give one as in http://127.0.0.1:8000")
    if parts.query or parts.fragment:
        raise UsageError(f"{option}: has a query or a fragment", "give the base URL alone")
    login = None
    if parts.username is not None or parts.password is not None:
        login = (unquote(parts.username or ""), unquote(parts.password or ""))
    place = f"[{host}]" if ":" in host else host
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return Address(urlunsplit((parts.scheme, f"{place}:{port}" if port else place, path, "", "")), login)


class RequestFailed(Exception):  # noqa: N818 - named for what happened; it is an answer that did not come
    """A request has no usable answer; the message says why, without a secret."""

    def __init__(self, problem: str, attempts: int = 1, *, unreachable: bool = False) -> None:
        super().__init__(problem)
        self.attempts = attempts
        self.unreachable = unreachable


class Transport:
    """The way to one server. ``key`` is sent as a bearer token; ``quote`` allows quoting what the server says."""

    def __init__(self, address: Address, key: str | None, timeout: float, *, quote: bool = True) -> None:
        self.url = address.url
        self._timeout = timeout
        self._quote = quote
        self._secrets = [secret for secret in (key, *(address.login or ())) if secret]
        # A kept connection can be closed by the server just when the next request is sent, which looks like a lost
        # answer: every request gets its own.
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            auth=address.login,
            timeout=httpx.Timeout(timeout, connect=min(CONNECT_TIMEOUT, timeout)),
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def close(self) -> None:
        self._http.close()

    def post(self, path: str, body: dict[str, Any]) -> tuple[Any, int]:
        """Send JSON; give the JSON that came back and the number of attempts. Raises RequestFailed."""
        content, attempts = self._send("POST", path, body)
        try:
            return json.loads(content), attempts
        except (ValueError, RecursionError):
            raise RequestFailed("the answer is not JSON", attempts) from None

    def get(self, path: str) -> Any:
        """Fetch JSON. Raises RequestFailed."""
        content, attempts = self._send("GET", path, None)
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise RequestFailed("the answer is not JSON", attempts) from None

    def get_text(self, path: str) -> str:
        """Fetch text. Raises RequestFailed."""
        return self._send("GET", path, None)[0].decode("utf-8", "replace")

    def clean(self, text: str) -> str:
        """Take secrets and control characters out of what a server says."""
        for secret in self._secrets:
            text = text.replace(secret, "[hidden]")
        return "".join(one if one.isprintable() else " " for one in text)

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[bytes, int]:
        """Try until a connection comes about. Once it has, the server may have done the work: nothing is sent twice."""
        attempts = 0
        while True:
            attempts += 1
            try:
                return self._once(method, path, body), attempts
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if attempts > len(_RETRY_AFTER):
                    problem = f"no connection to the server in {attempts} attempts"
                    raise RequestFailed(problem, attempts, unreachable=True) from None
                time.sleep(_RETRY_AFTER[attempts - 1])
            except httpx.TimeoutException:
                raise RequestFailed(f"no answer within {self._timeout:g} s", attempts) from None
            except httpx.HTTPError as error:
                # The library's own messages can hold URLs.
                raise RequestFailed(f"the connection broke ({type(error).__name__})", attempts) from None
            except RequestFailed as error:
                error.attempts = attempts
                raise

    def _once(self, method: str, path: str, body: dict[str, Any] | None) -> bytes:
        deadline = time.monotonic() + self._timeout
        content = bytearray()
        with self._http.stream(method, f"{self.url}{path}", json=body) as response:
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > MOST_BYTES:
                    raise RequestFailed(f"the answer is larger than {MOST_BYTES >> 20} MiB")
                if time.monotonic() > deadline:
                    raise RequestFailed(f"no whole answer within {self._timeout:g} s")
        if not response.is_success:
            raise RequestFailed(f"HTTP {response.status_code}{self._explanation(bytes(content))}")
        return bytes(content)

    def _explanation(self, content: bytes) -> str:
        """Quote a server's explanation of an error, which can hold the prompt: not where texts are hidden."""
        if not self._quote:
            return ""
        try:
            said = json.loads(content)
        except (ValueError, RecursionError):
            return ""
        for path in (("error", "message"), ("message",), ("detail",), ("error",)):
            message = member(said, *path)
            if isinstance(message, str):
                clean = self.clean(message).strip()
                return f": {clean[:_MOST_QUOTED]}{'...' if len(clean) > _MOST_QUOTED else ''}"
        return ""

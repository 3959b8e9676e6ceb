"""The way to a server: what is retried, what is not, and that no secret is said. The servers are real and small."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvverify.errors import PreflightError
from kvverify.server import http
from kvverify.server.http import RequestFailed, Transport, parse_url

from .conftest import KEY, Run, free_port

Talk = Callable[[socket.socket], None]


@contextmanager
def listening(talk: Talk, port: int = 0, *, late: float = 0) -> Iterator[tuple[str, list[bytes]]]:
    """Serve connections one after the other with ``talk``; gives the URL and the requests that came."""
    port = port or free_port()
    requests: list[bytes] = []
    done = threading.Event()

    def serve() -> None:
        time.sleep(late)
        with socket.create_server(("127.0.0.1", port)) as server:
            server.settimeout(0.05)
            while not done.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.settimeout(5)
                    requests.append(connection.recv(65536))
                    talk(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    if not late:
        time.sleep(0.2)
    try:
        yield f"http://127.0.0.1:{port}", requests
    finally:
        done.set()
        thread.join()


def says(status: str, body: bytes) -> Talk:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    return lambda connection: connection.sendall(head + body)


def transport(url: str, key: str | None = None, timeout: float = 1, *, quote: bool = True) -> Transport:
    return Transport(parse_url(url, "--base-url"), key, timeout, quote=quote)


def failure(url: str, key: str | None = None, *, quote: bool = True) -> RequestFailed:
    one = transport(url, key, quote=quote)
    try:
        with pytest.raises(RequestFailed) as caught:
            one.post("/x", {})
    finally:
        one.close()
    return caught.value


def test_an_answer_comes_back_after_one_attempt() -> None:
    with listening(says("200 OK", b'{"a": 1}')) as (url, requests):
        one = transport(url, KEY)
        assert one.post("/x", {"b": 2}) == ({"a": 1}, 1)
        one.close()
    assert f"Bearer {KEY}".encode() in requests[0]


def test_credentials_of_a_url_are_sent_and_not_said() -> None:
    with listening(says("401 Unauthorized", b'{"message": "no topsecret"}')) as (url, requests):
        error = failure(url.replace("http://", "http://me:topsecret@"))
    assert b"Basic " in requests[0]
    assert str(error) == "HTTP 401: no [hidden]"


def test_a_connection_that_does_not_come_about_is_tried_again() -> None:
    with listening(says("200 OK", b"{}"), free_port(), late=0.3) as (url, _):
        one = transport(url)
        answer, attempts = one.post("/x", {})
        one.close()
    assert answer == {}
    assert attempts == 2


def test_nobody_there_is_told_after_some_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_RETRY_AFTER", (0.01, 0.01))
    error = failure(f"http://127.0.0.1:{free_port()}")
    assert (error.attempts, error.unreachable) == (3, True)


@pytest.mark.parametrize(
    ("talk", "problem"),
    [
        (lambda _: None, "the connection broke"),
        (
            lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"),
            "the connection broke",
        ),
        (lambda connection: connection.sendall(b"nonsense\r\n\r\n"), "the connection broke"),
        (lambda _: time.sleep(1.5), "no answer within 1 s"),
        (says("200 OK", b"[1"), "the answer is not JSON"),
        (says("200 OK", b"[" * 100_000), "the answer is not JSON"),
        (says("429 Too Many Requests", b""), "HTTP 429"),
        (says("500 Oops", b'{"error": {"message": "a\\u0007b"}}'), "HTTP 500: a b"),
        (says("500 Oops", b'{"detail": [1]}'), "HTTP 500"),
        (says("302 Found", b""), "HTTP 302"),
    ],
)
def test_what_reached_a_server_is_never_sent_twice(talk: Talk, problem: str) -> None:
    with listening(talk) as (url, requests):
        error = failure(url)
    assert str(error).startswith(problem)
    assert (error.attempts, error.unreachable) == (1, False)
    assert len(requests) == 1


def test_an_error_that_holds_the_prompt_can_be_kept_quiet() -> None:
    with listening(says("400 Bad Request", b'{"message": "bad: how does rain form?"}')) as (url, _):
        assert str(failure(url, quote=False)) == "HTTP 400"


def test_an_endless_answer_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_BYTES", 1000)
    with listening(says("200 OK", b" " * 2000)) as (url, _):
        assert str(failure(url)).startswith("the answer is larger than")


def test_a_url_where_nobody_is_is_told_without_a_report(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(http, "_RETRY_AFTER", (0.01, 0.01))
    with pytest.raises(PreflightError, match="see that it runs and that the URL is right"):
        run("--base-url", f"http://127.0.0.1:{free_port()}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("status", "help_"), [("401 No", "--api-key-env"), ("404 No", "--kind and --model")])
def test_a_server_that_lists_no_models_is_told_without_a_report(
    run: Run, tmp_path: Path, status: str, help_: str
) -> None:
    with listening(says(status, b"{}")) as (url, _), pytest.raises(PreflightError, match=help_):
        run("--base-url", url)
    assert list(tmp_path.iterdir()) == []

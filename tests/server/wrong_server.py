"""A server that does one thing wrong, in front of a real one whose answers it passes on."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

Json = dict[str, Any]


class Proxy:
    """What a wrong server does with a completion; this one does nothing wrong."""

    def asked(self, body: Json) -> Json:
        """Change what the real server is asked."""
        return body

    def answered(self, body: Json, answer: Json) -> Json:
        """Change what the real server answered to ``body``."""
        return answer

    def instead(self, handler: BaseHTTPRequestHandler, body: Json) -> bool:
        """Do something else altogether; True where that was the answer."""
        return False


class DropsSalts(Proxy):
    def asked(self, body: Json) -> Json:
        return {name: value for name, value in body.items() if name != "cache_salt"}


class TellsNoCounts(Proxy):
    def answered(self, body: Json, answer: Json) -> Json:
        answer["usage"].pop("prompt_tokens_details", None)
        return answer


class TellsCount(Proxy):
    """Claims the same number of cached tokens for every request."""

    def __init__(self, count: Any) -> None:
        self._count = count

    def answered(self, body: Json, answer: Json) -> Json:
        answer["usage"]["prompt_tokens_details"] = {"cached_tokens": self._count}
        return answer


class ClaimsWholePrompt(Proxy):
    """Claims a hit on the whole prompt wherever there was one."""

    def answered(self, body: Json, answer: Json) -> Json:
        details = answer["usage"]["prompt_tokens_details"]
        if details["cached_tokens"]:
            details["cached_tokens"] = answer["usage"]["prompt_tokens"]
        return answer


class ChangesId(Proxy):
    """Changes one id of each answer that reused something, and its text with it."""

    index = 3

    def answered(self, body: Json, answer: Json) -> Json:
        if answer["usage"]["prompt_tokens_details"]["cached_tokens"]:
            choice = answer["choices"][0]
            choice["token_ids"][self.index] = (choice["token_ids"][self.index] + 1) % 1000
            choice["text"] = f"!{choice['text']}"
        return answer


class ChangesEverySecond(Proxy):
    """Changes one id of every second answer: nothing repeats."""

    def __init__(self) -> None:
        self._number = 0

    def answered(self, body: Json, answer: Json) -> Json:
        self._number += 1
        choice = answer["choices"][0]
        if self._number % 2:
            choice["token_ids"][0] = (choice["token_ids"][0] + 1) % 1000
        return answer


class HidesIds(Proxy):
    """Knows nothing of ids: an older server, or another kind."""

    def asked(self, body: Json) -> Json:
        return {**body, "return_token_ids": False}


class CutsPrompt(Proxy):
    """Takes the prompt's first id away, as a server that cuts long prompts does."""

    def asked(self, body: Json) -> Json:
        return {**body, "prompt": body["prompt"][1:]}


class CutsShort(Proxy):
    """Has a limit on length of its own."""

    def asked(self, body: Json) -> Json:
        return {**body, "max_tokens": min(body["max_tokens"], 20)}


class Refuses(Proxy):
    """Answers the completions from number ``after`` on with a status, and quotes what it was asked."""

    def __init__(self, status: int, after: int = 1) -> None:
        self._status = status
        self._left = after

    def instead(self, handler: BaseHTTPRequestHandler, body: Json) -> bool:
        self._left -= 1
        if self._left > 0:
            return False
        said = f"no: {handler.headers['Authorization']} asked {body.get('prompt') or body.get('messages')}"
        send(handler, self._status, json.dumps({"error": {"message": said}}).encode())
        return True


class ClosesMidAnswer(Proxy):
    def instead(self, handler: BaseHTTPRequestHandler, body: Json) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"choices": [{"token_ids": [1, 2')
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True
        return True


class Stalls(Proxy):
    """Sends a little and then nothing more, or a byte now and then."""

    def __init__(self, *, drips: bool) -> None:
        self._drips = drips

    def instead(self, handler: BaseHTTPRequestHandler, body: Json) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        try:
            for _ in range(60):
                time.sleep(0.25)
                if self._drips:
                    handler.wfile.write(b" ")
                    handler.wfile.flush()
        except OSError:
            pass
        handler.close_connection = True
        return True


class Goes(Proxy):
    """Answers the first completion and is gone."""

    def instead(self, handler: BaseHTTPRequestHandler, body: Json) -> bool:
        handler.server.shutdown()
        handler.server.socket.close()
        return False


class IsNotJson(Proxy):
    def instead(self, handler: BaseHTTPRequestHandler, body: Json) -> bool:
        send(handler, 200, b"<html>welcome</html>")
        return True


class Calls(Proxy):
    """Calls a function at each completion."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def asked(self, body: Json) -> Json:
        self._function()
        return body


def send(handler: BaseHTTPRequestHandler, status: int, content: bytes, kind: str = "application/json") -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


@contextmanager
def in_front_of(url: str, proxy: Proxy) -> Iterator[str]:
    """Serve ``proxy`` in front of the real server at ``url``, and give its own URL."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._pass_on("GET", None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self.path.endswith(("/completions", "/completion", "/generate")):
                self._pass_on("POST", body)
            elif not proxy.instead(self, body):
                self._pass_on("POST", proxy.asked(body), lambda answer: proxy.answered(body, answer))

        def _pass_on(self, method: str, body: Any, change: Callable[[Json], Json] | None = None) -> None:
            headers = {"Authorization": self.headers["Authorization"]} if self.headers["Authorization"] else {}
            got = httpx.request(method, f"{url}{self.path}", json=body, headers=headers, timeout=120)
            content = got.content
            if change and got.is_success:
                content = json.dumps(change(got.json())).encode()
            send(self, got.status_code, content, got.headers.get("Content-Type", "text/plain"))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

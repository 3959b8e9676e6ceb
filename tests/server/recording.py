"""Exchanges with a real server, recorded once and replayed where the server itself cannot run.

usage: python recording.py URL FILE

Records everything that passes through it to the server at URL, until its input ends; prints its own URL.
"""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from kvverify.server.sglang import _SETTINGS

KEPT = {*_SETTINGS, "version"}
"""Members of ``/server_info`` that are recorded: it also holds keys, and paths of the recording machine."""

READ = ("sglang:num_running_reqs{", "sglang:generation_tokens_total{")
"""Starts of the lines of ``/metrics`` that are recorded."""


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._exchange(None)

    def do_POST(self) -> None:
        self._exchange(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _exchange(self, body: Any) -> None:
        exchange = self.server.exchange(self.command, self.path, body)  # type: ignore[attr-defined]
        content = exchange["answer"]
        raw = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(exchange["status"])
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def exchange(self, method: str, path: str, body: Any) -> dict[str, Any]:
        raise NotImplementedError


class Recorder(_Server):
    """Passes requests on, and writes each with its answer as one line of JSON."""

    def __init__(self, url: str, file: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._url = url
        self._file = file

    def exchange(self, method: str, path: str, body: Any) -> dict[str, Any]:
        """Leave out of the metrics what no client reads: they are long, and tell of the recording machine."""
        got = httpx.request(method, f"{self._url}{path}", json=body, timeout=600)
        try:
            answer = got.json()
        except ValueError:
            answer = got.text
        if path == "/server_info" and isinstance(answer, dict):
            answer = {name: value for name, value in answer.items() if name in KEPT}
        if path == "/metrics":
            answer = "".join(f"{line}\n" for line in got.text.splitlines() if line.startswith(READ))
        made = {"method": method, "path": path, "body": body, "status": got.status_code, "answer": answer}
        with self._file.open("a") as out:
            out.write(json.dumps(made) + "\n")
        return made


class Player(_Server):
    """Answers as recorded, in the recorded order, and only to the recorded requests; salts may have other values."""

    def __init__(self, file: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._exchanges = [json.loads(line) for line in file.read_text().splitlines()]
        self.played = 0
        self.mistakes: list[str] = []

    def exchange(self, method: str, path: str, body: Any) -> dict[str, Any]:
        wanted = self._exchanges[self.played] if self.played < len(self._exchanges) else None
        self.played += 1
        if wanted is None or (method, path) != (wanted["method"], wanted["path"]) or not _alike(body, wanted["body"]):
            self.mistakes.append(f"{method} {path} is not request {self.played} of the recording")
            return {"status": 404, "answer": {"message": self.mistakes[-1]}}
        return dict(wanted)

    @property
    def complete(self) -> bool:
        return self.played == len(self._exchanges)


def _alike(a: Any, b: Any) -> bool:
    if not isinstance(a, dict) or not isinstance(b, dict):
        return bool(a == b)
    return a.keys() == b.keys() and all(a[name] == b[name] for name in a if name != "cache_salt")


@contextmanager
def serving(server: _Server) -> Iterator[str]:
    """Serve in a thread; gives the URL."""
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    with serving(Recorder(sys.argv[1], Path(sys.argv[2]))) as own:
        print(own, flush=True)
        sys.stdin.read()

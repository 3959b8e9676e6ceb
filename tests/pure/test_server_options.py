"""Mistakes in the options of ``kvverify server``: each is told before any request, and leaves no report."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kvverify.cli import cli
from kvverify.errors import UsageError
from kvverify.server.http import parse_url
from kvverify.server.options import ServerOptions, check_options, choose_mode

# Nothing listens there: a request would end in another error.
NOBODY = "http://127.0.0.1:9"


def options(**changes: object) -> ServerOptions:
    given: dict[str, object] = {
        "base_url": NOBODY,
        "nocache_url": None,
        "mode": None,
        "kind": None,
        "model": None,
        "conversations": None,
        "limit": None,
        "max_tokens": 256,
        "hit_tolerance": 32,
        "skip_hit_check": False,
        "min_valid": 0.8,
        "hide_text": False,
        "api_key_env": None,
        "timeout": 300.0,
        "report": Path("report.json"),
    }
    return ServerOptions(**{**given, **changes})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--mode", "two-servers"], "--nocache-url"),
        (["--mode", "one-server", "--nocache-url", "http://127.0.0.1:10"], "--nocache-url"),
        (["--nocache-url", f"{NOBODY}/v1/"], "--nocache-url: is the same"),
        (["--mode", "one-server", "--skip-hit-check"], "--skip-hit-check"),
        (["--mode", "one-server", "--kind", "llamacpp"], "--mode one-server"),
        (["--mode", "llamacpp", "--kind", "vllm"], "--mode llamacpp"),
        (["--base-url", "ftp://host"], "--base-url: not an HTTP URL"),
        (["--base-url", "http://host:port"], "--base-url: not an HTTP URL"),
        (["--base-url", "http://host?key=topsecret"], "--base-url: has a query"),
        (["--base-url", "http://user:topsecret@host", "--api-key-env", "A_KEY"], "--api-key-env"),
        (["--api-key-env", "topsecret"], "--api-key-env"),
        (["--api-key-env", "A_BAD_KEY"], "--api-key-env"),
        (["--conversations", "missing.jsonl"], "--conversations"),
        (["--limit", "0"], "--limit"),
        (["--min-valid", "0"], "--min-valid"),
        (["--min-valid", "1.1"], "--min-valid"),
        (["--hit-tolerance", "-1"], "--hit-tolerance"),
        (["--timeout", "0"], "--timeout"),
        (["--kind", "tgi"], "--kind"),
        (["--report", "no/such/folder.json"], "--report"),
    ],
)
def test_a_mistake_is_told_and_leaves_no_report(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("A_KEY", "topsecret")
    monkeypatch.setenv("A_BAD_KEY", "topsecret\n2")
    before = signal.getsignal(signal.SIGINT)
    done = CliRunner().invoke(
        cli, ["server", "--base-url", NOBODY, "--report", "report.json", *arguments], standalone_mode=False
    )
    error = done.exception
    said = error.format_message() if isinstance(error, click.ClickException) else str(error)
    assert says in said
    assert "topsecret" not in said
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("value", "url", "login"),
    [
        ("http://host:8000", "http://host:8000", None),
        ("http://host:8000/v1", "http://host:8000", None),
        ("https://host/path/v1/", "https://host/path", None),
        ("http://me:p%40ss@host/", "http://host", ("me", "p@ss")),
        ("http://:pass@[::1]:8000", "http://[::1]:8000", ("", "pass")),
    ],
)
def test_credentials_are_no_part_of_what_is_shown(value: str, url: str, login: tuple[str, str] | None) -> None:
    address = parse_url(value, "--base-url")
    assert (address.url, address.login) == (url, login)
    assert "pass" not in repr(address)


def test_a_key_is_read_and_not_recorded() -> None:
    asked = check_options(options(api_key_env="A_KEY"), {"A_KEY": " topsecret\n"})
    assert asked.key == "topsecret"
    assert asked.request()["api_key_env"] == "A_KEY"
    assert "topsecret" not in str(asked.request())


@pytest.mark.parametrize(
    ("nocache", "kind", "mode"),
    [
        (None, "vllm", "one-server"),
        (None, "sglang", "one-server"),
        (None, "openai", "one-server"),
        (None, "llamacpp", "llamacpp"),
        ("http://127.0.0.1:10", "llamacpp", "two-servers"),
        ("http://127.0.0.1:10", "vllm", "two-servers"),
    ],
)
def test_the_mode_follows_the_server(nocache: str | None, kind: str, mode: str) -> None:
    assert choose_mode(options(nocache_url=nocache), kind) == mode


def test_what_only_the_server_tells_is_refused_too() -> None:
    with pytest.raises(UsageError, match="--skip-hit-check"):
        choose_mode(options(skip_hit_check=True), "vllm")
    with pytest.raises(UsageError, match="--mode llamacpp"):
        choose_mode(options(mode="llamacpp"), "vllm")


@pytest.mark.parametrize("arguments", [["--help"], ["server", "--help"]])
def test_help_needs_no_http_library(arguments: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "kvverify", *arguments]
    trace = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    imported = {name.split(".")[0] for name in re.findall(r"^import time:.*\|\s*(\S+)$", trace, re.MULTILINE)}
    assert "kvverify" in imported
    assert not imported & {"httpx", "jsonschema"}

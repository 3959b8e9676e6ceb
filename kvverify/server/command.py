"""The command ``kvverify server``. Nothing heavy is imported before it runs."""

import os
from pathlib import Path
from typing import Any

import click

POSITIVE = click.IntRange(min=1)
FILE = click.Path(path_type=Path)


@click.command(epilog="Exit status: 0 no valid conversation differed, 1 one did, 2 anything else, bad usage included.")
@click.option("--base-url", required=True, metavar="URL", help="The server whose prompt cache is checked.")
@click.option("--nocache-url", metavar="URL", help="The same model without a cache, for two-servers mode.")
@click.option(
    "--mode",
    type=click.Choice(["llamacpp", "one-server", "two-servers"]),
    help="How turn 2 is recomputed.  [default: two-servers with --nocache-url, else by the kind of server]",
)
@click.option(
    "--kind",
    type=click.Choice(["llamacpp", "vllm", "sglang", "openai"]),
    help="Kind of server.  [default: what it says itself]",
)
@click.option("--model", metavar="NAME", help="Model to ask.  [default: the first that the server lists]")
@click.option(
    "--conversations",
    type=FILE,
    metavar="FILE",
    help="Two-turn conversations as JSON Lines or one JSON array.  [default: the built-in ones]",
)
@click.option("--limit", type=POSITIVE, metavar="N", help="Ask the first N conversations only.")
@click.option("--max-tokens", type=POSITIVE, default=256, show_default=True, help="Generated tokens an answer.")
@click.option(
    "--hit-tolerance",
    type=click.IntRange(min=0),
    default=32,
    show_default=True,
    help="Tokens at the end of turn 1 that a cache hit may leave out.",
)
@click.option("--skip-hit-check", is_flag=True, help="Excuse a server that reports no cached tokens.")
@click.option(
    "--min-valid",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.8,
    show_default=True,
    help="Share of the conversations that must be valid.",
)
@click.option("--hide-text", is_flag=True, help="Keep the texts of conversations and answers out of the report.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the servers' key.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300,
    show_default=True,
    help="Seconds for one answer.",
)
@click.option("--report", type=FILE, required=True, metavar="FILE", help="JSON report to write; never overwritten.")
def server(**given: Any) -> int:
    """Check whether a running server's prompt cache changes its greedy answers.

    Turn 2 of each conversation is asked with the cache and recomputed, each twice, and the answers are compared.
    """
    from importlib.util import find_spec

    from kvverify.errors import PreflightError
    from kvverify.following import follow
    from kvverify.report.store import ReportStore

    if find_spec("httpx") is None:
        raise PreflightError("kvverify server needs the package httpx", "pip install 'kvverify[server]'")
    from kvverify.server.check import check_servers
    from kvverify.server.options import ServerOptions, check_options
    from kvverify.server.summary import render

    options = ServerOptions(**given)
    store = ReportStore(options.report)
    store.check()
    asked = check_options(options, os.environ)
    return follow(lambda say: check_servers(asked, store, say), store, render)

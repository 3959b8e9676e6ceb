"""One run, from checked options to a finished report: six requests a conversation, recorded as they are answered."""

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import kvverify
from kvverify.errors import PreflightError, ReportError
from kvverify.report.store import ReportStore
from kvverify.server.client import CacheUse, Load, Prompt, Reply
from kvverify.server.conversations import Conversation
from kvverify.server.document import SCHEMA, Document, judged, text_sha256
from kvverify.server.facts import ORDER, Role
from kvverify.server.http import Address, RequestFailed, Transport
from kvverify.server.options import Asked, Mode, choose_mode, conversations_sha256
from kvverify.server.servers import Server, find_server
from kvverify.server.turns import closing_ids, turn2_ids

Say = Callable[[str], None]
"""Takes one line of progress."""

_MOST_FAILURES = 3
"""Conversations in a row with a failed request after which a run gives up: a dead server is not asked 120 times."""
_METRICS_DELAY = 1.0
"""Seconds that a server's metrics may lag behind its answers."""


def check_servers(asked: Asked, store: ReportStore, say: Say) -> Document:
    """Ask every conversation and return the finished report, which is on disk by then.

    Raises PreflightError where a server does not answer before the first request, ReportError when the report cannot
    be written. What ends the program (Ctrl-C, SIGTERM) leaves a report in state ``interrupted``.
    """
    options = asked.options
    with ExitStack() as stack:

        def connect(address: Address) -> Transport:
            transport = Transport(address, asked.key, options.timeout, quote=not options.hide_text)
            stack.callback(transport.close)
            return transport

        servers = [find_server("cache", connect(asked.cache), options.kind, options.model)]
        mode = choose_mode(options, servers[0].identity.kind)
        if asked.nocache is not None:
            servers.append(find_server("recompute", connect(asked.nocache), options.kind, options.model))
            _refuse_unlike(servers)
        for server in servers:
            say(_introduce(server))
        run = _Run(asked, mode, servers, store, say)
        try:
            run.conversations()
            run.read_counters()
        except BaseException:
            with suppress(ReportError):  # a report that cannot be written is why we are here, or comes second
                run.finish("interrupted")
            raise
        return run.finish("complete")


def _refuse_unlike(servers: Sequence[Server]) -> None:
    """Two kinds of servers, or two models, differ for other reasons than a cache."""
    for what, values in (
        ("kind", [server.identity.kind for server in servers]),
        ("model", [server.identity.model for server in servers]),
    ):
        if values[0] != values[1]:
            raise PreflightError(
                f"the two servers are not alike: {what} {values[0]} at --base-url, {values[1]} at --nocache-url",
                "serve the same model twice, with the cache on and off",
            )


def _introduce(server: Server) -> str:
    identity = server.identity
    busy = f"; it has {server.load.running} other requests in work" if server.load.running else ""
    return f"{server.url}: {identity.kind} {identity.version or '(version unknown)'}, model {identity.model}{busy}"


class _Run:
    """The conversations of one run, one after the other, and the report that grows with them."""

    def __init__(self, asked: Asked, mode: Mode, servers: Sequence[Server], store: ReportStore, say: Say) -> None:
        self._asked = asked
        self._mode = mode
        self._servers = servers
        self._store = store
        self._say = say
        self._salt = uuid.uuid4().hex
        self._document = _new_document(asked, mode, servers)
        self._write()

    def conversations(self) -> None:
        """Ask each conversation; stop where the server is gone."""
        failures = 0
        for number, conversation in enumerate(self._asked.conversations, start=1):
            entry: Document = {"id": conversation.id, "turn2_from": None, "thinking": False, "answers": []}
            self._document["conversations"].append(entry)
            broken = self._ask(conversation, entry)
            self._write()
            judgement = self._document["conversations"][-1]
            why = f" ({', '.join(judgement['reasons'])})" if judgement["reasons"] else ""
            self._say(f"{number} of {len(self._asked.conversations)}, {conversation.id}: {judgement['verdict']}{why}")
            failures = failures + 1 if broken else 0
            if broken and (broken.unreachable or failures == _MOST_FAILURES):
                self._error("requests", f"gave up at conversation {number}: {broken}")
                return

    def _ask(self, conversation: Conversation, entry: Document) -> RequestFailed | None:
        """Send the six requests; the first that fails ends the conversation, whose verdict is settled then."""
        client = self._servers[0].client
        try:
            first_ids = client.render(conversation.messages)
            closing = None if first_ids is None else closing_ids(client.render, conversation)
        except RequestFailed as error:
            return error
        turn1 = Prompt(conversation.messages, first_ids if closing else None)
        turn2: Prompt | None = None
        for role, repeat in ORDER:
            server = self._servers[-1] if role == "recomputed" else self._servers[0]
            prompt = turn1 if role == "turn1" else turn2
            if prompt is None:
                return None
            use = self._cache_use(conversation, role, repeat)
            reply = _to_this_prompt(prompt, server.client.answer(prompt, self._asked.options.max_tokens, use))
            entry["answers"].append(_answer(role, repeat, server, prompt, reply, hide=self._asked.options.hide_text))
            entry["thinking"] = entry["thinking"] or _thinks(reply)
            self._write()
            entry = self._document["conversations"][-1]
            if reply.error is not None:
                return RequestFailed(reply.error, reply.attempts, unreachable=reply.unreachable)
            if role == "turn1" and turn2 is None:
                turn2 = _second_prompt(conversation, turn1, reply, closing)
                entry["turn2_from"] = None if turn2 is None else "messages" if turn2.ids is None else "ids"
        return None

    def _cache_use(self, conversation: Conversation, role: Role, repeat: int) -> CacheUse:
        """Say what the cache may do: each repeat has entries of its own, wherever the server knows salts."""
        name = f"{self._salt}.{conversation.sha256[:16]}.{repeat}"
        if self._mode == "one-server":
            # Other entries for the recompute path, so that nothing of the cache path's can be found.
            return CacheUse(reuse=role == "cached", salt=f"{name}.recompute" if role == "recomputed" else name)
        # One salt for both of two servers: if they are one after all, the recompute path is seen to hit.
        salted = self._mode == "two-servers" and self._servers[0].identity.kind != "openai"
        return CacheUse(reuse=role == "cached", salt=name if salted else None)

    def read_counters(self) -> None:
        """Note what the servers' own metrics say now; a little later once more where they seem to lag."""
        self._note_loads([server.client.load() for server in self._servers])
        if any(server["load"]["generated_tokens_after"] is not None for server in self._document["servers"]):
            time.sleep(_METRICS_DELAY)
            self._note_loads([server.client.load() for server in self._servers])

    def _note_loads(self, loads: Sequence[Load]) -> None:
        for server, load in zip(self._document["servers"], loads, strict=True):
            server["load"] = {**server["load"], "generated_tokens_after": load.generated_tokens}

    def finish(self, state: str) -> Document:
        """Write the report for the last time and give it as written."""
        self._document["state"] = state
        self._write()
        return self._document

    def _error(self, stage: str, message: str) -> None:
        self._document["errors"].append({"stage": stage, "message": message})
        self._say(message)

    def _write(self) -> None:
        self._document = judged(self._document)
        self._store.write(self._document)


def _second_prompt(
    conversation: Conversation, turn1: Prompt, reply: Reply, closing: tuple[int, ...] | None
) -> Prompt | None:
    """Build turn 2 on the answer of turn 1: from ids where all are known, else from its text."""
    if turn1.ids is not None and reply.generated is not None and closing is not None:
        messages = conversation.turn2(reply.text or "")
        return Prompt(messages, turn2_ids(turn1.ids, reply.generated, closing))
    return None if not reply.text else Prompt(conversation.turn2(reply.text))


def _to_this_prompt(prompt: Prompt, reply: Reply) -> Reply:
    """Turn an answer into an error where it is not to the ids that were sent, as far as the server tells."""
    if prompt.ids is None or reply.error is not None:
        return reply
    same = reply.prompt_token_ids in (None, prompt.ids) and reply.prompt_tokens in (None, len(prompt.ids))
    return reply if same else replace(reply, error="the server processed another prompt than it was sent")


def _thinks(reply: Reply) -> bool:
    """Tell whether a model thinks before it answers; its marks are those of most models that do."""
    return reply.reasoning or (reply.text or "").lstrip().startswith("<think>")


def _answer(  # noqa: PLR0913 - one argument a source of the answer's members
    role: Role, repeat: int, server: Server, prompt: Prompt, reply: Reply, *, hide: bool
) -> Document:
    """Give an answer as the report holds it."""
    # Where a server does not say which ids it processed, they are those that were sent; the count must agree.
    ids = reply.prompt_token_ids or prompt.ids
    return {
        "role": role,
        "repeat": repeat,
        "server": server.name,
        "prompt_tokens": reply.prompt_tokens,
        "prompt_token_ids": None if ids is None or reply.error is not None else list(ids),
        "generated_token_ids": None if reply.generated is None else list(reply.generated),
        "text": None if hide else reply.text,
        "text_sha256": None if reply.text is None else text_sha256(reply.text),
        "completion_tokens": reply.completion_tokens,
        "finish_reason": reply.finish_reason,
        "cached_tokens": reply.cached_tokens,
        "attempts": reply.attempts,
        "error": reply.error,
    }


def _new_document(asked: Asked, mode: Mode, servers: Sequence[Server]) -> Document:
    options = asked.options
    return {
        "schema": SCHEMA,
        "claim_eligible": False,
        "tool": {"name": "kvverify", "version": kvverify.__version__},
        "run_id": uuid.uuid4().hex,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "state": "running",
        "request": asked.request(),
        "servers": [_server(server) for server in servers],
        "plan": {
            "mode": mode,
            "max_tokens": options.max_tokens,
            "hit_tolerance": options.hit_tolerance,
            "skip_hit_check": options.skip_hit_check,
            "min_valid": options.min_valid,
            "temperature": 0,
            "seed": 0,
            "conversations_sha256": conversations_sha256(asked.conversations),
            "conversations": [_planned(one, hide=options.hide_text) for one in asked.conversations],
        },
        "conversations": [],
        "result": {},
        "errors": [],
    }


def _server(server: Server) -> Document:
    identity = server.identity
    return {
        "name": server.name,
        "url": server.url,
        "kind": identity.kind,
        "version": identity.version,
        "model": identity.model,
        "settings": identity.settings,
        "load": {
            "running_before": server.load.running,
            "generated_tokens_before": server.load.generated_tokens,
            "generated_tokens_after": None,
        },
    }


def _planned(conversation: Conversation, *, hide: bool) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "sha256": conversation.sha256,
        "messages": None if hide else [message.to_json() for message in conversation.messages],
        "followup": None if hide else conversation.followup,
    }

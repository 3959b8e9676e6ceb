"""Whether a server check's report says what its own answers say: all that can be computed again is."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from kvverify.report.schema import shown, validate
from kvverify.server.conversations import Conversation, Message
from kvverify.server.document import SCHEMA, Document, judge, text_sha256
from kvverify.server.facts import ORDER


def check_document(document: object) -> list[str]:
    """List every reason why a report is not sound, one line each; empty where it is.

    ``document`` may be any JSON value. Where it does not fit the schema, only that is said.
    """
    reasons = validate(document, f"{SCHEMA}.schema.json")
    if reasons or not isinstance(document, dict):
        return reasons
    return [*_servers(document), *_plan(document), *_answers(document), *_derived(document)]


def _servers(document: Document) -> Iterator[str]:
    names = [server["name"] for server in document["servers"]]
    wanted = ["cache", "recompute"] if document["plan"]["mode"] == "two-servers" else ["cache"]
    if names != wanted:
        yield f"servers: the plan's mode has {' and '.join(wanted)}; the report holds {', '.join(names)}"


def _plan(document: Document) -> Iterator[str]:
    plan = document["plan"]
    names = [one["id"] for one in plan["conversations"]]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"plan.conversations: the id {shown(name, 200)} is there twice"
    for place, one in enumerate(plan["conversations"]):
        label = f"plan.conversations[{place}]"
        if (one["messages"] is None) is not document["request"]["hide_text"] or (one["followup"] is None) is not (
            one["messages"] is None
        ):
            yield f"{label}: request.hide_text says whether there are texts, and they do not follow it"
        elif one["messages"] is not None:
            messages = tuple(Message(message["role"], message["content"]) for message in one["messages"])
            digest = Conversation(one["id"], messages, one["followup"]).sha256
            if digest != one["sha256"]:
                yield f"{label}: sha256 says {one['sha256']}, its texts give {digest}"
    digest = sha256("".join(f"{one['sha256']}\n" for one in plan["conversations"]).encode("ascii")).hexdigest()
    if digest != plan["conversations_sha256"]:
        yield f"plan.conversations_sha256: says {plan['conversations_sha256']}, the conversations give {digest}"


def _answers(document: Document) -> Iterator[str]:
    """Check the answers against the plan: asked for in its order, each in its place, texts with their hashes."""
    planned = [one["id"] for one in document["plan"]["conversations"]]
    names = [one["id"] for one in document["conversations"]]
    if names != planned[: len(names)]:
        yield "conversations: are not the planned ones, in their order"
    recompute = document["servers"][-1]["name"]
    for place, one in enumerate(document["conversations"]):
        label = f"conversations[{place}]"
        if [(answer["role"], answer["repeat"]) for answer in one["answers"]] != list(ORDER[: len(one["answers"])]):
            yield f"{label}: its answers are not in the order of the requests"
        for number, answer in enumerate(one["answers"]):
            who = f"{label}.answers[{number}]"
            if answer["server"] != (recompute if answer["role"] == "recomputed" else "cache"):
                yield f"{who}: came from another server than the mode says"
            text, digest = answer["text"], answer["text_sha256"]
            if text is not None and document["request"]["hide_text"]:
                yield f"{who}: holds a text, and request.hide_text says that none is kept"
            elif text is not None and text_sha256(text) != digest:
                yield f"{who}: text_sha256 says {digest}, the text gives {text_sha256(text)}"


def _derived(document: Document) -> Iterator[str]:
    verdicts, result = judge(document)
    for place, (one, derived) in enumerate(zip(document["conversations"], verdicts, strict=True)):
        yield from _unequal(f"conversations[{place}]", derived, one)
    yield from _unequal("result", result, document["result"])


def _unequal(label: str, derived: Document, stated: Document) -> Iterator[str]:
    """Name each member that is not what the answers give."""
    for name, value in derived.items():
        if not _same(stated.get(name), value):
            yield f"{label}.{name}: says {shown(stated.get(name), 200)}, the answers give {shown(value, 200)}"


def _same(a: Any, b: Any) -> bool:
    """Compare JSON values with their types: Python calls true and 1 equal."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)

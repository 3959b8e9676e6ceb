"""Two-turn conversations: the built-in ones, and a user's own from JSON Lines or one JSON array."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from kvverify.errors import UsageError

ROLES = ("system", "developer", "user", "assistant")
"""Roles that a message may have; what a server's chat template makes of them is its own business."""

MOST_BYTES = 1 << 26
"""Largest file of conversations that is read."""
_MOST_QUOTED = 20
"""Most bad entries that one error names."""


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: str
    """One of :data:`ROLES`."""
    content: str
    """Its text, never empty."""

    def to_json(self) -> dict[str, str]:
        return {"role": self.role, "content": self.content}


@dataclass(frozen=True)
class Conversation:
    """What is asked in turn 1, and what after the server's answer in turn 2."""

    id: str
    """Names the conversation in the report; unique within a run."""
    messages: tuple[Message, ...]
    """Turn 1: ends with a user's message."""
    followup: str
    """The user's message of turn 2."""

    def turn2(self, answer: str) -> tuple[Message, ...]:
        """Give the messages of turn 2 after ``answer``."""
        return (*self.messages, Message("assistant", answer), Message("user", self.followup))

    @property
    def sha256(self) -> str:
        """Hex sha256 of what the conversation asks, so that two reports can be seen to ask the same."""
        asked = [[message.role, message.content] for message in self.messages]
        return sha256(json.dumps([asked, self.followup]).encode("ascii")).hexdigest()


def builtin() -> tuple[Conversation, ...]:
    """Read the conversations that ship with kvverify."""
    text = (files("kvverify.server") / "builtin.jsonl").read_text(encoding="utf-8")
    return parse(text, "the built-in conversations")


def load(path: Path) -> tuple[Conversation, ...]:
    """Read a user's conversations; raises UsageError that names every bad line (or entry of an array)."""
    try:
        with path.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--conversations: {path} cannot be read: {error.strerror}", "name a file") from None
    if len(content) > MOST_BYTES:
        raise UsageError(f"--conversations: {path} is larger than {MOST_BYTES >> 20} MiB", "split it")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"--conversations: {path} is not UTF-8 at byte {error.start}", "convert it") from None
    return parse(text, str(path))


def parse(text: str, source: str) -> tuple[Conversation, ...]:
    """Read conversations from JSON Lines, or from one JSON array.

    An entry is ``{"id", "turn1", "turn2"}`` (two messages of the user's) or ``{"id", "messages", "followup"}``. Raises
    UsageError that names the number of every bad line, or of every bad entry of an array, counted from 1.
    """
    conversations, mistakes, seen = [], [], dict[str, str]()
    for place, entry in _entries(text, source):
        try:
            conversation = _conversation(entry() if callable(entry) else entry)
            if conversation.id in seen:
                raise ValueError(f"its id is that of {seen[conversation.id]}")
            seen[conversation.id] = place
            conversations.append(conversation)
        except ValueError as error:
            mistakes.append(f"{place}: {error}")
    if mistakes:
        more = f", and {len(mistakes) - _MOST_QUOTED} more" if len(mistakes) > _MOST_QUOTED else ""
        raise UsageError(
            f"--conversations: {source} has {len(mistakes)} bad {'entry' if len(mistakes) == 1 else 'entries'}: "
            f"{', '.join(mistakes[:_MOST_QUOTED])}{more}",
            'an entry is {"id", "turn1", "turn2"} or {"id", "messages", "followup"}',
        )
    if not conversations:
        raise UsageError(f"--conversations: {source} holds no conversation", "name a file with at least one")
    return tuple(conversations)


def _entries(text: str, source: str) -> Iterator[tuple[str, Any]]:
    """Give each entry with what to call it; a line is parsed only when its turn comes, so that all are reported."""
    if text.lstrip().startswith("["):
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"--conversations: {source} is not JSON: {error}", "give one array, or a line each"
            ) from None
        yield from ((f"entry {number}", value) for number, value in enumerate(values, start=1))
        return
    # Only a line feed ends a line of JSON Lines: a string may hold other line separators.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"line {number}", lambda line=line: _parse_line(line)


def _parse_line(line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON ({error.msg} at column {error.colno})") from None
    except RecursionError:
        raise ValueError("nests too deep") from None


def _conversation(entry: Any) -> Conversation:
    if not isinstance(entry, dict):
        raise ValueError("is not an object")  # noqa: TRY004 - one kind of error for whatever is wrong with an entry
    short, long = {"id", "turn1", "turn2"}, {"id", "messages", "followup"}
    if set(entry) == short:
        messages = (Message("user", _text(entry, "turn1")),)
        return Conversation(_identifier(entry), messages, _text(entry, "turn2"))
    if set(entry) == long:
        return Conversation(_identifier(entry), _messages(entry["messages"]), _text(entry, "followup"))
    raise ValueError("has other members than one of the two forms")


def _identifier(entry: dict[str, Any]) -> str:
    name = _text(entry, "id")
    if len(name) > 100 or not name.isprintable():
        raise ValueError("id is longer than 100 characters, or has control characters")
    return name


def _messages(value: Any) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("messages is not a list of messages")
    messages = []
    for number, one in enumerate(value, start=1):
        if not isinstance(one, dict) or set(one) != {"role", "content"}:
            raise ValueError(f"message {number} is not an object of role and content alone")
        if one["role"] not in ROLES:
            raise ValueError(f"message {number} has another role than {', '.join(ROLES)}")
        if not _is_text(one["content"]):
            raise ValueError(f"message {number} has no text as its content")
        messages.append(Message(one["role"], one["content"]))
    if messages[-1].role != "user":
        raise ValueError("the last of messages is not the user's")
    return tuple(messages)


def _text(entry: dict[str, Any], name: str) -> str:
    value = entry[name]
    if not _is_text(value):
        raise ValueError(f"{name} is not a text, or is empty")
    return str(value)


def _is_text(value: Any) -> bool:
    """Whether a value is text that can be sent: not blank, and no half of a surrogate pair."""
    return isinstance(value, str) and bool(value.strip()) and _encodable(value)


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def select(conversations: Sequence[Conversation], limit: int | None) -> tuple[Conversation, ...]:
    """Take the first ``limit`` conversations; all of them where it is None."""
    return tuple(conversations[:limit])

"""Conversations: the built-in ones, and what a user's file may and may not hold."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvverify.errors import UsageError
from kvverify.server.conversations import Message, builtin, load, parse, select
from kvverify.server.turns import closing_ids, turn2_ids

SHORT = {"id": "a", "turn1": "Why?", "turn2": "And then?"}
LONG = {"id": "b", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]}
LONG["followup"] = "And then?"


def test_the_builtin_conversations_are_many_and_varied() -> None:
    found = builtin()
    assert len(found) >= 20
    assert len({one.sha256 for one in found}) == len(found)
    assert any(one.messages[0].role == "system" for one in found)
    assert any(len(one.messages) > 2 for one in found)
    assert any(not one.followup.isascii() for one in found)


@pytest.mark.parametrize("text", [json.dumps([SHORT, LONG]), f"{json.dumps(SHORT)}\n\n{json.dumps(LONG)}\n"])
def test_both_forms_are_read_from_lines_and_from_an_array(text: str) -> None:
    first, second = parse(text, "file")
    assert (first.id, first.messages, first.followup) == ("a", (Message("user", "Why?"),), "And then?")
    assert [message.role for message in second.messages] == ["system", "user"]
    assert [message.role for message in second.turn2("So.")] == ["system", "user", "assistant", "user"]


def test_every_bad_line_is_reported_with_its_number() -> None:
    lines = [
        json.dumps(SHORT),
        "{",
        "17",
        json.dumps({**SHORT, "id": "c", "more": 1}),
        json.dumps(SHORT),
        json.dumps({"id": "d", "turn1": " ", "turn2": "x"}),
        json.dumps({**LONG, "id": "e", "messages": [{"role": "tool", "content": "x"}]}),
        json.dumps({**LONG, "id": "f", "messages": [{"role": "assistant", "content": "x"}]}),
        json.dumps({**LONG, "id": "g", "messages": [{"role": "user", "content": [{"type": "image"}]}]}),
        json.dumps({**SHORT, "id": ""}),
        json.dumps({**SHORT, "id": "h", "turn1": "\ud800"}),
    ]
    with pytest.raises(UsageError) as caught:
        parse("\n".join(lines), "file")
    said = str(caught.value)
    assert "line 1:" not in said
    for number in range(2, len(lines) + 1):
        assert f"line {number}:" in said
    assert "\n" not in said


@pytest.mark.parametrize("text", ["", "\n \n", "[]", "[1", "[{}]", "null"])
def test_a_file_without_a_conversation_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--conversations"):
        parse(text, "file")


def test_a_line_separator_within_a_string_ends_no_line() -> None:
    assert parse(json.dumps({**SHORT, "turn1": "one\u2028two"}, ensure_ascii=False), "file")[0].messages[0].content


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "conversations.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match="--conversations"):
        load(path)


def test_a_limit_takes_the_first() -> None:
    assert select(builtin(), 3) == builtin()[:3]
    assert select(builtin(), None) == builtin()


ids = st.lists(st.integers(0, 99), min_size=1, max_size=8)


@given(prompt=ids, answer=ids, closing=ids)
def test_turn_2_holds_turn_1_as_it_was(prompt: list[int], answer: list[int], closing: list[int]) -> None:
    joined = turn2_ids(prompt, answer, closing)
    assert joined[: len(prompt) + len(answer)] == (*prompt, *answer)
    assert joined[len(prompt) + len(answer) - 1 :] in ((answer[-1], *closing), tuple(closing))


@given(closing=ids)
def test_what_follows_an_answer_is_found(closing: list[int]) -> None:
    def render(messages: list[Message]) -> tuple[int, ...]:
        said = messages[1].content
        return (1, *(1000 + ord(one) for one in said), *closing)

    assert closing_ids(render, parse(json.dumps(SHORT), "file")[0]) == tuple(closing)


def test_without_rendering_nothing_is_found() -> None:
    assert closing_ids(lambda _: None, builtin()[0]) is None

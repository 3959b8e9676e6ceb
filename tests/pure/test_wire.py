"""Messages between a run and its engine: whole or refused, never guessed."""

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvverify.engine import wire
from kvverify.engine.wire import Answered, Failed, Generate, Message, Prepare, Started, Stop, Stopped, decode, encode

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), json_values, max_size=4)
BY_TYPE = {
    "dict[str, Any]": objects,
    "list[int]": st.lists(st.integers(min_value=0)),
    "list[int] | None": st.none() | st.lists(st.integers(min_value=0)),
    "int | None": st.none() | st.integers(),
    "str | None": st.none() | st.text(),
    "str": st.text(),
    "bool": st.booleans(),
    "float": st.floats(allow_nan=False, allow_infinity=False),
}


def type_name(annotation: object) -> str:
    return (
        annotation.__name__
        if isinstance(annotation, type) and not hasattr(annotation, "__args__")
        else str(annotation).replace("typing.", "")
    )


def messages_of(kind: type) -> st.SearchStrategy[Message]:
    return st.builds(kind, **{field.name: BY_TYPE[type_name(field.type)] for field in fields(kind)})


KINDS = Message.__args__
messages = st.one_of([messages_of(kind) for kind in KINDS])


@given(messages)
def test_every_message_comes_back_as_it_was(message):
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == message
    assert type(decode(line)) is type(message)


def test_every_kind_of_message_can_be_sent():
    assert set(wire._KINDS.values()) == set(KINDS)


@given(messages, st.data())
def test_a_message_that_is_cut_off_is_refused(message, data):
    line = encode(message).rstrip(b"\n")
    with pytest.raises(ValueError, match="not a message of this protocol"):
        decode(line[: data.draw(st.integers(0, len(line) - 1))])


@given(messages, st.data())
def test_a_message_with_a_field_more_or_less_is_refused(message, data):
    body = json.loads(encode(message))
    name = data.draw(st.sampled_from(sorted(body)))
    with pytest.raises(ValueError, match=r"must have the fields|not a message"):
        decode(json.dumps({key: value for key, value in body.items() if key != name}).encode())
    with pytest.raises(ValueError, match="must have the fields"):
        decode(json.dumps({**body, "extra": 1}).encode())


GARBAGE = [
    b"",
    b"\n",
    b"null",
    b"[]",
    b"[1, 2]",
    b'"Stop"',
    b"1",
    b"{}",
    b'{"message": null}',
    b'{"message": "Nothing"}',
    b'{"message": ["Stop"]}',
    b'{"message": {}}',
    b'{"message": "stop"}',
    b'{"message": "Message"}',
    b'{"message": "__class__"}',
    b"Stop",
    b"\xff\xfe\x00",
    b"(EngineCore pid=7) INFO 11-29 19:07:22 [core.py:122] Initializing a V1 LLM engine\n",
    b'{"message": "Stop"}{"message": "Stop"}',
]


@pytest.mark.parametrize("line", GARBAGE, ids=lambda line: repr(line[:40]))
def test_anything_else_is_refused(line):
    with pytest.raises(ValueError, match="not a message of this protocol"):
        decode(line)


def test_a_refused_line_is_quoted_but_not_at_length():
    with pytest.raises(ValueError, match="quoted") as refused:
        decode(b"quoted" + b"x" * 10_000)
    assert len(str(refused.value)) < 200


@given(st.binary())
def test_no_line_of_bytes_is_taken_for_a_message(line):
    with pytest.raises(ValueError, match="not a message") as refused:
        decode(line)
    assert "\n" not in str(refused.value)


def test_what_is_unknown_stays_unknown():
    answered = Answered("r", None, None, None, None, None, None, "ValueError: no")
    assert decode(encode(answered)) == answered
    assert Failed("Start", "x") != Started({}, {})
    assert decode(encode(Stop())) == Stop() != Stopped()


def test_token_ids_keep_their_order():
    ids = list(range(49151, 0, -7))
    prepared = Generate("r", ids, "scope", {"kv_transfer_params": {"tag": "a"}})
    assert decode(encode(prepared)).prompt_token_ids == ids


def test_what_json_cannot_hold_is_never_sent():
    with pytest.raises(TypeError):
        encode(Prepare({"path": object()}, {}, 1.0))

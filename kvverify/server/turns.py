"""The prompt of turn 2 from ids alone, so that no decoding and encoding can change what turn 1 was."""

from collections.abc import Callable, Sequence

from kvverify.server.conversations import Conversation, Message

Render = Callable[[Sequence[Message]], tuple[int, ...] | None]
"""Gives the ids of messages as the server's chat template renders them."""

_STAND_INS = ("Amber 71", "violet?")
"""Two answers that share neither their first nor their last character: what follows both follows any answer."""


def closing_ids(render: Render, conversation: Conversation) -> tuple[int, ...] | None:
    """Find the ids that follow the answer of turn 1 in the prompt of turn 2, up to the opening of the next answer.

    They are the common end of two prompts of turn 2 with different answers. None where the server renders nothing or
    the two have no end in common.
    """
    first, second = (render(conversation.turn2(answer)) for answer in _STAND_INS)
    if first is None or second is None:
        return None
    length = 0
    while length < min(len(first), len(second)) and first[-1 - length] == second[-1 - length]:
        length += 1
    return first[len(first) - length :] if length else None


def turn2_ids(prompt: Sequence[int], answer: Sequence[int], closing: Sequence[int]) -> tuple[int, ...]:
    """Join turn 1's prompt, its answer and what follows; an end-of-turn id that the answer has is not doubled.

    >>> turn2_ids([1, 2], [7, 8, 0], [0, 5, 6])
    (1, 2, 7, 8, 0, 5, 6)
    >>> turn2_ids([1, 2], [7, 8], [0, 5, 6])
    (1, 2, 7, 8, 0, 5, 6)
    """
    rest = closing[1:] if answer and answer[-1] == closing[0] else closing
    return (*prompt, *answer, *rest)

"""Search for a text of an exact number of tokens.

Counts are never computed from parts: tokenizers merge across seams, so every candidate is rendered as a whole.
"""

from collections.abc import Callable, Sequence

Render = Callable[[int, str], Sequence[int]]
"""Ids of a prompt from a number of lines and a pad text."""

PAD_UNITS = (" and", " a", " on", ".", "a", "\n")
"""What a pad repeats: for at least one of them most tokenizers count one token."""

MOST_RENDERS = 250
"""Bound of the work for one way to make a prompt. A prompt that can be made takes about ten."""

MOST_LINES_LESS = 6
"""Lines left out at most to make room for a pad that fits."""


class _Search:
    """Counts renders, so that a tokenizer without a fitting text ends in an error and not in a long search."""

    def __init__(self, render: Render, asked: int) -> None:
        self._render = render
        self._asked = asked
        self._left = MOST_RENDERS
        self.found: list[int] | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more is to be tried."""
        return self._left <= 0 or self.found is not None

    def missing(self, lines: int, pad: str) -> int:
        """Return how many tokens this text lacks, negative where it has too many; keep its ids if they fit."""
        self._left -= 1
        ids = self._render(lines, pad)
        if len(ids) == self._asked:
            self.found = list(ids)
        return self._asked - len(ids)


def fit(render: Render, asked: int) -> list[int] | None:
    """Return ids of exactly ``asked`` tokens, or None where no text within the bounds has that many."""
    search = _Search(render, asked)
    most = _most_lines(search)
    for lines in range(most, max(-1, most - MOST_LINES_LESS), -1):
        _try_pads(search, lines)
        if search.over:
            break
    return search.found


def _most_lines(search: _Search) -> int:
    """Return the largest number of lines that does not make the text too long, -1 where none is short enough."""
    room = search.missing(0, "")
    if room < 0:
        return -1
    # Every line has at least one token. Lines cost about the same, so a few secant steps land on the number.
    low, high, guess = 0, room + 1, 8
    while high - low > 1 and not search.over:
        guess = min(max(guess, low + 1), high - 1)
        missing = search.missing(guess, "")
        cost = max(1.0, (room - missing) / guess)
        if missing >= 0:
            low = guess
        else:
            high = guess
        step = int(abs(missing) / cost)
        guess += max(1, step) if missing >= 0 else -max(1, step)
    return low


def _try_pads(search: _Search, lines: int) -> None:
    """Try pads of one repeated unit, from the likeliest number of repeats down."""
    missing = search.missing(lines, "")
    for unit in PAD_UNITS:
        for repeats in range(missing, 0, -1):
            if search.over:
                return
            search.missing(lines, unit * repeats)

"""Search for a text of an exact number of tokens.

Counts are never computed from parts: tokenizers merge across the seams, so every candidate is rendered as a whole.
"""

from collections.abc import Callable, Sequence

Render = Callable[[int, str], Sequence[int]]
"""Ids of a prompt with a number of records and a pad text before them."""

PAD_UNITS = (" and", " a", " on", ".", "a", "\n")
"""What a pad repeats; most tokenizers count one token for at least one of them."""

MOST_RENDERS = 400
"""Bound of the work for one prompt. A prompt that can be made takes about ten."""


class _Budget:
    """Counts renders, so that a tokenizer without a fitting text ends in an error and not in a long search."""

    def __init__(self, render: Render, asked: int) -> None:
        self._render = render
        self._asked = asked
        self._left = MOST_RENDERS
        self.found: list[int] | None = None

    @property
    def spent(self) -> bool:
        """Whether the search must end."""
        return self._left <= 0 or self.found is not None

    def missing(self, records: int, pad: str) -> int:
        """Tokens that this text lacks, negative where it has too many; remembers ids that fit."""
        self._left -= 1
        ids = self._render(records, pad)
        if len(ids) == self._asked:
            self.found = list(ids)
        return self._asked - len(ids)


def fit(render: Render, asked: int) -> list[int] | None:
    """Ids of exactly ``asked`` tokens, or None where no text within the bounds has that many."""
    budget = _Budget(render, asked)
    most = _most_records(budget)
    for records in range(most, max(-1, most - 6), -1):
        _pad(budget, records)
        if budget.spent:
            break
    return budget.found


def _most_records(budget: _Budget) -> int:
    """The largest number of records that does not make the text too long, -1 where none is already too long."""
    low, missing = -1, budget.missing(0, "")
    if missing < 0:
        return low
    low, high, step = 0, 1, 1
    # Secant steps: the cost of a record varies little, so two or three renders land within a few records.
    start = missing
    high = missing + 1  # a record has at least one token
    guess = min(8, high - 1)
    while high - low > 1 and not budget.spent:
        guess = min(max(guess, low + 1), high - 1)
        missing = budget.missing(guess, "")
        cost = max(1.0, (start - missing) / guess)
        if missing >= 0:
            low = guess
            step = int(missing / cost)
            guess += max(1, step)
        else:
            high = guess
            guess -= max(1, int(-missing / cost))
    return low


def _pad(budget: _Budget, records: int) -> None:
    """Tries pads of one repeated unit, from the likeliest number of repeats down."""
    missing = budget.missing(records, "")
    for unit in PAD_UNITS:
        for repeats in range(missing, 0, -1):
            if budget.spent:
                return
            budget.missing(records, unit * repeats)

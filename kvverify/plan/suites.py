"""Suites: which prompt lengths are asked how often, and the options that shape them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvverify.errors import UsageError

DEFAULT_SPAN = 256
"""Tokens of one span where ``--chunk-size`` names no other."""

PROMPT_FORMATS = ("raw", "chat")
"""The formats in the order in which a plan asks them."""


@dataclass(frozen=True)
class ProbeSpec:
    """A probe before its prompt is made."""

    id: str
    """Name in the report, unique in its plan, of ``[A-Za-z0-9._-]`` only."""
    prompt_format: str
    """``raw`` or ``chat``."""
    prompt_tokens: int
    """Exact number of prompt tokens, special tokens and generation prompt included."""
    reuse_count: int
    """Reusing answers after the cold one, at least 1."""


@dataclass(frozen=True)
class Suite:
    """Prompt lengths on, and one token either side of, multiples of a span."""

    name: str
    """Value of ``--suite``."""
    boundaries: tuple[int, ...]
    """Multiples of the span around which the lengths lie."""
    default_formats: tuple[str, ...]
    """Formats where ``--prompt-format`` names none."""

    def lengths(self, span: int) -> tuple[int, ...]:
        """Return the prompt lengths in tokens for a span in tokens, ascending.

        >>> SUITES["smoke"].lengths(256)
        (511, 512, 513)
        """
        return tuple(count * span + offset for count in self.boundaries for offset in (-1, 0, 1))

    def specs(self, span: int, formats: Iterable[str], reuse_counts: Sequence[int]) -> tuple[ProbeSpec, ...]:
        """Combine every format with every length and reuse count."""
        return tuple(
            ProbeSpec(f"{name}-{length}-r{count}", name, length, count)
            for name in formats
            for length in self.lengths(span)
            for count in reuse_counts
        )


SUITES = {
    "standard": Suite("standard", (2, 4), ("raw", "chat")),
    "smoke": Suite("smoke", (2,), ("chat",)),
}
"""The suites whose lengths follow from the span."""


def find_suite(name: str) -> Suite:
    """Return the suite called ``name``, or raise UsageError."""
    if name not in SUITES:
        raise UsageError(f"--suite: {name!r} is unknown", f"choose one of {', '.join(SUITES)}")
    return SUITES[name]


def generations(specs: Iterable[ProbeSpec]) -> int:
    """Count the generations of a run with one target: 1 control, 1 cold and the reusing answers of each probe.

    >>> generations(SUITES["standard"].specs(256, ("raw", "chat"), (1, 3)))
    96
    """
    return sum(2 + spec.reuse_count for spec in specs)


def parse_prompt_format(text: str | None, suite: Suite) -> tuple[str, ...]:
    """Return the formats that ``--prompt-format`` means; ``None`` (not given) is the suite's own default."""
    if text is None:
        return suite.default_formats
    if text == "both":
        return PROMPT_FORMATS
    if text in PROMPT_FORMATS:
        return (text,)
    raise UsageError(f"--prompt-format: {text!r} is unknown", "choose raw, chat or both")


def parse_reuse_counts(text: str) -> tuple[int, ...]:
    """Read ``--reuse-counts``: distinct positive integers joined by commas, in the order given.

    >>> parse_reuse_counts("1,3")
    (1, 3)
    """
    parts = [part.strip() for part in text.split(",")]
    # str.isdecimal alone also takes digits of other scripts, and int() takes signs and underscores.
    if not all(part.isascii() and part.isdecimal() and len(part) <= 9 for part in parts):
        raise UsageError(
            f"--reuse-counts: {text!r} is not a list of positive integers", "write for instance --reuse-counts 1,3"
        )
    counts = tuple(int(part) for part in parts)
    check_reuse_counts(counts)
    return counts


def check_reuse_counts(counts: Sequence[int]) -> None:
    """Raise UsageError unless the counts are distinct positive integers, at least one."""
    shown = ",".join(map(str, counts))
    if not counts or any(count < 1 for count in counts):
        raise UsageError(
            f"--reuse-counts: every count must be at least 1, not {shown or 'empty'}",
            "write for instance --reuse-counts 1,3; --no-native-prefix-caching asks for a run without reuse",
        )
    if len(set(counts)) != len(counts):
        raise UsageError(
            f"--reuse-counts: {shown} names a count twice", "name each count once, as in --reuse-counts 1,3"
        )

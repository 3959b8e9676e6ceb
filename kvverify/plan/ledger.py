"""The words of one probe: a ledger of keyed lines in which every span has lines of its own.

A line is a key and its word, ``B: river``. The keys that the answer reads are dealt out to regions of about one span
each, one after another, and a region repeats the lines of its own keys, shuffled, so that successive keys of the answer
are found in different spans and nowhere else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from random import Random

from kvverify.plan.words import WORDS

READ = "ABCDEFGH"
"""Keys that the closing task asks for, in order. An answer of 16 tokens reaches the first four."""

SHOWN = "XYZ"
"""Keys whose reading an example shows before the task: without it small models do not take the task up."""

SPARE = "IJKLMNOPQRSTUVW"
"""Keys that keep a region from saying one line again and again, which small models then only echo."""

LINES_BEFORE_SHOWN = 7
"""Own lines of a region before each line of a shown key."""

SALT = "kvverify prompts 1"
"""Part of what the words are drawn from. Another salt makes other prompts of all probes."""


@dataclass(frozen=True)
class Ledger:
    """What the prompt of one probe says."""

    tag: str
    """Words that open the prompt and are the probe's own."""
    words: dict[str, str]
    """The word of each key."""
    regions: tuple[str, ...]
    """The keys of each region."""
    order: int
    """Seed of the order of a region's lines."""

    def lines(self, count: int) -> str:
        """Return ``count`` lines, the regions one after another and about equally long."""
        random = Random(self.order)
        keys: list[str] = []
        left: list[str] = []
        region = -1
        for line in range(count):
            now = line * len(self.regions) // count
            if now != region:
                region, left = now, []
            if line % (LINES_BEFORE_SHOWN + 1) == LINES_BEFORE_SHOWN:
                keys.append(SHOWN[line // (LINES_BEFORE_SHOWN + 1) % len(SHOWN)])
                continue
            if not left:
                left = list(self.regions[region])
                random.shuffle(left)
            keys.append(left.pop())
        return "".join(f"{key}: {self.words[key]}\n" for key in keys)

    def reading(self, keys: Sequence[str]) -> str:
        """Return the answer that reads ``keys``; it joins lines otherwise than the ledger, so that none is echoed."""
        return ", ".join(f"{key}: {self.words[key]}" for key in keys)


def draw_ledger(*, seed: int, probe_id: str, draw: int, spans: int) -> Ledger:
    """Draw the words of a probe whose prompt covers ``spans`` spans: the same arguments, the same words, everywhere."""
    # A digest, because hash() differs between processes.
    digest = sha256(f"{SALT}/{seed}/{probe_id}/{draw}".encode()).digest()
    random = Random(int.from_bytes(digest))
    words = list(WORDS)
    random.shuffle(words)
    keys = READ + SHOWN + SPARE
    return Ledger(
        tag=" ".join(words[len(keys) : len(keys) + 3]),
        words=dict(zip(keys, words, strict=False)),
        regions=_deal(max(2, min(spans, len(READ)))),
        order=int.from_bytes(digest[:8]),
    )


def _deal(regions: int) -> tuple[str, ...]:
    """Deal the read keys out, then spare ones until each region has two keys."""
    dealt = [READ[region::regions] for region in range(regions)]
    spare = iter(SPARE)
    return tuple(keys if len(keys) > 1 else keys + next(spare) for keys in dealt)

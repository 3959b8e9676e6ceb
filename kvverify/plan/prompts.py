"""Prompts of an exact number of tokens in which every span carries something that the greedy answer reads.

A prompt is a stream of keyed words, "Q: lamp, C: river", in regions of one span each. A region repeats the words of its
own keys only, so a key's word can be read there and nowhere else, and the closing task makes the model read the keys
in order. How much wrong KV such prompts reveal is measured by ``tests/model/test_prompt_sensitivity.py``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from random import Random

from kvverify.errors import PreflightError
from kvverify.plan.fit import Render, fit
from kvverify.plan.suites import DEFAULT_SPAN, ProbeSpec
from kvverify.plan.tokenizer import Message, TemplateRefusedError, Tokenizer
from kvverify.plan.words import WORDS

KEYS = "ABCDEFGH"
"""Keys that the answer reads: two tokens each, so that 16 new tokens reach all."""

OTHER_KEYS = "JKLMNOPQRSTUVWXYZ"
"""Keys that link one word to the next key."""

FAR = 1 << 30
"""More tokens than any prompt has."""


@dataclass(frozen=True)
class Ledger:
    """The words of one probe's prompt."""

    tag: str
    """Words that open the prompt and are the probe's own."""
    values: tuple[str, ...]
    """One word for each of KEYS."""
    spares: tuple[str, ...]
    """Words without a key of their own."""
    regions: int
    """Parts of the prompt, each with keys of its own."""

    def body(self, units: int) -> str:
        """Return ``units`` units, the regions one after another and about equally long."""
        keys = [range(region, len(KEYS), self.regions) for region in range(self.regions)]
        shown = [0] * self.regions
        text = []
        for unit in range(units):
            region = unit * self.regions // units
            own = keys[region]
            text.append(self._unit(own[shown[region] % len(own)], unit))
            shown[region] += 1
        return "".join(text)

    def _unit(self, place: int, unit: int) -> str:
        """Return a key's word after the word before it, which another key names: what follows is learned there."""
        before = self.values[place - 1] if place else self.spares[unit % len(self.spares)]
        other = OTHER_KEYS[unit * 7 % len(OTHER_KEYS)]
        return f"{other}: {before}, {KEYS[place]}: {self.values[place]}, "


def draw_ledger(seed: int, spec: ProbeSpec, draw: int, span: int) -> Ledger:
    """Draw the words of a probe: the same arguments give the same words on every machine."""
    # A digest, not hash(), which differs between processes.
    order = Random(int.from_bytes(sha256(f"{seed}/{spec.id}/{draw}".encode()).digest()))
    words = list(WORDS)
    order.shuffle(words)
    values = tuple(words[3 : 3 + len(KEYS)])
    regions = min(max(2, -(-spec.prompt_tokens // span)), len(KEYS))
    return Ledger(" ".join(words[:3]), values, tuple(words[3 + len(KEYS) :]), regions)


class PromptWriter:
    """Writes the prompts of one plan with one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, seed: int, span: int = DEFAULT_SPAN) -> None:
        self._tokenizer = tokenizer
        self._seed = seed
        self._span = span
        self._system_role: bool | None = None

    def write(self, spec: ProbeSpec, draw: int = 0) -> tuple[int, ...]:
        """Return the ids of a prompt of exactly ``spec.prompt_tokens`` tokens.

        ``draw`` picks other words for the same probe. Raises PreflightError when the probe needs a chat template and
        the tokenizer has none, or when no text of this kind has that many tokens.
        """
        ledger = draw_ledger(self._seed, spec, draw, self._span)
        for render in self._renders(spec.prompt_format, ledger):
            ids = fit(render, spec.prompt_tokens)
            if ids is not None:
                return tuple(ids)
        raise PreflightError(
            f"probe {spec.id}: this tokenizer makes no {spec.prompt_format} prompt of exactly "
            f"{spec.prompt_tokens} tokens",
            "choose a larger --chunk-size or another --prompt-format",
        )

    def _renders(self, prompt_format: str, ledger: Ledger) -> list[Render]:
        """Ways to turn a number of units and a pad into ids, the best first."""
        if prompt_format == "raw":
            return [lambda units, pad: self._tokenizer.encode(raw_text(ledger, units, pad))]
        messages = system_messages if self._takes_system() else user_messages
        return [lambda units, pad: self._tokenizer.render_chat(messages(ledger, units, pad))]

    def _takes_system(self) -> bool:
        """Whether a system message brings the tag nearer to the start than a user message does."""
        if not self._tokenizer.has_chat_template:
            raise PreflightError(
                "the tokenizer has no chat template, so it makes no chat prompt",
                "choose a --tokenizer with a chat template, or --prompt-format raw",
            )
        if self._system_role is None:
            self._system_role = self._shared_start(system_messages) <= self._shared_start(user_messages)
        return self._system_role

    def _shared_start(self, messages: Callable[[Ledger, int, str], list[Message]]) -> int:
        """Ids before the first that depends on the tag; FAR where the template takes no such messages."""
        values = tuple(WORDS[: len(KEYS)])
        try:
            first, second = (
                self._tokenizer.render_chat(messages(Ledger(tag, values, values, 1), 1, ""))
                for tag in (WORDS[0], WORDS[-1])
            )
        except TemplateRefusedError:
            if messages is user_messages:
                raise
            return FAR
        pairs = enumerate(zip(first, second, strict=False))
        return next((index for index, (one, other) in pairs if one != other), FAR)


def raw_text(ledger: Ledger, units: int, pad: str) -> str:
    """The text of a raw prompt: it ends where the first key's word comes next."""
    return f"{ledger.tag}{pad}\n{ledger.body(units)}{KEYS[0]}:"


def system_messages(ledger: Ledger, units: int, pad: str) -> list[Message]:
    """The messages of a chat prompt whose tag stands in a system message."""
    return [{"role": "system", "content": f"{ledger.tag}{pad}"}, {"role": "user", "content": _task(ledger, units)}]


def user_messages(ledger: Ledger, units: int, pad: str) -> list[Message]:
    """The messages of a chat prompt without a system message."""
    return [{"role": "user", "content": f"{ledger.tag}{pad}\n{_task(ledger, units)}"}]


def _task(ledger: Ledger, units: int) -> str:
    return f"{ledger.body(units)}\nWrite {KEYS[0]} to {KEYS[-1]} with the word of each."

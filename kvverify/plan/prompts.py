"""Prompts of an exact number of tokens in which every span matters for the answer.

A prompt is a ledger of records, "key is value", of words drawn for the probe. The closing task makes the model follow a
chain: each record's value is the key of the next, and successive records of the chain lie in different parts of the
ledger, so that the greedy answer reads a record of every part.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from random import Random

from kvverify.errors import PreflightError
from kvverify.plan.fit import fit
from kvverify.plan.suites import ProbeSpec
from kvverify.plan.tokenizer import Message, TemplateRefusal, Tokenizer
from kvverify.plan.words import WORDS

LINKS = 8
"""Records of the chain: as many as 16 new tokens can read back, and more than any suite has spans."""


@dataclass(frozen=True)
class Ledger:
    """The words of one probe's prompt."""

    tag: str
    """Words that open the prompt and are the probe's own."""
    chain: tuple[str, ...]
    """The records that the answer follows."""
    others: tuple[str, ...]
    """The records between them."""

    def body(self, records: int, pad: str) -> str:
        """``records`` records with those of the chain spread evenly, after the words of ``pad``."""
        lines = list(self.others[: max(0, records - len(self.chain))])
        links = self.chain[:records]
        # The chain visits the ledger in two passes, so that neighbours in the chain are not neighbours in the text.
        order = [*links[::2], *links[1::2]]
        for position, link in enumerate(order):
            lines.insert(round((position + 0.5) * records / len(order)), link)
        return pad + "".join(lines)


def draw_ledger(seed: int, probe_id: str, draw: int, records: int) -> Ledger:
    """The ledger of a probe: the same arguments give the same words on every machine."""
    # A digest, not hash(): that one differs between processes. random() and thus shuffle() are stable across versions.
    random = Random(int.from_bytes(sha256(f"{seed}/{probe_id}/{draw}".encode()).digest()))
    words = list(WORDS)
    random.shuffle(words)
    tag, words = " ".join(words[:3]), words[3:]
    chain, keys = words[: LINKS + 1], words[LINKS + 1 :]
    pairs = zip(chain, chain[1:], strict=False)
    others = [
        f" {keys[index % len(keys)]} is {keys[int(random.random() * len(keys))]}.\n" for index in range(records)
    ]
    return Ledger(tag, tuple(f" {key} is {value}.\n" for key, value in pairs), tuple(others))


class PromptWriter:
    """Writes the prompts of one plan with one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self._tokenizer = tokenizer
        self._seed = seed
        self._system_role: bool | None = None

    def write(self, spec: ProbeSpec, draw: int = 0) -> tuple[int, ...]:
        """Ids of a prompt of exactly ``spec.prompt_tokens`` tokens.

        ``draw`` picks other words for the same probe. Raises PreflightError when the tokenizer has no chat template but the
        probe needs one, or when no text of this kind has that many tokens.
        """
        ledger = draw_ledger(self._seed, spec.id, draw, spec.prompt_tokens)
        for render in self._layouts(spec.prompt_format, ledger):
            ids = fit(render, spec.prompt_tokens)
            if ids is not None:
                return tuple(ids)
        raise PreflightError(
            f"probe {spec.id}: this tokenizer makes no {spec.prompt_format} prompt of exactly {spec.prompt_tokens} tokens",
            "choose a larger --chunk-size or another --prompt-format",
        )

    def _layouts(self, prompt_format: str, ledger: Ledger) -> list[Callable[[int, str], list[int]]]:
        """Ways to turn a number of records and a pad into ids, the fullest first."""
        if prompt_format == "raw":
            return [lambda records, pad: self._tokenizer.encode(raw_text(ledger, records, pad))]
        messages = system_messages if self._takes_system() else user_messages
        return [lambda records, pad: self._tokenizer.render_chat(messages(ledger, records, pad))]

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

    def _shared_start(self, messages: "Callable[[Ledger, int, str], list[Message]]") -> int:
        """Ids before the first that depends on the tag; very many where the template takes no such messages."""
        try:
            first, second = (
                self._tokenizer.render_chat(messages(Ledger(tag, (), ()), 0, "")) for tag in (WORDS[0], WORDS[-1])
            )
        except TemplateRefusal:
            if messages is user_messages:
                raise
            return 1 << 30
        pairs = enumerate(zip(first, second, strict=False))
        return next((index for index, (one, other) in pairs if one != other), 1 << 30)


def raw_text(ledger: Ledger, records: int, pad: str) -> str:
    """The text of a raw prompt."""
    start = ledger.chain[0].split()[0]
    return f"{ledger.tag}\n{ledger.body(records, pad)}\n {start} is"


def system_messages(ledger: Ledger, records: int, pad: str) -> list[Message]:
    """Messages whose system message opens with the tag."""
    return [
        {"role": "system", "content": ledger.tag},
        {"role": "user", "content": ledger.body(records, pad)},
    ]


def user_messages(ledger: Ledger, records: int, pad: str) -> list[Message]:
    """The same for a template without a system role: the tag opens the user message."""
    return [{"role": "user", "content": f"{ledger.tag}\n{ledger.body(records, pad)}"}]


__all__: Sequence[str] = ("PromptWriter",)

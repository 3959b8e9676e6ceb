"""Small tokenizers, unlike one another, with chat templates of their own."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE, Unigram, WordLevel

from kvverify.plan.words import WORDS

MARKED = (
    "{% for message in messages %}{{ '<|turn|>' + message['role'] + '\n' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|turn|>assistant\n' }}{% endif %}"
)
"""Takes every role in any order."""

NO_SYSTEM = (
    "{{ '<s>' }}{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "{{ '[' + message['role'] + '] ' + message['content'] | trim + ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant] ' }}{% endif %}"
)
"""Begins with the beginning-of-sequence token, refuses a system role and two turns of one role, and trims."""

PREAMBLE = (
    "{{ 'You are a model that was made with care and that answers every question as well as it can today. ' * 2 }}"
    + MARKED
)
"""Puts a text of its own before every message."""

DEAF = MARKED.replace("{% for message in messages %}", "{% for message in messages if message.role != 'system' %}")
"""Leaves system messages out without a word."""

DOUBLED = "{% for message in messages %}{{ message['content'] + ' ' + message['content'] + ' ' }}{% endfor %}"
"""Says everything twice, so that an odd number of tokens is impossible."""


def save(tokenizer: Tokenizer, folder: Path, template: str | None, **settings: str) -> Path:
    """Write a tokenizer folder as transformers reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    values: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast", **settings}
    if template is not None:
        values["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    return folder


def make_bytes(folder: Path, template: str | None = MARKED) -> Path:
    """Byte-level without merges: one token for each byte, and one for the turn mark."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(vocab={letter: place for place, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|turn|>"])
    return save(tokenizer, folder, template)


def make_words(folder: Path, template: str | None = NO_SYSTEM, extra: tuple[str, ...] = ()) -> Path:
    """One token for each known word and mark, one for all others; the encoder itself adds ``<s>``."""
    known = [*WORDS, *"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:,[]?\n", "user", "assistant", "system", *extra]
    vocabulary = {word: place for place, word in enumerate(dict.fromkeys(["<unk>", "<s>", *known]))}
    tokenizer = Tokenizer(WordLevel(vocab=vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", vocabulary["<s>"])]
    )
    tokenizer.add_special_tokens(["<s>"])
    return save(tokenizer, folder, template, bos_token="<s>", unk_token="<unk>")


def make_unigram(folder: Path, template: str | None = NO_SYSTEM) -> Path:
    """Pieces with probabilities, as sentencepiece makes them: pairs of letters, some words, single letters."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:,[]?<>|/\n▁"
    pairs = [first + second for first in "▁aeiou" for second in "bcdfghklmnprstvwy"]
    pieces = [("<unk>", 0.0), ("<s>", 0.0)]
    pieces += [("▁" + word, -9.0) for word in WORDS[::2]]
    pieces += [(pair, -6.0) for pair in pairs] + [(letter, -8.0) for letter in letters]
    tokenizer = Tokenizer(Unigram(pieces, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<s>"])
    return save(tokenizer, folder, template, bos_token="<s>", unk_token="<unk>")

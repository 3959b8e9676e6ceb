"""Prompts: exact lengths with unlike tokenizers, real chat messages, and bounded work."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from kvverify.errors import PreflightError
from kvverify.plan.plan import PlanRequest, build_plan
from kvverify.plan.prompts import PromptWriter
from kvverify.plan.suites import ProbeSpec
from kvverify.plan.tokenizer import Message, TemplateRefusedError, Tokenizer, load_tokenizer
from kvverify.plan.words import WORDS

from . import plan_tokenizers

NAMES = ("smollm2", "bytes", "words", "unigram", "deaf")
LENGTHS = (191, 192, 193, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 1502)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> dict[str, Tokenizer]:
    folder = tmp_path_factory.mktemp("tokenizers")
    return {
        "smollm2": load_tokenizer(smollm2),
        "bytes": load_tokenizer(plan_tokenizers.make_bytes(folder / "bytes")),
        "words": load_tokenizer(plan_tokenizers.make_words(folder / "words")),
        "unigram": load_tokenizer(plan_tokenizers.make_unigram(folder / "unigram")),
        "deaf": load_tokenizer(plan_tokenizers.make_bytes(folder / "deaf", plan_tokenizers.DEAF)),
    }


class Recorder:
    """A tokenizer that remembers what it was last asked to render."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.has_chat_template = tokenizer.has_chat_template
        self.vocabulary_size = tokenizer.vocabulary_size
        self.text = ""
        self.messages: list[Message] = []
        self.calls = 0

    def encode(self, text: str) -> list[int]:
        self.text, self.calls = text, self.calls + 1
        return self._tokenizer.encode(text)

    def render_chat(self, messages: Sequence[Message]) -> list[int]:
        self.messages, self.calls = list(messages), self.calls + 1
        return self._tokenizer.render_chat(messages)

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("prompt_format", ["raw", "chat"])
def test_a_prompt_has_exactly_the_asked_number_of_tokens(
    tokenizers: dict[str, Tokenizer], name: str, prompt_format: str
) -> None:
    recorder = Recorder(tokenizers[name])
    writer = PromptWriter(recorder, seed=0)
    for length in LENGTHS:
        recorder.calls = 0
        ids = writer.write(ProbeSpec(f"{prompt_format}-{length}", prompt_format, length, 1))
        assert len(ids) == length
        assert all(0 <= token < recorder.vocabulary_size for token in ids)
        assert recorder.calls < 100
        # What was rendered last is what the ids are: a text or messages that a client could send.
        again = recorder.encode(recorder.text) if prompt_format == "raw" else recorder.render_chat(recorder.messages)
        assert tuple(again) == ids


def test_chat_ids_are_those_of_the_chat_template(tokenizers: dict[str, Tokenizer], smollm2: Path) -> None:
    from transformers import AutoTokenizer

    recorder = Recorder(tokenizers["smollm2"])
    ids = PromptWriter(recorder, seed=3).write(ProbeSpec("chat-511", "chat", 511, 1))
    reference = AutoTokenizer.from_pretrained(smollm2)
    text = reference.apply_chat_template(recorder.messages, add_generation_prompt=True, tokenize=False)
    assert tuple(reference.encode(text, add_special_tokens=False)) == ids
    assert text.endswith("<|im_start|>assistant\n")


def test_a_raw_prompt_has_the_special_tokens_that_the_tokenizer_adds(tokenizers: dict[str, Tokenizer]) -> None:
    ids = PromptWriter(tokenizers["words"], seed=0).write(ProbeSpec("raw-511", "raw", 511, 1))
    assert tokenizers["words"].decode(ids).startswith("<s>")
    assert ids.count(ids[0]) == 1


def test_a_chat_prompt_begins_once_with_the_token_that_the_template_adds(
    tokenizers: dict[str, Tokenizer],
) -> None:
    ids = PromptWriter(tokenizers["words"], seed=0).write(ProbeSpec("chat-511", "chat", 511, 1))
    assert ids.count(ids[0]) == 1


@pytest.mark.parametrize(("name", "role"), [("smollm2", "system"), ("words", "user"), ("deaf", "user")])
def test_the_tag_opens_the_first_message_that_the_template_shows(
    tokenizers: dict[str, Tokenizer], name: str, role: str
) -> None:
    recorder = Recorder(tokenizers[name])
    writer = PromptWriter(recorder, seed=0)
    starts = set()
    for number in range(8):
        writer.write(ProbeSpec(f"probe-{number}", "chat", 511, 1))
        assert recorder.messages[0]["role"] == role
        starts.add(recorder.messages[0]["content"][:20])
    assert len(starts) == 8


@pytest.mark.parametrize("name", NAMES)
def test_a_standard_plan_takes_less_than_two_seconds(tokenizers: dict[str, Tokenizer], name: str) -> None:
    request = PlanRequest("standard", ("raw", "chat"), (1, 3), 256, 16, 16, 2048, "tenant", 0)
    start = time.process_time()
    plan = build_plan(tokenizers[name], request)
    assert time.process_time() - start < 2
    assert len({probe.prompt_token_ids[:16] for probe in plan.probes}) == 24


@pytest.mark.parametrize("span", [16, 32, 48, 64])
def test_small_spans_work_where_the_template_is_short(tokenizers: dict[str, Tokenizer], span: int) -> None:
    request = PlanRequest("standard", ("raw", "chat"), (1, 3), span, 16, 16, 2048, "tenant", 0)
    for name in ("smollm2", "words"):
        plan = build_plan(tokenizers[name], request)
        assert [len(probe.prompt_token_ids) for probe in plan.probes] == [probe.prompt_tokens for probe in plan.probes]


def test_another_process_makes_the_same_ids(tokenizers: dict[str, Tokenizer], smollm2: Path) -> None:
    code = (
        "from pathlib import Path\nfrom kvverify.plan.plan import *\nfrom kvverify.plan.tokenizer import *\n"
        "request = PlanRequest('smoke', ('raw', 'chat'), (1, 3), 256, 16, 16, 2048, 'tenant', 0)\n"
        f"print(build_plan(load_tokenizer(Path({str(smollm2)!r})), request).manifest_sha256)"
    )
    request = PlanRequest("smoke", ("raw", "chat"), (1, 3), 256, 16, 16, 2048, "tenant", 0)
    other = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert other.stdout.strip() == build_plan(tokenizers["smollm2"], request).manifest_sha256


def test_another_draw_takes_other_words(tokenizers: dict[str, Tokenizer]) -> None:
    writer = PromptWriter(tokenizers["smollm2"], seed=0)
    spec = ProbeSpec("chat-511", "chat", 511, 1)
    assert len({writer.write(spec, draw)[:16] for draw in range(8)}) == 8


def test_the_words_are_distinct_and_plain() -> None:
    assert len(set(WORDS)) == len(WORDS) > 200
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)


def test_a_template_that_raises_is_a_preflight_error(tmp_path: Path) -> None:
    broken = "{{ raise_exception('no conversation, please') }}"
    tokenizer = load_tokenizer(plan_tokenizers.make_bytes(tmp_path, broken))
    with pytest.raises(TemplateRefusedError, match="no conversation, please"):
        PromptWriter(tokenizer, seed=0).write(ProbeSpec("chat-511", "chat", 511, 1))


def test_a_folder_without_a_tokenizer_is_a_preflight_error(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"--tokenizer: .*tokenizer.json"):
        load_tokenizer(tmp_path)
    with pytest.raises(PreflightError, match=r"--tokenizer: .* is not a folder"):
        load_tokenizer(tmp_path / "missing")
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(PreflightError, match=r"--tokenizer: .*readable tokenizer"):
        load_tokenizer(tmp_path)

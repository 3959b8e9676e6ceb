"""How much wrong KV the prompts reveal, measured with a real small model in float32; ``-s`` shows the table.

The KV of a prompt is computed once; one span or block of it is made wrong; the answer is decoded from the wrong KV and
compared with the right one. Measured with SmolLM2-135M-Instruct (Q4_1 weights), caught/total over the smoke suite's six
probes and the fixture's 1502 tokens, and over a filler prompt of 512 tokens:

===========================  =========  ===========  ============
corruption                   smoke      1502 tokens  filler (512)
===========================  =========  ===========  ============
span: all layers zeroed      12 of 12   6 of 6       2 of 2
span: another prompt's KV    10 of 12   1 of 6       0 of 2
span: layer 15 zeroed        8 of 12    2 of 6       0 of 2
span: shifted by one token   6 of 12    2 of 6       1 of 2
block: all layers zeroed     37 of 48   8 of 8       8 of 8
block: another prompt's KV   8 of 48    0 of 8       0 of 8
block: layer 15 zeroed       1 of 48    1 of 8       1 of 8
block: shifted by one token  2 of 48    1 of 8       0 of 8
smallest logit gap           0.27       0.12         0.06
===========================  =========  ===========  ============

The smoke suite sees a span that is lost, and most often one that is another prompt's. It is nearly blind to single
wrong blocks that hold plausible KV, and the prompt of 1502 tokens to another prompt's span after the first: this model
does not read that far back. Agreement is never proof.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transformers import DynamicCache, LlamaForCausalLM

from kvverify.plan.fit import fit
from kvverify.plan.plan import build_probe
from kvverify.plan.suites import SUITES, ProbeSpec
from kvverify.plan.tokenizer import Tokenizer, load_tokenizer

SPAN = 256
BLOCK = 16
NEW_TOKENS = 16
BATCH = 8
MIDDLE_LAYER = 15
SMOKE = SUITES["smoke"].specs(SPAN, ("chat",), (1, 3))
FIXTURE = ProbeSpec("fixture", "chat", 1502, 3)
BLOCKS_MEASURED = 8
"""Blocks of each prompt, evenly spread: all of them would take half an hour."""


@dataclass(frozen=True)
class Cache:
    """Keys and values of all prompt tokens but the last: layers, heads, tokens, dimensions."""

    keys: torch.Tensor
    values: torch.Tensor


Corruption = Callable[[Cache, Cache, int, int], None]


def zero_all_layers(cache: Cache, _: Cache, start: int, end: int) -> None:
    cache.keys[:, :, start:end] = 0
    cache.values[:, :, start:end] = 0


def zero_one_layer(cache: Cache, _: Cache, start: int, end: int) -> None:
    cache.keys[MIDDLE_LAYER, :, start:end] = 0
    cache.values[MIDDLE_LAYER, :, start:end] = 0


def another_prompts(cache: Cache, other: Cache, start: int, end: int) -> None:
    cache.keys[:, :, start:end] = other.keys[:, :, start:end]
    cache.values[:, :, start:end] = other.values[:, :, start:end]


def shift_by_one(cache: Cache, _: Cache, start: int, end: int) -> None:
    for tensor in (cache.keys, cache.values):
        tensor[:, :, start + 1 : end] = tensor[:, :, start : end - 1].clone()


CORRUPTIONS: tuple[Corruption, ...] = (zero_all_layers, another_prompts, zero_one_layer, shift_by_one)


class Model:
    """SmolLM2-135M-Instruct, one thread, float32."""

    def __init__(self, folder: Path) -> None:
        self._model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def read(self, ids: tuple[int, ...]) -> Cache:
        cache = DynamicCache()
        self._model.model(input_ids=torch.tensor([ids[:-1]]), cache=cache, use_cache=True)
        return Cache(
            torch.stack([layer.keys[0] for layer in cache.layers]),
            torch.stack([layer.values[0] for layer in cache.layers]),
        )

    @torch.inference_mode()
    def answer(self, caches: list[Cache], last: int) -> tuple[list[list[int]], float]:
        """Return the greedy answers, and the smallest gap between the two likeliest tokens along the first."""
        cache = DynamicCache()
        for layer in range(caches[0].keys.shape[0]):
            cache.update(
                torch.stack([one.keys[layer] for one in caches]),
                torch.stack([one.values[layer] for one in caches]),
                layer,
            )
        token = torch.full((len(caches), 1), last)
        answers = []
        gap = float("inf")
        for _ in range(NEW_TOKENS):
            logits = self._model(input_ids=token, cache=cache, use_cache=True).logits[:, -1]
            first, second = logits[0].topk(2).values
            gap = min(gap, float(first - second))
            token = logits.argmax(-1, keepdim=True)
            answers.append(token)
        return torch.cat(answers, 1).tolist(), gap


@dataclass(frozen=True)
class Measured:
    """What the corruptions of one prompt did."""

    gap: float
    spans: dict[str, list[bool]]
    """For each corruption whether it was caught, span by span."""
    blocks: dict[str, list[bool]]
    """The same for single blocks."""


def measure(model: Model, ids: tuple[int, ...], other: tuple[int, ...]) -> Measured:
    cache, wrong = model.read(ids), model.read(other)
    (right,), gap = model.answer([cache], ids[-1])

    def caught(corrupt: Corruption, ranges: list[tuple[int, int]]) -> Iterator[bool]:
        for first in range(0, len(ranges), BATCH):
            caches = [Cache(cache.keys.clone(), cache.values.clone()) for _ in ranges[first : first + BATCH]]
            for one, (start, end) in zip(caches, ranges[first:], strict=False):
                corrupt(one, wrong, start, end)
            answers, _ = model.answer(caches, ids[-1])
            yield from (answer != right for answer in answers)

    tokens = len(ids) - 1
    spans = [(start, min(start + SPAN, tokens)) for start in range(0, tokens, SPAN)]
    starts = [tokens // BLOCK * place // BLOCKS_MEASURED * BLOCK for place in range(BLOCKS_MEASURED)]
    blocks = [(start, start + BLOCK) for start in starts]
    return Measured(
        gap,
        {corrupt.__name__: list(caught(corrupt, spans)) for corrupt in CORRUPTIONS},
        {corrupt.__name__: list(caught(corrupt, blocks)) for corrupt in CORRUPTIONS},
    )


@pytest.fixture(scope="module")
def measured(smollm2: Path) -> Iterator[dict[str, Measured]]:
    folder = Path(os.environ.get("KVVERIFY_TEST_MODEL", smollm2))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more would change the order of sums, and with it the figures
    tokenizer = load_tokenizer(folder)
    model = Model(folder)
    results = {
        spec.id: measure(model, prompt(tokenizer, spec), prompt(tokenizer, spec, draw=1)) for spec in (*SMOKE, FIXTURE)
    }
    results["filler"] = measure(model, filler(tokenizer, "river"), filler(tokenizer, "candle"))
    show(results)
    yield results
    torch.set_num_threads(threads)


def prompt(tokenizer: Tokenizer, spec: ProbeSpec, draw: int = 0) -> tuple[int, ...]:
    return build_probe(tokenizer, spec, tenant="t", seed=0, draw=draw).prompt_token_ids


def filler(tokenizer: Tokenizer, tag: str) -> tuple[int, ...]:
    """Make the prompt that a test would use without a thought: sentences again and again, and a question."""
    sentence = "People have lived here for many years. The weather is mild and the land is good. "

    def render(count: int, pad: str) -> list[int]:
        text = f"{sentence * count}{pad}\nWhat is this text about?"
        return tokenizer.render_chat([{"role": "system", "content": tag}, {"role": "user", "content": text}])

    ids = fit(render, 512)
    assert ids is not None
    return tuple(ids)


def show(results: dict[str, Measured]) -> None:
    for name, result in results.items():
        print(f"\n{name}: smallest gap {result.gap:.2f}")
        for corruption in result.spans:
            spans = " ".join("x" if caught else "." for caught in result.spans[corruption])
            blocks = result.blocks[corruption]
            print(f"  {corruption:16} spans {spans:12} blocks {sum(blocks)}/{len(blocks)}")


def share(results: list[list[bool]]) -> float:
    caught = [one for found in results for one in found]
    return sum(caught) / len(caught)


def test_every_zeroed_span_is_caught_by_every_probe(measured: dict[str, Measured]) -> None:
    for spec in (*SMOKE, FIXTURE):
        assert all(measured[spec.id].spans["zero_all_layers"]), spec.id


@pytest.mark.parametrize("length", [511, 512, 513])
def test_every_span_with_another_prompts_kv_is_caught_by_a_smoke_probe_of_that_length(
    measured: dict[str, Measured], length: int
) -> None:
    found = [measured[spec.id].spans["another_prompts"] for spec in SMOKE if spec.prompt_tokens == length]
    assert all(any(span) for span in zip(*found, strict=True))


def test_another_prompts_first_span_is_caught_at_1502_tokens(measured: dict[str, Measured]) -> None:
    assert measured["fixture"].spans["another_prompts"][0]


@pytest.mark.parametrize(
    ("corruption", "floor"), [("another_prompts", 0.7), ("zero_one_layer", 0.5), ("shift_by_one", 0.35)]
)
def test_a_share_of_smaller_faults_of_a_span_is_caught_by_the_smoke_suite(
    measured: dict[str, Measured], corruption: str, floor: float
) -> None:
    assert share([measured[spec.id].spans[corruption] for spec in SMOKE]) >= floor


@pytest.mark.parametrize("corruption", ["another_prompts", "zero_one_layer"])
def test_a_prompt_of_filler_misses_what_the_smoke_suite_catches(measured: dict[str, Measured], corruption: str) -> None:
    assert not any(measured["filler"].spans[corruption])


@pytest.mark.parametrize(("corruption", "floor"), [("zero_all_layers", 0.6), ("another_prompts", 0.08)])
def test_a_share_of_wrong_blocks_is_caught_by_the_smoke_suite(
    measured: dict[str, Measured], corruption: str, floor: float
) -> None:
    assert share([measured[spec.id].blocks[corruption] for spec in SMOKE]) >= floor


def test_no_answer_hangs_on_a_near_tie(measured: dict[str, Measured]) -> None:
    """A gap is in logits: float16 moves those of this model by some hundredths from one kernel to the next."""
    assert min(measured[spec.id].gap for spec in SMOKE) > 0.2
    assert measured["fixture"].gap > 0.05

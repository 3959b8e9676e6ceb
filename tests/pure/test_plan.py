"""Plans: what is refused, what is promised about probes, and what the manifest covers."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kvverify.comparison.facts import ids_sha256
from kvverify.errors import PreflightError, UsageError
from kvverify.plan.manifest import manifest_sha256
from kvverify.plan.plan import Plan, PlanRequest, build_plan, build_probe
from kvverify.plan.suites import ProbeSpec
from kvverify.plan.tokenizer import Message, Tokenizer, load_tokenizer

from . import plan_tokenizers

REQUEST = PlanRequest(
    suite="standard",
    prompt_formats=("raw", "chat"),
    reuse_counts=(1, 3),
    span=256,
    block_size=16,
    max_tokens=16,
    max_model_len=2048,
    tenant="isolated-verifier",
    seed=0,
)

ACCEPTANCE = (
    ProbeSpec("fixture", "chat", 1502, 3),
    ProbeSpec("chat-511", "chat", 511, 1),
    ProbeSpec("chat-512", "chat", 512, 1),
    ProbeSpec("chat-513", "chat", 513, 1),
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(plan_tokenizers.make_words(tmp_path_factory.mktemp("words")))


@pytest.fixture(scope="module")
def plan(tokenizer: Tokenizer) -> Plan:
    return build_plan(tokenizer, REQUEST)


def test_every_probe_has_the_asked_length_and_its_own_scope(plan: Plan) -> None:
    assert plan.generations == 96
    assert len(plan.probes) == 24
    for probe in plan.probes:
        assert probe.id == f"{probe.prompt_format}-{probe.prompt_tokens}-r{probe.reuse_count}"
        assert len(probe.prompt_token_ids) == probe.prompt_tokens
        assert probe.prompt_sha256 == ids_sha256(probe.prompt_token_ids)
        assert probe.scope == f"isolated-verifier.{probe.id}"


def test_no_two_probes_share_a_first_block(plan: Plan) -> None:
    assert len({probe.prompt_token_ids[:16] for probe in plan.probes}) == 24


def test_a_list_of_specs_drives_a_plan_too(tokenizer: Tokenizer) -> None:
    plan = build_plan(tokenizer, replace(REQUEST, suite="acceptance"), ACCEPTANCE)
    assert [(probe.id, len(probe.prompt_token_ids), probe.reuse_count) for probe in plan.probes] == [
        ("fixture", 1502, 3),
        ("chat-511", 511, 1),
        ("chat-512", 512, 1),
        ("chat-513", 513, 1),
    ]
    assert plan.generations == 14  # 4 controls and 10 answers of the first target


def test_one_probe_alone_is_the_probe_of_the_plan(tokenizer: Tokenizer) -> None:
    plan = build_plan(tokenizer, replace(REQUEST, suite="acceptance"), ACCEPTANCE)
    assert build_probe(tokenizer, ACCEPTANCE[0], tenant="isolated-verifier", seed=0) == plan.probes[0]


def test_the_same_options_give_the_same_plan(tokenizer: Tokenizer, plan: Plan) -> None:
    assert build_plan(tokenizer, REQUEST) == plan


def test_another_seed_gives_other_prompts(tokenizer: Tokenizer, plan: Plan) -> None:
    other = build_plan(tokenizer, replace(REQUEST, seed=1))
    pairs = zip(plan.probes, other.probes, strict=True)
    assert all(one.prompt_token_ids != two.prompt_token_ids for one, two in pairs)


@pytest.mark.parametrize(
    "change",
    [
        {"tenant": "other"},
        {"seed": 1},
        {"max_tokens": 8},
        {"max_model_len": 4096},
        {"block_size": 32},
        {"reuse_counts": (3, 1)},
        {"reuse_counts": (1,)},
        {"prompt_formats": ("raw",)},
        {"suite": "smoke"},
        {"span": 128},
    ],
)
def test_the_manifest_covers_the_request(tokenizer: Tokenizer, plan: Plan, change: dict[str, object]) -> None:
    changed = build_plan(tokenizer, replace(REQUEST, **change))  # type: ignore[arg-type]  # fields by name
    assert changed.manifest_sha256 != plan.manifest_sha256


def test_the_manifest_survives_json_and_ignores_what_others_add(plan: Plan) -> None:
    document = json.loads(json.dumps({**plan.manifest(), "eos_token_ids": [2]}))
    assert manifest_sha256(document) == document["manifest_sha256"] == plan.manifest_sha256


@pytest.mark.parametrize(
    "key", ["id", "prompt_format", "prompt_tokens", "reuse_count", "scope", "prompt_sha256", "prompt_token_ids"]
)
def test_the_manifest_covers_every_fact_of_a_probe(plan: Plan, key: str) -> None:
    document = json.loads(json.dumps(plan.manifest()))
    value = document["probes"][5][key]
    changes = {int: lambda: value + 1, str: lambda: value + "x", list: lambda: [*value[:-1], value[-1] + 1]}
    document["probes"][5][key] = changes[type(value)]()
    assert manifest_sha256(document) != plan.manifest_sha256


def test_the_manifest_covers_the_generations_and_the_order(plan: Plan) -> None:
    document = plan.manifest()
    probes = document["probes"]
    assert isinstance(probes, list)
    assert manifest_sha256({**document, "generations": 95}) != plan.manifest_sha256
    assert manifest_sha256({**document, "probes": probes[::-1]}) != plan.manifest_sha256
    assert manifest_sha256({**document, "probes": probes[:-1]}) != plan.manifest_sha256


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"suite": "big"}, "--suite"),
        ({"reuse_counts": ()}, "--reuse-counts"),
        ({"reuse_counts": (0,)}, "--reuse-counts"),
        ({"reuse_counts": (1, 1)}, "--reuse-counts"),
        ({"prompt_formats": ()}, "--prompt-format"),
        ({"prompt_formats": ("raw", "raw")}, "--prompt-format"),
        ({"prompt_formats": ("html",)}, "--prompt-format"),
        ({"span": 0}, "--chunk-size"),
        ({"span": -256}, "--chunk-size"),
        ({"span": 250}, "--chunk-size"),
        ({"span": 8}, "--chunk-size"),
        ({"block_size": 0}, "--block-size"),
        ({"block_size": -16}, "--block-size"),
        ({"max_tokens": 0}, "--max-tokens"),
        ({"max_model_len": 0}, "--max-model-len"),
        ({"tenant": ""}, "--tenant"),
        ({"tenant": "a b"}, "--tenant"),
        ({"tenant": "a/b"}, "--tenant"),
        ({"tenant": "naïve"}, "--tenant"),
        ({"tenant": "a\n"}, "--tenant"),
        ({"tenant": "t" * 65}, "--tenant"),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused(
    tokenizer: Tokenizer, change: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        build_plan(tokenizer, replace(REQUEST, **change))  # type: ignore[arg-type]  # fields by name
    assert str(refused.value).startswith(message + ": ")
    assert refused.value.remedy
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("tenant", ["t", "t" * 64, "Team_1.prod-eu", "."])
def test_a_tenant_of_plain_characters_is_taken(tokenizer: Tokenizer, tenant: str) -> None:
    plan = build_plan(tokenizer, replace(REQUEST, suite="smoke", tenant=tenant))
    assert all(probe.scope.startswith(f"{tenant}.") for probe in plan.probes)


def test_prompt_and_answer_must_fit_the_model(tokenizer: Tokenizer) -> None:
    assert build_plan(tokenizer, replace(REQUEST, max_model_len=1041)).probes
    with pytest.raises(PreflightError) as refused:
        build_plan(tokenizer, replace(REQUEST, max_model_len=1040))
    text = str(refused.value)
    assert text.startswith("--max-model-len: 1040 is too small for probe raw-1025-r1, which needs 1041 tokens")
    assert "at least 1041" in refused.value.remedy


def test_a_callers_own_list_must_be_well_formed(tokenizer: Tokenizer) -> None:
    good = ACCEPTANCE[1]
    for bad in [
        (),
        (good, good),
        (replace(good, id="a b"),),
        (replace(good, prompt_format="html"),),
        (replace(good, prompt_tokens=0),),
        (replace(good, reuse_count=0),),
    ]:
        with pytest.raises(ValueError, match="probe"):
            build_plan(tokenizer, REQUEST, bad)


def test_probes_with_one_first_block_are_refused(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(plan_tokenizers.make_bytes(tmp_path, plan_tokenizers.PREAMBLE))
    request = replace(REQUEST, suite="smoke", prompt_formats=("chat",), max_model_len=4096)
    with pytest.raises(PreflightError, match=r"begin with the same 16 tokens.*--block-size"):
        build_plan(tokenizer, request)
    assert build_plan(tokenizer, replace(request, block_size=256)).probes


def test_a_tokenizer_that_knows_no_word_of_ours_is_refused(tmp_path: Path) -> None:
    class Mute:
        """Turns every word into one id, so that all prompts are alike."""

        has_chat_template = True
        vocabulary_size = 2

        def encode(self, text: str) -> list[int]:
            return [0] * len(text.split())

        def render_chat(self, messages: Sequence[Message]) -> list[int]:
            return [1, *(token for message in messages for token in self.encode(message["content"]))]

        def decode(self, ids: Sequence[int]) -> str:
            return " ".join("word" for _ in ids)

    for name in ("raw", "chat"):
        with pytest.raises(PreflightError, match="begin with the same 16 tokens"):
            build_plan(Mute(), replace(REQUEST, prompt_formats=(name,)))


def test_no_template_means_no_chat_and_never_raw_instead(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(plan_tokenizers.make_bytes(tmp_path, None))
    assert not tokenizer.has_chat_template
    with pytest.raises(PreflightError, match=r"no chat template.*--prompt-format raw"):
        build_plan(tokenizer, replace(REQUEST, suite="smoke", prompt_formats=("chat",)))
    assert build_plan(tokenizer, replace(REQUEST, suite="smoke", prompt_formats=("raw",))).probes


def test_a_length_that_no_text_has_is_refused_soon(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(plan_tokenizers.make_words(tmp_path, plan_tokenizers.DOUBLED))
    start = time.monotonic()
    with pytest.raises(PreflightError, match=r"no chat prompt of exactly 511 tokens"):
        build_plan(tokenizer, replace(REQUEST, suite="smoke", prompt_formats=("chat",)))
    assert time.monotonic() - start < 10


def test_a_prompt_shorter_than_the_template_is_refused(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(plan_tokenizers.make_bytes(tmp_path))
    spec = ProbeSpec("short", "chat", 12, 1)
    with pytest.raises(PreflightError, match=r"no chat prompt of exactly 12 tokens.*--chunk-size"):
        build_plan(tokenizer, REQUEST, (spec,))

"""The plan of a run: probes with their ids, cache scopes and digests, checked before any engine starts."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from kvverify.comparison.facts import ids_sha256
from kvverify.errors import PreflightError, UsageError
from kvverify.plan.manifest import manifest_sha256
from kvverify.plan.prompts import PromptWriter
from kvverify.plan.suites import PROMPT_FORMATS, ProbeSpec, check_reuse_counts, find_suite, generations
from kvverify.plan.tokenizer import Tokenizer

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""What a tenant or a probe may be called: both become part of cache scopes."""

MOST_DRAWS = 16
"""Times that a probe may take other words when its first block is another probe's."""


@dataclass(frozen=True)
class PlanRequest:
    """The options that shape a plan."""

    suite: str
    """Value of ``--suite``."""
    prompt_formats: tuple[str, ...]
    """``raw``, ``chat`` or both, from ``--prompt-format``."""
    reuse_counts: tuple[int, ...]
    """Distinct positive integers, from ``--reuse-counts``."""
    span: int
    """Tokens of one chunk, from ``--chunk-size``: a multiple of ``block_size``."""
    block_size: int
    """Tokens of one KV block, from ``--block-size``."""
    max_tokens: int
    """New tokens of every answer."""
    max_model_len: int
    """Most tokens, prompt and answer together, that the engine takes."""
    tenant: str
    """First part of every cache scope."""
    seed: int
    """Chooses the words of the prompts (and seeds the engine)."""


@dataclass(frozen=True)
class Probe:
    """One prompt with its cache scope and reuse count."""

    id: str
    """Name in the report, e.g. ``chat-511-r3``."""
    prompt_format: str
    """``raw`` or ``chat``."""
    prompt_tokens: int
    """Number of prompt ids."""
    reuse_count: int
    """Reusing answers after the cold one."""
    scope: str
    """Cache scope ``tenant.probe-id``: nothing cached under another scope may serve this probe."""
    prompt_token_ids: tuple[int, ...]
    """The prompt."""
    prompt_sha256: str
    """:func:`kvverify.comparison.facts.ids_sha256` of the prompt ids."""


@dataclass(frozen=True)
class Plan:
    """Everything that a run will ask."""

    request: PlanRequest
    """The options that it was made from."""
    probes: tuple[Probe, ...]
    """In the order in which they are asked."""
    generations: int
    """Generations of a run with one target, control included."""
    manifest_sha256: str
    """Digest over the request, the generations and every probe."""

    def manifest(self) -> dict[str, object]:
        """Return the plan as a report's ``plan`` object: plain JSON values, without ``eos_token_ids``."""
        covered = _covered(self.request, self.probes, self.generations)
        return {**covered, "manifest_sha256": self.manifest_sha256}


def build_plan(tokenizer: Tokenizer, request: PlanRequest, specs: Sequence[ProbeSpec] | None = None) -> Plan:
    """Make the plan of a suite, or of ``specs`` where the suite is a fixed list of probes.

    The same arguments give the same ids. Raises UsageError for a request that cannot be meant, PreflightError
    where this tokenizer or this model limit cannot serve it.
    """
    check_request(request)
    if specs is None:
        specs = find_suite(request.suite).specs(request.span, request.prompt_formats, request.reuse_counts)
    _check_specs(specs)
    _check_room(specs, request)
    probes = _make_probes(tokenizer, specs, request)
    count = generations(specs)
    return Plan(request, probes, count, manifest_sha256(_covered(request, probes, count)))


def build_probe(tokenizer: Tokenizer, spec: ProbeSpec, *, tenant: str, seed: int, draw: int = 0) -> Probe:
    """One probe of exactly ``spec.prompt_tokens`` tokens; another ``draw`` takes other words for the same probe."""
    ids = PromptWriter(tokenizer, seed).write(spec, draw)
    return _probe(spec, tenant, ids)


def check_request(request: PlanRequest) -> None:
    """Raise UsageError, naming the option, unless each option by itself and with the others makes sense."""
    check_reuse_counts(request.reuse_counts)
    formats = request.prompt_formats
    if not formats or len(set(formats)) != len(formats) or not set(formats) <= set(PROMPT_FORMATS):
        raise UsageError(f"--prompt-format: {','.join(formats)!r} is unknown", "choose raw, chat or both")
    _check_positive("--block-size", request.block_size, "the engine's default is 16")
    _check_positive("--chunk-size", request.span, "the default is 256")
    _check_positive("--max-tokens", request.max_tokens, "the default is 16")
    _check_positive("--max-model-len", request.max_model_len, "leave it out for the model's own limit")
    if request.span % request.block_size:
        multiple = (request.span // request.block_size + 1) * request.block_size
        raise UsageError(
            f"--chunk-size: {request.span} is not a multiple of --block-size {request.block_size}",
            f"choose for instance --chunk-size {multiple}",
        )
    if not NAME.fullmatch(request.tenant):
        raise UsageError(
            f"--tenant: {request.tenant!r} cannot be part of a cache scope",
            "use 1 to 64 letters, digits, dots, underscores or hyphens (A-Z a-z 0-9 . _ -)",
        )


def _check_positive(option: str, value: int, hint: str) -> None:
    if value < 1:
        raise UsageError(f"{option}: {value} is not at least 1", hint)


def _check_specs(specs: Sequence[ProbeSpec]) -> None:
    """Raise ValueError where a caller's own list is wrong: no option can cause that."""
    if not specs or len({spec.id for spec in specs}) != len(specs):
        raise ValueError("a plan needs at least one probe, each with an id of its own")
    for spec in specs:
        if not NAME.fullmatch(spec.id) or spec.prompt_format not in PROMPT_FORMATS:
            raise ValueError(f"probe {spec.id!r}: bad id or prompt format {spec.prompt_format!r}")
        if spec.prompt_tokens < 1 or spec.reuse_count < 1:
            raise ValueError(f"probe {spec.id!r}: prompt_tokens and reuse_count must be at least 1")


def _check_room(specs: Sequence[ProbeSpec], request: PlanRequest) -> None:
    """Raise PreflightError unless the longest prompt and its answer fit: engines cut answers without a word."""
    longest = max(specs, key=lambda spec: spec.prompt_tokens)
    needed = longest.prompt_tokens + request.max_tokens
    if needed > request.max_model_len:
        raise PreflightError(
            f"--max-model-len: {request.max_model_len} is too small for probe {longest.id}, which needs {needed} "
            f"tokens ({longest.prompt_tokens} prompt + {request.max_tokens} new)",
            f"raise --max-model-len to at least {needed} if the model allows it, or lower --chunk-size or --max-tokens",
        )


def _make_probes(tokenizer: Tokenizer, specs: Sequence[ProbeSpec], request: PlanRequest) -> tuple[Probe, ...]:
    """Probes of which no two share a first block, whatever their scopes: not every cache honours those."""
    writer = PromptWriter(tokenizer, request.seed, request.span)
    owners: dict[tuple[int, ...], str] = {}
    return tuple(_probe(spec, request.tenant, _own_start(writer, spec, owners, request.block_size)) for spec in specs)


def _own_start(
    writer: PromptWriter, spec: ProbeSpec, owners: dict[tuple[int, ...], str], block_size: int
) -> tuple[int, ...]:
    """Write the prompt with other words until its first block is no other probe's; ``owners`` takes it in."""
    owner = spec.id
    for draw in range(MOST_DRAWS):
        ids = writer.write(spec, draw)
        owner = owners.setdefault(ids[:block_size], spec.id)
        if owner == spec.id:
            return ids
    raise PreflightError(
        f"probes {owner} and {spec.id} begin with the same {block_size} tokens, so one could reuse the other's KV",
        "the chat template puts a long text of its own first: raise --block-size, or choose --prompt-format raw",
    )


def _probe(spec: ProbeSpec, tenant: str, ids: tuple[int, ...]) -> Probe:
    return Probe(
        id=spec.id,
        prompt_format=spec.prompt_format,
        prompt_tokens=len(ids),
        reuse_count=spec.reuse_count,
        scope=f"{tenant}.{spec.id}",
        prompt_token_ids=ids,
        prompt_sha256=ids_sha256(ids),
    )


def _covered(request: PlanRequest, probes: Sequence[Probe], count: int) -> dict[str, object]:
    """Plain values in which tuples are lists, as they are after a trip through JSON."""
    return {
        **{key: list(value) if isinstance(value, tuple) else value for key, value in asdict(request).items()},
        "generations": count,
        "probes": [
            {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(probe).items()}
            for probe in probes
        ],
    }

"""Everything that is checked before an engine starts, and what a run needs to know from it."""

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvverify.comparison.arms import CONTROL, LMCACHE, NATIVE
from kvverify.errors import UsageError
from kvverify.plan.plan import Plan, PlanRequest, build_plan
from kvverify.plan.suites import DEFAULT_SPAN, find_suite, parse_prompt_format
from kvverify.plan.tokenizer import load_tokenizer
from kvverify.report.document import Document
from kvverify.report.fixture import Fixture, check_needs, check_prompts, load_fixture
from kvverify.target.accelerator import Accelerator, find_accelerator
from kvverify.target.arm import Arm, EngineSettings
from kvverify.target.control import control_arm
from kvverify.target.identity import Identity, check_model, model_limit, resolve
from kvverify.target.lmcache import lmcache_arm
from kvverify.target.lmcache_settings import Settings, resolve_settings
from kvverify.target.native import native_arm
from kvverify.target.options import RunOptions, select_arms
from kvverify.target.runtimes import Runtime, find_runtime, package_versions
from kvverify.target.variables import arm_variables, recorded_variables


@dataclass(frozen=True)
class Preflight:
    """Everything that is known and checked before an engine starts."""

    options: RunOptions
    runtime: Runtime
    accelerator: Accelerator
    model: Identity
    tokenizer: Identity
    plan: Plan
    arms: tuple[Arm, ...]
    """In running order, the control first."""
    variables: dict[str, str]
    """The whole environment of the engine processes."""
    fixture: Fixture | None
    """What an acceptance run is held against."""

    def manifest(self) -> Document:
        """The plan as the report holds it: no id ends an answer early, because end-of-sequence ids are ignored."""
        return {**self.plan.manifest(), "eos_token_ids": []}

    def request(self) -> dict[str, Any]:
        """The options as JSON values."""
        return {
            name: str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self.options).items()
        }

    def environment(self) -> dict[str, Any]:
        """The report's ``environment`` section."""
        return {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "packages": package_versions(self.runtime, [arm.name for arm in self.arms]),
            "accelerator": self.accelerator.to_json(),
            "variables": recorded_variables(self.variables),
        }


def preflight(options: RunOptions, environment: Mapping[str, str]) -> Preflight:
    """Check everything that can be checked without an engine; the first error that is found ends the run."""
    names = select_arms(options)
    fixture = None if options.fixture is None else load_fixture(options.fixture)
    formats = _formats(options, fixture)
    runtime = find_runtime(options.device, names)
    accelerator = find_accelerator(options.device)
    model = resolve("model", options.model, options.model_revision)
    limit = model_limit(check_model(model))
    tokenizer = (
        resolve("tokenizer", options.model, options.model_revision)
        if options.tokenizer is None
        else resolve("tokenizer", options.tokenizer, options.tokenizer_revision)
    )
    variables = arm_variables(environment, options.device)
    lmcache = (
        resolve_settings(options.lmcache_config, options.chunk_size, variables)
        if LMCACHE in names and options.lmcache_config is not None
        else None
    )
    request = _plan_request(options, formats, _max_model_len(options, limit, fixture), lmcache)
    plan = build_plan(load_tokenizer(tokenizer.folder), request, None if fixture is None else fixture.specs())
    settings = EngineSettings(
        model=str(model.folder),
        tokenizer=str(tokenizer.folder),
        dtype=options.dtype,
        seed=options.seed,
        max_model_len=request.max_model_len,
        block_size=options.block_size,
        gpu_memory_utilization=options.gpu_memory_utilization,
        max_tokens=options.max_tokens,
    )
    arms = tuple(_arm(name, settings, options.lmcache_config, lmcache) for name in names)
    checked = Preflight(options, runtime, accelerator, model, tokenizer, plan, arms, variables, fixture)
    if fixture is not None:
        _check_fixture(fixture, checked)
    return checked


def _formats(options: RunOptions, fixture: Fixture | None) -> tuple[str, ...]:
    if fixture is None:
        return parse_prompt_format(options.prompt_format, find_suite(options.suite))
    if options.prompt_format is not None:
        raise UsageError("--prompt-format: the fixture says how each prompt is made", "leave it out")
    return tuple(dict.fromkeys(spec.prompt_format for spec in fixture.specs()))


def _max_model_len(options: RunOptions, limit: int, fixture: Fixture | None) -> int:
    """Tokens, prompt and answer together: as asked, else as the fixture needs, else the model's own limit."""
    asked = options.max_model_len
    if asked is None and fixture is not None:
        asked = int(fixture.settings["max_model_len"])
    if asked is not None and asked > limit:
        raise UsageError(f"--max-model-len: {asked} is more than the model's own limit {limit}", "lower it")
    return asked or limit


def _plan_request(
    options: RunOptions, formats: tuple[str, ...], max_model_len: int, lmcache: Settings | None
) -> PlanRequest:
    return PlanRequest(
        suite=options.suite,
        prompt_formats=formats,
        reuse_counts=options.reuse_counts,
        span=lmcache.chunk_size if lmcache is not None else options.chunk_size or DEFAULT_SPAN,
        block_size=options.block_size,
        max_tokens=options.max_tokens,
        max_model_len=max_model_len,
        tenant=options.tenant,
        seed=options.seed,
    )


def _arm(name: str, settings: EngineSettings, lmcache_config: Path | None, lmcache: Settings | None) -> Arm:
    if name == CONTROL:
        return control_arm(settings)
    if name == NATIVE:
        return native_arm(settings)
    if lmcache_config is None or lmcache is None:
        raise ValueError(f"{name} needs a resolved LMCache configuration")
    return lmcache_arm(settings, lmcache_config, lmcache)


def _check_fixture(fixture: Fixture, checked: Preflight) -> None:
    request = checked.plan.request
    found = {
        "accelerator": checked.accelerator.to_json(),
        "packages": checked.environment()["packages"],
        "model": checked.model.to_json(),
        "settings": {
            "dtype": checked.options.dtype,
            "max_model_len": request.max_model_len,
            "block_size": request.block_size,
            "chunk_size": request.span,
            "max_tokens": request.max_tokens,
            "seed": request.seed,
        },
    }
    check_needs(fixture, found)
    check_prompts(fixture, checked.plan)

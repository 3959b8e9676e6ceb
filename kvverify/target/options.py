"""The options of ``kvverify run`` as one value, and what they select."""

from dataclasses import dataclass
from pathlib import Path

from kvverify.comparison.arms import CONTROL, LMCACHE, NATIVE
from kvverify.errors import UsageError

CONNECTOR = "LMCacheConnectorV1"
"""The one KV connector that is a target, by the name that vLLM registers it under."""

ACCEPTANCE = "acceptance"
"""The suite whose probes and expectations a fixture gives."""


@dataclass(frozen=True)
class RunOptions:
    """Every option of ``kvverify run`` as it was asked for; None where it was not given and has no fixed default."""

    model: str
    """Local directory, or ``organisation/name`` on the model hub."""
    kv_connector: str
    """``LMCacheConnectorV1`` or ``none``."""
    report: Path
    """Destination of the JSON report."""
    model_revision: str | None = None
    """Commit of a hub model, 40 hexadecimal digits; None for a directory."""
    tokenizer: str | None = None
    tokenizer_revision: str | None = None
    lmcache_config: Path | None = None
    kv_connector_module_path: str | None = None
    kv_connector_extra_config: Path | None = None
    native_prefix_caching: bool | None = None
    """vLLM's own prefix caching; None: on exactly where there is no connector."""
    suite: str = "standard"
    compare_native: bool = False
    fixture: Path | None = None
    prompt_format: str | None = None
    """``raw``, ``chat`` or ``both``; None for the suite's own."""
    reuse_counts: tuple[int, ...] = (1, 3)
    max_tokens: int = 16
    """Generated tokens an answer."""
    seed: int = 0
    device: str = "cuda"
    dtype: str = "float16"
    gpu_memory_utilization: float = 0.45
    max_model_len: int | None = None
    """Prompt and generated tokens together; None for the model's limit."""
    block_size: int = 16
    """Tokens of one KV block."""
    chunk_size: int | None = None
    """Tokens of one LMCache chunk, or of one span of the probes without a connector."""
    tenant: str = "isolated-verifier"
    start_timeout: float = 600.0
    """Seconds for an engine to be ready."""
    answer_timeout: float = 300.0
    """Seconds for one answer."""
    shutdown_timeout: float = 60.0
    """Seconds for an engine to be gone."""


def select_arms(options: RunOptions) -> tuple[str, ...]:
    """Names of the arms that the options ask for, in running order; UsageError for what is no supported target."""
    if options.tokenizer_revision is not None and options.tokenizer is None:
        raise UsageError("--tokenizer-revision needs --tokenizer", "leave it out, or name the tokenizer as well")
    _check_acceptance(options)
    if options.kv_connector == "none":
        _refuse_leftovers_of_a_connector(options)
        return (CONTROL,) if options.native_prefix_caching is False else (CONTROL, NATIVE)
    if options.kv_connector != CONNECTOR:
        raise UsageError(
            f"--kv-connector: {options.kv_connector!r} is not a supported target", f"use {CONNECTOR} or none"
        )
    _check_connector(options)
    return (CONTROL, LMCACHE, NATIVE) if options.compare_native else (CONTROL, LMCACHE)


def _check_acceptance(options: RunOptions) -> None:
    parts = {
        "--fixture": options.fixture is not None,
        "--compare-native": options.compare_native,
        f"--kv-connector {CONNECTOR}": options.kv_connector == CONNECTOR,
    }
    if options.suite == ACCEPTANCE:
        if missing := [name for name, given in parts.items() if not given]:
            raise UsageError(f"--suite {ACCEPTANCE} needs {' and '.join(missing)}", "give all of them")
        if options.reuse_counts != RunOptions.reuse_counts:
            raise UsageError("--reuse-counts: the fixture says how often each prompt is reused", "leave it out")
        return
    for name in ("--fixture", "--compare-native"):
        if parts[name]:
            raise UsageError(
                f"{name} belongs to --suite {ACCEPTANCE}, not to {options.suite}", "leave it out, or ask for that suite"
            )


def _refuse_leftovers_of_a_connector(options: RunOptions) -> None:
    for name, value in (
        ("--lmcache-config", options.lmcache_config),
        ("--kv-connector-module-path", options.kv_connector_module_path),
        ("--kv-connector-extra-config", options.kv_connector_extra_config),
    ):
        if value is not None:
            raise UsageError(f"{name} needs a connector", f"leave it out, or name one with --kv-connector {CONNECTOR}")


def _check_connector(options: RunOptions) -> None:
    if options.kv_connector_module_path is not None:
        # A module path takes priority over vLLM's registry (kv_connector/factory.py, get_connector_class).
        raise UsageError(
            "--kv-connector-module-path would load another connector than vLLM's own, which is no supported target",
            "leave it out",
        )
    if options.kv_connector_extra_config is not None:
        _refuse_extra_config(options.kv_connector_extra_config)
    if options.native_prefix_caching:
        raise UsageError(
            "--native-prefix-caching together with a connector tests two caches at once, so that neither is isolated",
            "leave it out; --suite acceptance --compare-native tests both, one after the other",
        )
    if options.lmcache_config is None:
        raise UsageError(f"--kv-connector {CONNECTOR} needs --lmcache-config", "name LMCache's YAML file")


def _refuse_extra_config(file: Path) -> None:
    try:
        content = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--kv-connector-extra-config: {file} cannot be read ({error})", "leave it out") from None
    if content not in ("", "{}"):
        # Its keys that start with "lmcache." override the YAML (lmcache/integration/vllm/utils.py).
        raise UsageError(
            f"--kv-connector-extra-config: {file} is not empty, and its keys could override the LMCache configuration",
            "put LMCache's settings into --lmcache-config",
        )

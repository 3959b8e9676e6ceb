"""LMCache's effective settings and where each came from, and the refusal of those that are no exact reuse."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kvverify.errors import PreflightError, UsageError
from kvverify.redaction import holds_secret

REFUSED = {
    "enable_blending": "blending reuses KV at other positions, which is not exact reuse",
    "enable_pd": "PD mode splits prefill and decode over engines, which is not reuse",
    "use_gpu_connector_v3": "that connector aborts with a tensor-dimension mismatch, so it is no way round a failure",
    "remote_config_url": "a remote service could change the settings after they were checked",
}
"""Settings that must not be on, with the reason."""

_RESOLVE_SECONDS = 300


@dataclass(frozen=True)
class Settings:
    """What LMCache will run with."""

    values: dict[str, Any]
    """Every setting that LMCache knows, as it resolved it."""
    sources: dict[str, str]
    """Where each came from: ``file``, ``environment`` or ``default``."""

    @property
    def chunk_size(self) -> int:
        """Tokens of one chunk."""
        return int(self.values["chunk_size"])

    def to_json(self) -> dict[str, Any]:
        """Value and source by name."""
        return {name: {"value": self.values[name], "source": self.sources[name]} for name in self.values}


def resolve_settings(file: Path, chunk_size: int | None, environment: Mapping[str, str]) -> Settings:
    """The effective settings of ``file`` under ``environment``; UsageError for what cannot be a target.

    ``chunk_size`` is the value of ``--chunk-size``, in tokens: an assertion on the resolved one.
    """
    content = _read(file)
    resolved = _resolve(file, environment)
    if unknown := sorted(set(content) - set(resolved["keys"])):
        raise UsageError(
            f"--lmcache-config: {file} has keys that the installed LMCache does not know: {', '.join(unknown)}",
            "correct or remove them: LMCache would ignore them",
        )
    if unread := sorted(_unread(content, resolved, environment)):
        raise UsageError(
            f"--lmcache-config: LMCache cannot read the value of {', '.join(unread)}",
            "correct or remove them: LMCache would ignore them",
        )
    settings = Settings(
        resolved["settings"],
        {
            name: "environment"
            if name in resolved["environment"]
            else "file"
            if name in resolved["file"]
            else "default"
            for name in resolved["settings"]
        },
    )
    _check_refused(settings)
    if resolved["invalid"] is not None:
        raise UsageError(
            f"--lmcache-config: LMCache does not accept {file} ({resolved['invalid']})",
            "correct the file, or the LMCACHE_* environment",
        )
    check_settings(settings, chunk_size)
    return settings


def check_settings(settings: Settings, chunk_size: int | None) -> None:
    """UsageError for effective settings that are refused, whatever set them, or for another chunk size."""
    _check_refused(settings)
    for name, value in settings.values.items():
        if holds_secret(name, value):
            raise UsageError(
                f"{_where(settings, name)}: {name} holds a secret, and LMCache writes its settings to the log, which "
                "is part of a report's evidence",
                "verify with a store that needs no secret, e.g. local_cpu",
            )
    if type(settings.values["chunk_size"]) is not int or settings.chunk_size < 1:
        raise UsageError(
            f"{_where(settings, 'chunk_size')}: chunk_size must be a positive number of tokens, not "
            f"{settings.values['chunk_size']}",
            "correct it",
        )
    if chunk_size is not None and settings.chunk_size != chunk_size:
        raise UsageError(
            f"--chunk-size: {chunk_size} was asserted, LMCache resolves chunk_size to {settings.chunk_size} "
            f"(from {settings.sources['chunk_size']})",
            "correct one of them",
        )


def _check_refused(settings: Settings) -> None:
    for name, reason in REFUSED.items():
        if settings.values.get(name):
            raise UsageError(f"{_where(settings, name)}: {name} is on, and {reason}", "switch it off")


def _where(settings: Settings, name: str) -> str:
    return f"LMCACHE_{name.upper()}" if settings.sources[name] == "environment" else "--lmcache-config"


def _unread(content: Mapping[str, Any], resolved: Mapping[str, Any], environment: Mapping[str, str]) -> Iterator[str]:
    """Settings that are there and that LMCache passes over with no more than a warning."""
    for name, value in resolved["settings"].items():
        variable = f"LMCACHE_{name.upper()}"
        if variable in environment and name not in resolved["environment"]:
            yield variable
        elif value is None and content.get(name) is not None and variable not in environment:
            yield name


def _read(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        first_line = str(error).splitlines()[0]
        raise UsageError(
            f"--lmcache-config: {file} cannot be read as YAML ({first_line})", "name a YAML file"
        ) from None
    if not isinstance(content, dict) or not content:
        raise UsageError(
            f"--lmcache-config: {file} sets nothing",
            "write LMCache's settings as `key: value` lines, e.g. chunk_size: 256",
        )
    return {str(key): value for key, value in content.items()}


def _resolve(file: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "kvverify.target.lmcache_resolver", str(file)]
    try:
        done = subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, timeout=_RESOLVE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise PreflightError(
            f"LMCache did not resolve {file} within {_RESOLVE_SECONDS} s", "check the installation"
        ) from None
    if done.returncode != 0:
        last_line = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise UsageError(f"--lmcache-config: LMCache does not accept {file} ({last_line})", "correct the file")
    resolved: dict[str, Any] = json.loads(done.stdout)
    return resolved

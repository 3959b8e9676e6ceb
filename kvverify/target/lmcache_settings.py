"""LMCache's effective settings and where each came from, and the refusal of those that are no exact reuse."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kvverify.errors import PreflightError, UsageError

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
    in_file = {resolved["aliases"].get(key, key) for key in content}
    settings = Settings(
        resolved["settings"],
        {
            name: "environment" if name in resolved["environment"] else "file" if name in in_file else "default"
            for name in resolved["settings"]
        },
    )
    check_settings(settings, chunk_size)
    return settings


def check_settings(settings: Settings, chunk_size: int | None) -> None:
    """UsageError for effective settings that are refused, whatever set them, or for another chunk size."""
    for name, reason in REFUSED.items():
        if settings.values.get(name):
            where = "--lmcache-config" if settings.sources[name] == "file" else f"LMCACHE_{name.upper()}"
            raise UsageError(f"{where}: {name} is on, and {reason}", "switch it off")
    if chunk_size is not None and settings.chunk_size != chunk_size:
        raise UsageError(
            f"--chunk-size: {chunk_size} was asserted, LMCache resolves chunk_size to {settings.chunk_size} "
            f"(from {settings.sources['chunk_size']})",
            "correct one of them",
        )


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

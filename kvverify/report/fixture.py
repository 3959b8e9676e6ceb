"""Acceptance fixtures: reading one, what a run must have to be held against it, and making one from a report."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvverify.comparison.arms import CONTROL, LMCACHE, NATIVE
from kvverify.errors import PreflightError, ReportError, UsageError
from kvverify.plan.plan import Plan
from kvverify.plan.suites import ProbeSpec
from kvverify.report.acceptance import evidence_gaps, found_by_probe
from kvverify.report.load import load_report
from kvverify.report.schema import validate

Document = dict[str, Any]

SCHEMA = "kvverify.acceptance-fixture.v1"
BUDGET = 24
"""Generations of an acceptance run: a fixture that asks for more or fewer is no acceptance fixture."""


@dataclass(frozen=True)
class Fixture:
    """A fixture that fits its schema and the acceptance's budget."""

    document: Document
    sha256: str
    """Digest of the file."""

    @property
    def settings(self) -> Document:
        """The options that the run must have."""
        settings: Document = self.document["settings"]
        return settings

    def specs(self) -> tuple[ProbeSpec, ...]:
        """The probes to plan, in order."""
        keys = ("id", "prompt_format", "prompt_tokens", "reuse_count")
        return tuple(ProbeSpec(**{key: probe[key] for key in keys}) for probe in self.document["probes"])

    def acceptance(self) -> Document:
        """The ``acceptance`` section of a report that has not been judged yet."""
        return {
            "fixture": {"name": self.document["name"], "sha256": self.sha256},
            "expected": self.document["expected"],
            "matched": None,
            "mismatches": [],
        }


def load_fixture(file: Path) -> Fixture:
    """Read and check a fixture; UsageError with the first reason where it is none."""
    try:
        document = load_report(file)
    except ReportError as error:
        raise UsageError(f"--fixture: {error.problem}", "name an acceptance fixture") from None
    if reasons := check_fixture(document):
        raise UsageError(f"--fixture: {file}: {reasons[0]}", "run kvverify fixture check on it for every reason")
    return Fixture(document, hashlib.sha256(file.read_bytes()).hexdigest())


def check_fixture(document: object) -> list[str]:
    """Every reason why a document is no acceptance fixture, one line each."""
    if reasons := validate(document, f"{SCHEMA}.schema.json"):
        return reasons
    return list(_reasons(document)) if isinstance(document, dict) else ["it is no JSON object"]


def _reasons(document: Document) -> Iterator[str]:
    probes = {probe["id"]: probe for probe in document["probes"]}
    if len(probes) != len(document["probes"]):
        yield "probes: two have the same id"
    count = sum(1 + 2 * (1 + probe["reuse_count"]) for probe in document["probes"])
    if count != BUDGET:
        yield f"probes: they cost {count} generations with two targets, an acceptance has exactly {BUDGET}"
    expects = any(document["expected"].values())
    if expects == (document["provenance"]["source"] == "unrecorded"):
        yield "provenance.source: unrecorded goes with no expectations, any other source with some"
    model = document["needs"]["model"]
    if (model["name"] is None) != (model["revision"] is None):
        yield "needs.model: name and revision go together, one alone names no model"
    yield from _expectations(document["expected"] if expects else {}, probes)


def _expectations(expected: Mapping[str, Document], probes: Mapping[str, Document]) -> Iterator[str]:
    for target in (NATIVE, LMCACHE) if expected else ():
        if silent := [name for name in probes if name not in expected.get(target, {})]:
            yield f"expected.{target}: says nothing of {', '.join(silent)}, so that no run could match"
    for target, ones in expected.items():
        for name, one in ones.items():
            place = f"expected.{target}.{name}"
            if one["verdict"] == "inconclusive":
                yield f"{place}.verdict: nothing can be expected to be inconclusive"
            if name not in probes:
                yield f"{place}: there is no such probe"
                continue
            for key in ("cached_tokens", "first_differences"):
                if one[key] is not None and len(one[key]) != 1 + probes[name]["reuse_count"]:
                    yield f"{place}.{key}: needs one entry for the cold answer and for each reuse"


def check_needs(fixture: Fixture, found: Mapping[str, Any]) -> None:
    """PreflightError, with what to do, where a run is not what the fixture was made for.

    ``found`` has the run's ``accelerator``, ``packages``, ``model`` (sections of a report) and ``settings``.
    """
    needs = fixture.document["needs"]
    gpu, here = needs["gpu"], found["accelerator"]
    if gpu is not None and (here["name"], here["compute_capability"]) != (gpu["name"], gpu["compute_capability"]):
        raise PreflightError(
            f"--fixture: it was made for {gpu['name']} (compute capability {gpu['compute_capability']}), "
            f"this machine has {here['name']} ({here['compute_capability'] or 'none'})",
            "record one on this GPU with kvverify fixture record",
        )
    for package, versions in needs["packages"].items():
        version = found["packages"].get(package, {}).get("version")
        if version not in versions:
            raise PreflightError(
                f"--fixture: it was made for {package} {' or '.join(versions)}, {version or 'none'} is installed",
                "install that version, or record a fixture with this one",
            )
    _check_model(needs["model"], found["model"])
    for name, value in fixture.settings.items():
        if found["settings"][name] != value:
            option = "--" + name.replace("_", "-")
            raise PreflightError(
                f"{option}: the fixture needs {value}, this run has {found['settings'][name]}", f"give {option} {value}"
            )


def _check_model(needed: Document, model: Mapping[str, Any]) -> None:
    """Digests decide where both are known; else name and commit do. A fixture that names neither allows any model."""
    digests = (needed["files_sha256"], model["files_sha256"])
    commits = ((needed["name"], needed["revision"]), (model["requested"], model["revision"]))
    if needed["files_sha256"] is None and needed["revision"] is None:
        return
    if digests[0] == digests[1] if None not in digests else needed["revision"] is not None and commits[0] == commits[1]:
        return
    wanted = (
        f"{needed['name']} at {needed['revision']}" if needed["revision"] else f"files sha256 {needed['files_sha256']}"
    )
    raise PreflightError(f"--model: the fixture was made for another model ({wanted})", "name that model")


def check_prompts(fixture: Fixture, plan: Plan) -> None:
    """PreflightError where a prompt is not the one whose digest the fixture knows."""
    for wanted, probe in zip(fixture.document["probes"], plan.probes, strict=True):
        if wanted["prompt_sha256"] not in (None, probe.prompt_sha256):
            raise PreflightError(
                f"--fixture: probe {probe.id} does not come out as the prompt that the fixture was made with",
                "use the tokenizer and the kvverify release that recorded it, or record it anew",
            )


def record(document: Document, name: str) -> Document:
    """A fixture that expects what a sound, complete, acceptance-shaped report found; ReportError for any other."""
    targets: Sequence[str] = [target["name"] for target in document["targets"]]
    if document["state"] != "complete" or document["errors"]:
        raise ReportError("the run did not complete without errors", "record from a complete run")
    if sorted(targets) != sorted((LMCACHE, NATIVE)) or document["acceptance"] is None:
        raise ReportError("the report is not of an acceptance run", "run --suite acceptance --compare-native --fixture")
    if missing := next(evidence_gaps(document), None):
        raise ReportError(
            f"the run's evidence is not whole, so that nothing can be expected of it: {missing}", "repeat it"
        )
    if "dtype" not in document["request"]:
        raise ReportError("the report does not say which --dtype was asked for", "record from a run of kvverify")
    plan, model = document["plan"], document["identity"]["model"]
    accelerator, packages = document["environment"]["accelerator"], document["environment"]["packages"]
    is_gpu = accelerator["device"] == "cuda"
    fixture = {
        "schema": SCHEMA,
        "name": name,
        "provenance": {
            "source": "recorded",
            "date": document["created_at"][:10],
            "statement": f"Recorded by kvverify {document['tool']['version']} on {accelerator['name']}.",
            "run_id": document["run_id"],
        },
        "needs": {
            "gpu": {key: accelerator[key] for key in ("name", "compute_capability")} if is_gpu else None,
            "packages": {key: [packages[key]["version"]] for key in ("vllm", "lmcache") if key in packages},
            "model": {
                "name": None if model["revision"] is None else model["requested"],
                "revision": model["revision"],
                "files_sha256": model["files_sha256"],
            },
        },
        "settings": {
            "dtype": document["request"]["dtype"],
            "chunk_size": plan["span"],
            **{key: plan[key] for key in ("max_model_len", "block_size", "max_tokens", "seed")},
        },
        "probes": [
            {key: probe[key] for key in ("id", "prompt_format", "prompt_tokens", "reuse_count", "prompt_sha256")}
            for probe in plan["probes"]
        ],
        "expected": {target: found_by_probe(document, target) for target in targets if target != CONTROL},
    }
    if reasons := check_fixture(fixture):
        raise ReportError(f"the report makes no acceptance fixture: {reasons[0]}", "see kvverify fixture check")
    return fixture

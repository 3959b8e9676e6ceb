"""Whether a report says what its own evidence says: everything that can be computed again is, from the raw ids up.

A sound report can have any verdict. An unsound one contradicts itself or its evidence; why does not matter here.
"""

from collections.abc import Iterator
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Any

from kvverify.comparison.arms import expected_arms
from kvverify.comparison.connector_log import COUNTS, read_connector_log
from kvverify.comparison.facts import ids_sha256
from kvverify.errors import ReportError
from kvverify.plan.manifest import manifest_sha256
from kvverify.report.document import Document, expected_answers, judged, planned_generations
from kvverify.report.evidence import check_evidence
from kvverify.report.schema import shown, validate


def check(document: object, folder: Path) -> list[str]:
    """List every reason why a report that lies in ``folder`` is not sound, one line each; empty where it is.

    ``document`` may be any JSON value. Where it does not fit the schema, only that is said: what does not have the
    shape of a report has nothing to be derived from.
    """
    reasons = check_document(document)
    if isinstance(document, dict) and not validate(document):
        unlike = check_evidence(document["evidence"], folder, ended=document["state"] != "running")
        reasons += unlike or list(_logs(document, folder))
    return reasons


def check_document(document: object) -> list[str]:
    """List what ``check`` lists, but without a look at the evidence files."""
    reasons = validate(document)
    if reasons or not isinstance(document, dict):
        return reasons
    return [*_plan(document["plan"]), *_identity(document["identity"]), *_arms(document), *_derived(document)]


def require_sound(document: object, path: Path) -> Document:
    """Return the report that was read from ``path`` if it is sound, its evidence files aside; else ReportError."""
    reasons = check_document(document)
    if reasons or not isinstance(document, dict):
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        raise ReportError(
            f"{path} is not a sound report: {reasons[0]}{more}", "run kvverify validate on it for every reason"
        )
    return document


def _plan(plan: Document) -> Iterator[str]:
    for place, probe in enumerate(plan["probes"]):
        label = f"plan.probes[{place}] ({probe['id']})"
        ids = probe["prompt_token_ids"]
        if len(ids) != probe["prompt_tokens"]:
            yield f"{label}: prompt_tokens says {probe['prompt_tokens']}, there are {len(ids)} prompt_token_ids"
        if (digest := ids_sha256(ids)) != probe["prompt_sha256"]:
            yield f"{label}: prompt_sha256 says {probe['prompt_sha256']}, the prompt_token_ids give {digest}"
        if probe["prompt_format"] not in plan["prompt_formats"]:
            yield f"{label}: its format {probe['prompt_format']} is not one of plan.prompt_formats"
        if probe["scope"] != f"{plan['tenant']}.{probe['id']}":
            yield f"{label}: its scope {probe['scope']} is not the tenant and the probe's id, joined by a dot"
        if len(ids) + plan["max_tokens"] > plan["max_model_len"]:
            yield f"{label}: prompt and answer do not fit into max_model_len {plan['max_model_len']}"
    yield from _twice("plan.probes", "id", [probe["id"] for probe in plan["probes"]])
    if (digest := manifest_sha256(plan)) != plan["manifest_sha256"]:
        yield f"plan.manifest_sha256: says {plan['manifest_sha256']}, the plan gives {digest}"
    if (count := planned_generations(plan["probes"], 1)) != plan["generations"]:
        yield f"plan.generations: says {plan['generations']}, the probes with one target give {count}"


def _identity(identities: Document) -> Iterator[str]:
    for part, identity in identities.items():
        paths = [file["path"] for file in identity["files"]]
        yield from _twice(f"identity.{part}.files", "path", paths)
        if identity["kind"] == "local_directory":
            lines = "".join(f"{file['sha256']}  {file['path']}\n" for file in identity["files"])
            digest = sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()
            if digest != identity["files_sha256"]:
                yield f"identity.{part}.files_sha256: says {identity['files_sha256']}, the files give {digest}"


def _arms(document: Document) -> Iterator[str]:
    names = [arm["name"] for arm in document["arms"]]
    asked = expected_arms(document["request"])
    if names != asked:
        yield f"arms: the request asks for {', '.join(asked)}; the report holds {', '.join(names)}"
    logs = {file["path"] for file in document["evidence"]["files"]}
    for place, arm in enumerate(document["arms"]):
        label = f"arms[{place}] ({arm['name']})"
        if arm["state"] == "running" and document["state"] != "running":
            yield f"{label}: is running in a run that has ended"
        if arm["state"] == "pending" and (arm["answers"] or arm["effective"] is not None):
            yield f"{label}: is pending, but holds what only a started engine gives"
        if arm["log"] is not None and document["state"] != "running" and arm["log"] not in logs:
            yield f"{label}: its log {shown(arm['log'], 200)} is not among the evidence"
        if arm["log"] is None and arm["state"] == "complete":
            yield f"{label}: says complete, and names no log"
        yield from _answers(label, document["plan"], arm)


def _logs(document: Document, folder: Path) -> Iterator[str]:
    """Compare what the answers say of a connector's log with the log itself, which must have passed its digest."""
    for place, arm in enumerate(document["arms"]):
        counted = [answer["connector_log"] for answer in arm["answers"] if answer["connector_log"] is not None]
        listed = any(file["path"] == arm["log"] for file in document["evidence"]["files"])
        if not counted or not listed or document["state"] == "running":
            continue
        whole = read_connector_log((folder / document["evidence"]["directory"] / arm["log"]).read_bytes())
        for name in COUNTS:
            total = sum(one[name] for one in counted)
            if total != whole[name] and (name not in ("double_unpins", "required_tokens") or total > whole[name]):
                yield f"arms[{place}] ({arm['name']}): its answers count {total} {name}, its log holds {whole[name]}"


def _answers(label: str, plan: Document, arm: Document) -> Iterator[str]:
    """Check an arm's answers against the plan: each is owed, comes once and in order; a complete arm owes nothing."""
    owed = {probe["id"]: expected_answers(arm["name"], probe["reuse_count"]) for probe in plan["probes"]}
    last = dict.fromkeys(owed, -1)
    for place, answer in enumerate(arm["answers"]):
        who = f"{label}.answers[{place}] ({answer['probe']}, {answer['role']} {answer['ordinal']})"
        places = owed.get(answer["probe"])
        if places is None or (answer["role"], answer["ordinal"]) not in places:
            yield f"{who}: the plan asks for no such answer"
            continue
        index = places.index((answer["role"], answer["ordinal"]))
        if index <= last[answer["probe"]]:
            yield f"{who}: is there twice, or comes after an answer that it precedes"
        last[answer["probe"]] = index
    given = {(answer["probe"], answer["role"], answer["ordinal"]) for answer in arm["answers"]}
    missing = sum((probe, *place) not in given for probe, places in owed.items() for place in places)
    if arm["state"] == "complete" and missing:
        yield f"{label}: says complete, and {missing} of its answers are missing"


def _derived(document: Document) -> Iterator[str]:
    derived_document = judged(document)
    control, targets, result = (derived_document[name] for name in ("control", "targets", "result"))
    yield from _judgement("control", document["control"], control)
    for place, (stated, derived) in enumerate(zip_longest(document["targets"], targets)):
        label = f"targets[{place}]"
        if derived is None:
            yield f"{label} ({stated['name']}): there is no arm of that name in that place"
        elif stated is None:
            yield f"{label} ({derived['name']}): is missing, the arm is there"
        elif stated["name"] != derived["name"]:
            yield f"{label}: name says {stated['name']}, the arm in that place is {derived['name']}"
        else:
            yield from _judgement(label, stated, derived)
    yield from _unequal("result", result, document["result"])
    yield from _unequal("acceptance", derived_document["acceptance"], document["acceptance"])


def _judgement(label: str, stated: Document, derived: Document) -> Iterator[str]:
    """Compare the verdicts of the control or of a target, probe by probe."""
    if stated["verdict"] != derived["verdict"]:
        yield f"{label}: verdict says {stated['verdict']}, the answers give {derived['verdict']}"
    for place, (said, found) in enumerate(zip_longest(stated["probes"], derived["probes"])):
        if said is None or found is None:
            extra = said or found
            yield f"{label}.probes[{place}] ({extra['id']}): {'is missing' if said is None else 'is not in the plan'}"
            continue
        who = f"{label}.probes[{place}] ({found['id']})"
        if said["id"] != found["id"]:
            yield f"{label}.probes[{place}]: id says {said['id']}, the plan's probe in that place is {found['id']}"
        if said["verdict"] != found["verdict"]:
            why = f" ({', '.join(found['reasons'])})" if found["reasons"] else ""
            yield f"{who}: verdict says {said['verdict']}, the answers give {found['verdict']}{why}"
        if said["reasons"] != found["reasons"]:
            stated_reasons, reasons = ", ".join(said["reasons"]) or "none", ", ".join(found["reasons"]) or "none"
            yield f"{who}: reasons say {stated_reasons}; the answers give {reasons}"
        yield from _unequal(f"{who}.comparisons", found.get("comparisons"), said.get("comparisons"))


def _unequal(label: str, derived: Any, stated: Any) -> Iterator[str]:
    """Name each innermost place at which two values of the same shape are not the same."""
    if isinstance(derived, dict) and isinstance(stated, dict):
        for name, value in derived.items():
            yield from _unequal(f"{label}.{name}", value, stated.get(name))
    elif isinstance(derived, list) and isinstance(stated, list):
        if len(derived) != len(stated):
            yield f"{label}: holds {len(stated)} entries, the answers give {len(derived)}"
        for place, (value, said) in enumerate(zip(derived, stated, strict=False)):
            yield from _unequal(f"{label}[{place}]", value, said)
    elif derived != stated:
        yield f"{label}: says {shown(stated)}, the answers give {shown(derived)}"


def _twice(label: str, what: str, values: list[str]) -> Iterator[str]:
    for value in sorted({value for value in values if values.count(value) > 1}):
        yield f"{label}: the {what} {shown(value, 200)} is there twice"

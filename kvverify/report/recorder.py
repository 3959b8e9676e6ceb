"""A report while its run is going: takes in answers and states, and is on disk after each probe."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import kvverify
from kvverify.comparison.arms import TIERS
from kvverify.report.document import Document, expected_answers, judged
from kvverify.report.store import ReportStore

SCHEMA = "efim.kv-reuse-verification.v1"

ArmState = Literal["pending", "running", "complete", "failed", "interrupted"]
Limit = Literal["start_timeout", "answer_timeout", "shutdown_timeout"]

_ANSWER_KEYS = {
    "probe",
    "role",
    "ordinal",
    "submitted_sha256",
    "generated_token_ids",
    "finish_reason",
    "cached_tokens",
    "cached_tokens_local",
    "cached_tokens_external",
    "doubts",
    "connector_log",
    "error",
}


def new_document(  # noqa: PLR0913 - one keyword for each section that the run brings
    *,
    run_id: str,
    created_at: str,
    request: Mapping[str, Any],
    identity: Mapping[str, Any],
    plan: Mapping[str, Any],
    environment: Mapping[str, Any],
    arms: Iterable[str],
    evidence_directory: str,
    acceptance: Mapping[str, Any] | None = None,
) -> Document:
    """Build the report of a run that has not started an engine yet: every arm is pending.

    ``run_id`` is hex, ``created_at`` a UTC time as RFC 3339, ``arms`` the arms' names in the order in which
    they run, ``evidence_directory`` a name without a folder. The others are the report's sections so named.
    """
    document: Document = {
        "schema": SCHEMA,
        "claim_eligible": False,
        "tool": {"name": "kvverify", "version": kvverify.__version__},
        "run_id": run_id,
        "created_at": created_at,
        "state": "running",
        "request": request,
        "identity": identity,
        "plan": plan,
        "environment": environment,
        "arms": [_new_arm(name) for name in arms],
        "control": {},
        "targets": [],
        "result": {},
        "acceptance": acceptance,
        "evidence": {"directory": evidence_directory, "files": []},
        "errors": [],
    }
    return judged(copy.deepcopy(document))


def _new_arm(name: str) -> Document:
    return {
        "name": name,
        "tier": TIERS[name],
        "state": "pending",
        "limit": None,
        "errors": [],
        "effective": None,
        "log": None,
        "answers": [],
    }


class Recorder:
    """Takes in what a run finds and keeps the report on disk up to date with it.

    Each method that writes raises ReportError where the report cannot be written. A wrong name or a second
    answer in the same place is a mistake of the caller's and raises ValueError: evidence is never replaced.
    """

    def __init__(self, store: ReportStore, document: Document) -> None:
        self._store = store
        self._document = document

    @property
    def document(self) -> Document:
        """The report as it is now, verdicts included."""
        self._document = judged(self._document)
        return self._document

    def write(self) -> None:
        """Judge anew and write the report."""
        self._store.write(self.document)

    def arm_state(  # noqa: PLR0913 - keywords, each a member of the arm
        self,
        name: str,
        state: ArmState,
        *,
        limit: Limit | None = None,
        error: str | None = None,
        effective: Mapping[str, Any] | None = None,
        log: str | None = None,
    ) -> None:
        """Note where an arm stands, and write. ``error`` joins its errors; what is None stays as it was."""
        arm = self._arm(name)
        arm["state"] = state
        for key, value in (("limit", limit), ("effective", effective), ("log", log)):
            if value is not None:
                arm[key] = copy.deepcopy(value)
        if error is not None:
            arm["errors"].append(error)
        self.write()

    def answer(self, arm_name: str, answer: Mapping[str, Any]) -> None:
        """Add an answer (all of the schema's keys); writes once its probe is done, or if it is an error."""
        arm = self._arm(arm_name)
        if set(answer) != _ANSWER_KEYS:
            raise ValueError(f"an answer has the keys {sorted(_ANSWER_KEYS)}, not {sorted(answer)}")
        owed = expected_answers(arm_name, self._probe(answer["probe"])["reuse_count"])
        given = [(one["role"], one["ordinal"]) for one in arm["answers"] if one["probe"] == answer["probe"]]
        place = (answer["role"], answer["ordinal"])
        if place not in owed or (given and owed.index(place) <= owed.index(given[-1])):
            raise ValueError(f"{arm_name} owes no answer {place} for {answer['probe']}, or none any more")
        arm["answers"].append(copy.deepcopy(dict(answer)))
        if place == owed[-1] or answer["error"] is not None:
            self.write()

    def accelerator(self, facts: Mapping[str, Any]) -> None:
        """Replace the accelerator's facts, which may be known only once an engine has started."""
        self._document["environment"] = {**self._document["environment"], "accelerator": dict(facts)}

    def unchanged(self, *, model: bool | None, tokenizer: bool | None) -> None:
        """Note whether the files are still those that were hashed before the run; None: nobody could look."""
        self._document["identity"]["model"]["unchanged_at_end"] = model
        self._document["identity"]["tokenizer"]["unchanged_at_end"] = tokenizer

    def error(self, stage: str, message: str) -> None:
        """Note an error that belongs to the run, not to one arm. A run with one never passes."""
        self._document["errors"].append({"stage": stage, "message": message})

    def finish(self, state: Literal["complete", "interrupted"]) -> Document:
        """List the evidence, judge, write for the last time, and give the report as written.

        An arm that is still running then was interrupted; one that never started stays pending.
        """
        for arm in self._document["arms"]:
            if arm["state"] == "running":
                arm["state"] = "interrupted"
        self._document["state"] = state
        self._document["evidence"]["files"] = self._store.seal()
        self.write()
        return self._document

    def _arm(self, name: str) -> Document:
        for arm in self._document["arms"]:
            if arm["name"] == name:
                found: Document = arm
                return found
        raise ValueError(f"the report has no arm {name}")

    def _probe(self, identifier: object) -> Document:
        for probe in self._document["plan"]["probes"]:
            if probe["id"] == identifier:
                found: Document = probe
                return found
        raise ValueError(f"the plan has no probe {identifier}")

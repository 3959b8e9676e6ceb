"""The sentences that say what a run and its arms showed, verdict first."""

from kvverify.comparison.arms import CONTROL, misfits
from kvverify.report.document import Document


def headline(document: Document) -> str:
    """Say in one sentence what the run showed. Holds no text that came from outside."""
    verdict, targets = document["result"]["verdict"], document["targets"]
    if verdict == "control_only_pass":
        return "CONTROL ONLY PASS: the control is sound; no cache was on, so no reuse was tested"
    if verdict == "inconclusive":
        return f"INCONCLUSIVE: neither pass nor fail, because {_why_inconclusive(document)}"
    shown = [target for target in targets if target["verdict"] == verdict]
    clauses = [f"{target['name']} gave {_gave(target)}" for target in shown]
    return f"{verdict.upper()}: {'; '.join(clauses)}"


def arm_headline(arm: Document, judgement: Document) -> str:
    """Say in one sentence what one arm showed. Holds no text that came from outside."""
    verdict, probes = judgement["verdict"], judgement["probes"]
    sound = sum(probe["verdict"] == "pass" for probe in probes)
    if not arm["answers"]:
        says = "no answer came back"
    elif arm["name"] == CONTROL:
        says = f"{sound} of {_probes(len(probes))} have a sound control"
    elif verdict == "inconclusive":
        says = f"{sound} of {_probes(len(probes))} passed, none failed"
    else:
        says = _gave(judgement)
    return "; ".join([f"{verdict.upper()}: {says}", *_troubles(arm)])


def _gave(target: Document) -> str:
    """Say what a target gave that passed or failed."""
    probes = target["probes"]
    compared = [one for probe in probes for one in probe["comparisons"]]
    if target["verdict"] == "pass":
        reuses = sum(one["role"] == "reuse" for one in compared)
        return f"the control's token IDs in all {reuses} reuses of {_probes(len(probes))}"
    failed = sum(probe["verdict"] == "fail" for probe in probes)
    cold = any(one["role"] == "cold" and one["first_difference_from_control"] is not None for one in compared)
    return f"different token IDs{'' if cold else ' on reuse'} in {failed} of {_probes(len(probes))}"


def _why_inconclusive(document: Document) -> str:
    """Name the first thing that stands against a verdict; the rest follows below the headline."""
    done, planned = (document["result"]["generations"][key] for key in ("completed", "planned"))
    if document["state"] != "complete":
        how = "was interrupted" if document["state"] == "interrupted" else "has not ended"
        return f"the run {how} after {done} of {planned} generations"
    for arm in document["arms"]:
        if troubles := _troubles(arm):
            return f"of {arm['name']}: {troubles[0]}"
    if document["errors"]:
        return "the run had an error of its own"
    for part, identity in document["identity"].items():
        if identity["unchanged_at_end"] is not True:
            changed = identity["unchanged_at_end"] is False
            return f"the {part}'s files {'changed during' if changed else 'were not checked after'} the run"
    return " and ".join(_gaps(document))


def _gaps(document: Document) -> list[str]:
    """Count the probes whose evidence is not whole: the control's, and where that is sound each target's."""
    for judgements in ([{"name": CONTROL, **document["control"]}], document["targets"]):
        found = []
        for one in judgements:
            unproven = sum(probe["verdict"] != "pass" for probe in one["probes"])
            if unproven:
                found.append(f"{unproven} of {_probes(len(one['probes']))} of {one['name']} lack evidence")
        if found:
            return found
    return ["its arms are not the requested ones"]


def _troubles(arm: Document) -> list[str]:
    """Say what kept an arm from completing; empty where it completed and is what its name says."""
    if arm["limit"] is not None:
        return [f"its {arm['limit'].replace('_', ' ')} ran out"]
    states = {
        "pending": "its engine was not started",
        "running": "its engine is still running",
        "failed": "its engine failed",
        "interrupted": "its engine was interrupted",
    }
    if arm["state"] in states:
        return [states[arm["state"]]]
    if arm["errors"]:
        return ["it had errors"]
    return ["its engine is not shown to be what its name says"] if misfits(arm["name"], arm["effective"]) else []


def _probes(count: int) -> str:
    return "1 probe" if count == 1 else f"{count} probes"

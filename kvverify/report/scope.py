"""How far a run's verdict reaches: what was asked, what was not, and what it ran on."""

from kvverify.report.document import Document


def tested(document: Document) -> tuple[str, ...]:
    """Say what the run asked, and how much of it came back."""
    plan, result = document["plan"], document["result"]
    lengths = sorted({probe["prompt_tokens"] for probe in plan["probes"]})
    span = f"{lengths[0]} tokens" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]} tokens"
    counts = " or ".join(map(str, sorted({probe["reuse_count"] for probe in plan["probes"]})))
    count = len(plan["probes"])
    what = f"{count} prompt{'s' * (count != 1)} of the suite {plan['suite']} ({' and '.join(plan['prompt_formats'])})"
    lines = [f"{what}, of {span}, {plan['max_tokens']} new tokens each, greedy"]
    if document["targets"]:
        lines.append(f"each prompt once cold and then {counts} time{'s' * (counts != '1')} again in one engine process")
    done = result["generations"]
    lines.append(f"{done['completed']} of {done['planned']} generations completed")
    if not result["reuse_tested"]:
        lines.append("no reuse was tested")
    return tuple(lines)


def not_tested(document: Document) -> tuple[str, ...]:
    """Say what nobody may conclude from the verdict."""
    lines = [
        "other prompts, lengths, models, devices and versions: agreement here is no proof beyond these prompts",
        "sampling with a temperature, requests at the same time, KV written while decoding, eviction, restarts",
        "isolation between tenants, speed and cost",
    ]
    if not document["result"]["reuse_tested"]:
        lines.insert(0, "reuse of cached KV: no answer is known to have used any")
    return tuple(lines)


def environment(document: Document) -> tuple[tuple[str, str], ...]:
    """Name what the run ran on; the values are whatever the report says, and untrusted."""
    facts, identity = document["environment"], document["identity"]
    device = facts["accelerator"]
    capability = f", compute capability {device['compute_capability']}" if device["compute_capability"] else ""
    lines = [
        (
            "engine",
            ", ".join(_package(facts["packages"], name) for name in ("vllm", "lmcache") if name in facts["packages"]),
        ),
        ("model", _identity(identity["model"])),
        ("device", f"{device['device']}: {device['name'] or 'name unknown'}{capability}"),
        ("run", f"{document['run_id'][:12]} of {document['created_at']}, kvverify {document['tool']['version']}"),
    ]
    tokenizer = identity["tokenizer"]
    if (
        tokenizer["requested"] != identity["model"]["requested"]
        or tokenizer["revision"] != identity["model"]["revision"]
    ):
        lines.insert(2, ("tokenizer", _identity(tokenizer)))
    return tuple((name, value or "unknown") for name, value in lines)


def _package(packages: Document, name: str) -> str:
    package = packages[name]
    return f"{name} {package['version']}" + (f" ({package['distribution']})" if package["distribution"] != name else "")


def _identity(identity: Document) -> str:
    version = identity["revision"] or f"files sha256 {str(identity['files_sha256'])[:12]}"
    return f"{identity['requested']} ({version})"

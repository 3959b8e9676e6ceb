"""The manifest of a plan: what a report keeps of it, and the digest that covers all of that."""

import json
from collections.abc import Mapping
from hashlib import sha256

REQUEST_KEYS = (
    "suite",
    "prompt_formats",
    "reuse_counts",
    "span",
    "block_size",
    "max_model_len",
    "max_tokens",
    "seed",
    "tenant",
)
"""What was asked for, by the names in a report's ``plan``."""

PROBE_KEYS = (
    "id",
    "prompt_format",
    "prompt_tokens",
    "reuse_count",
    "scope",
    "prompt_sha256",
    "prompt_token_ids",
)
"""What identifies a probe, by the names in a report's ``plan.probes``."""


def manifest_sha256(plan: Mapping[str, object]) -> str:
    """Return the digest over the request, the generations and every probe of a report's ``plan`` object.

    Other keys of the object are left out, so that the digest can be recomputed from the object that carries
    it. Raises KeyError or TypeError where the object is not a plan.
    """
    probes = plan["probes"]
    if not isinstance(probes, (list, tuple)):
        raise TypeError("plan.probes is not a list")
    covered = {key: plan[key] for key in (*REQUEST_KEYS, "generations")}
    covered["probes"] = [{key: probe[key] for key in PROBE_KEYS} for probe in probes]
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return sha256(text.encode()).hexdigest()

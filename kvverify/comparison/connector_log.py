"""What LMCache's log says about one answer: how much it retrieved, and each kind of warning, counted.

The log is the only place where LMCache tells that it retrieved less than its lookup promised
(lmcache/v1/cache_engine.py, ``retrieve``; lmcache/integration/vllm/vllm_v1_adapter.py, ``start_load_kv``). Time-outs of
a lookup are told by lmcache/v1/rpc/zmq_transport.py and lmcache/v1/lookup_client/lmcache_async_lookup_client.py.
"""

import re
from collections.abc import Mapping

_RETRIEVED = re.compile(rb"Retrieved (\d+) out of (\d+) (?:required tokens|out of total)")
_WARNINGS = {
    "double_unpins": rb"Double unpin occurred",
    "short_retrieves": rb"number of retrieved tokens is less than",
    "failed_loads": rb"failed to load \d+ tokens across",
    "lookup_timeouts": rb"Timeout occurred for rank|still waiting for async lookup",
    "degraded": rb"degraded mode|LMCache is unhealthy",
}


COUNTS = ("retrieved_tokens", "required_tokens", *_WARNINGS)
"""Names of the counts: tokens that LMCache says it retrieved and was to retrieve, then each kind of warning."""


def doubts(counts: Mapping[str, int] | None, cached_external: int | None) -> list[str]:
    """Why a hit of ``cached_external`` tokens that the engine claims is not proven by the log; empty where it is.

    ``counts`` is None where no log was read, which no external hit survives.
    """
    if counts is None:
        return ["connector_log_missing"] if cached_external else []
    found = []
    if counts["retrieved_tokens"] < counts["required_tokens"] or counts["short_retrieves"] or counts["failed_loads"]:
        found.append("connector_retrieved_less_than_required")
    if cached_external and counts["retrieved_tokens"] < cached_external:
        found.append("connector_log_shows_no_such_retrieve")
    if cached_external == 0 and counts["retrieved_tokens"]:
        found.append("connector_log_shows_uncounted_retrieve")
    if counts["lookup_timeouts"]:
        found.append("connector_lookup_timed_out")
    if counts["degraded"]:
        found.append("connector_degraded")
    return found


def read_connector_log(text: bytes) -> dict[str, int]:
    """Count what a piece of an arm's log says, by the names in ``COUNTS``.

    Each retrieve of less than was asked for is a short one, also where another one retrieved more than it was asked.
    """
    retrieved = [(int(got), int(asked)) for got, asked in _RETRIEVED.findall(text)]
    warnings = {name: len(re.findall(pattern, text)) for name, pattern in _WARNINGS.items()}
    warnings["short_retrieves"] += sum(got < asked for got, asked in retrieved)
    return {
        "retrieved_tokens": sum(got for got, _ in retrieved),
        "required_tokens": sum(asked for _, asked in retrieved),
        **warnings,
    }

"""What LMCache's log proves about a hit. The lines are LMCache's own format strings, filled in as it fills them.

The messages are the same in the releases 0.5.4, 0.5.5rc5, 0.5.5 and 0.5.6, the line numbers behind them are not.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvverify.comparison.connector_log import COUNTS, doubts, read_connector_log

RELEASES = {  # file and line that each release puts behind its messages
    "0.5.4": {"retrieve": 958, "layerwise": 1119, "unpin": 983, "lookup": 121, "load": 963},
    "0.5.5rc5": {"retrieve": 958, "layerwise": 1119, "unpin": 982, "lookup": 121, "load": 963},
    "0.5.5": {"retrieve": 958, "layerwise": 1119, "unpin": 982, "lookup": 121, "load": 963},
    "0.5.6": {"retrieve": 985, "layerwise": 1146, "unpin": 1012, "lookup": 121, "load": 963},
}
COLOURS = {"INFO": "\x1b[32;20m", "WARNING": "\x1b[33;20m", "ERROR": "\x1b[31;20m"}
ANSWER = "lmcache_connector_v1.chat-512-r1.reuse.1-8d3f"


def line(message: str, level: str = "INFO", file: str = "cache_engine", number: int = 958) -> bytes:
    """A line as vLLM's worker passes LMCache's own format on (lmcache/logging.py)."""
    return (
        f"(Worker pid=11330) {COLOURS[level]}[2026-11-29 19:20:35,935] LMCache {level}:\x1b[0m {message} "
        f"\x1b[3m({file}.py:{number}:lmcache.v1.{file})\x1b[0m\n"
    ).encode()


def retrieved(got: int, asked: int, total: int = 512, number: int = 958) -> bytes:
    return line(
        f"[req_id={ANSWER}] Retrieved {got} out of {asked} required tokens (from {total} total tokens). "
        f"size: 0.0110 gb, cost 1.8310 ms, throughput: 6.0023 GB/s;",
        number=number,
    )


def layerwise(got: int, asked: int, total: int = 512, number: int = 1119) -> bytes:
    return line(f"[req_id={ANSWER}] Retrieved {got} out of {asked} out of total {total} tokens", number=number)


def double_unpin(number: int = 983) -> bytes:
    return line(
        "Pin count of MemoryObj 4096is negative: -1.Double unpin occurred somewhere."
        "Setting pin count back to 0 as a hack but please find the bug.",
        "WARNING",
        "memory_management",
        number,
    )


SHORT = line(
    f"Request {ANSWER}The number of retrieved tokens is less than the expected number of tokens! "
    "This should not happen!",
    "ERROR",
    "vllm_v1_adapter",
    875,
) + line("Num retrieved tokens: 256, num expected tokens: 512", "ERROR", "vllm_v1_adapter", 881)
FAILED_LOAD = line(f"Request {ANSWER} failed to load 256 tokens across 16 blocks", "WARNING", "vllm_v1_adapter", 963)
SYNC_TIMEOUT = line(
    "Timeout occurred for rank 0, recreating all sockets. Error: Resource temporarily unavailable",
    "ERROR",
    "zmq_transport",
    121,
)
ASYNC_TIMEOUT = line(
    f"Request {ANSWER} is still waiting for async lookup after 3 seconds, returning 0 lmcache cached tokens "
    "so vllm can recompute",
    "WARNING",
    "lmcache_async_lookup_client",
    177,
)
DEGRADED = line(
    "Failed to initialize LMCacheManager components: Traceback (most recent call last):\n"
    "RuntimeError: No supported device found.\n. System will operate in degraded mode (recompute).",
    "ERROR",
    "manager",
    107,
)
POST_INIT = line(
    "Failed during post_init: RuntimeError: x\n. System will operate in degraded mode (recompute).", "ERROR", "manager"
)
UNHEALTHY = line("LMCache is unhealthy, skipping retrieve operation", "WARNING", number=809)
CHATTER = (
    line(
        f"Reqid: {ANSWER}, Total tokens 512, Inference Engine computed tokens: 0, LMCache hit tokens: 512, "
        "need to load: 511"
    )
    + line(
        "Stored 512 out of total 512 tokens. size: 0.0110 GB, cost 2.1 ms, throughput: 5.2 GB/s; offload_time: 1.9 ms"
    )
    + line("LMCache Configuration: {'chunk_size': 256, 'lookup_timeout_ms': 3000, 'blocking_timeout_secs': 10}")
    + line("lmcache lookup server started")
    + b"(EngineCore pid=11223) INFO 11-29 19:20:36 [loggers.py:259] Engine 000: External prefix cache hit rate: 49.9%\n"
    + line("Retrieved 511 tokens", file="vllm_v1_adapter", number=991)
)
NONE = dict.fromkeys(COUNTS, 0)


def test_names_of_the_counts_are_a_contract():
    assert COUNTS == (
        "retrieved_tokens",
        "required_tokens",
        "double_unpins",
        "short_retrieves",
        "failed_loads",
        "lookup_timeouts",
        "degraded",
    )


@pytest.mark.parametrize("text", [b"", b"\n", CHATTER, b"\xff\xfe\x00"])
def test_a_log_without_retrieves_or_warnings_counts_nothing(text):
    assert read_connector_log(text) == NONE


@pytest.mark.parametrize("release", RELEASES)
def test_a_whole_retrieve_of_each_release_is_read(release):
    lines = RELEASES[release]
    for text in (
        CHATTER + retrieved(512, 512, number=lines["retrieve"]) + double_unpin(lines["unpin"]) * 2,
        CHATTER + layerwise(512, 512, number=lines["layerwise"]) + double_unpin(lines["unpin"]) * 2,
    ):
        counts = read_connector_log(text)
        assert counts == {**NONE, "retrieved_tokens": 512, "required_tokens": 512, "double_unpins": 2}
        assert doubts(counts, 511) == []
        assert doubts(counts, 512) == []


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        (SHORT, "short_retrieves", 1),
        (FAILED_LOAD * 2, "failed_loads", 2),
        (SYNC_TIMEOUT, "lookup_timeouts", 1),
        (ASYNC_TIMEOUT * 3, "lookup_timeouts", 3),
        (SYNC_TIMEOUT + ASYNC_TIMEOUT, "lookup_timeouts", 2),
        (DEGRADED, "degraded", 1),
        (POST_INIT, "degraded", 1),
        (UNHEALTHY * 2, "degraded", 2),
        (double_unpin(), "double_unpins", 1),
    ],
)
def test_each_warning_is_counted_under_its_name(text, name, count):
    assert read_connector_log(CHATTER + text + CHATTER) == {**NONE, name: count}


def test_retrieves_add_up_and_each_short_one_counts():
    counts = read_connector_log(retrieved(256, 256) + retrieved(0, 512) + layerwise(511, 512))
    assert counts == {**NONE, "retrieved_tokens": 767, "required_tokens": 1280, "short_retrieves": 2}


def test_a_short_retrieve_is_not_hidden_by_a_long_one():
    """LMCache retrieves whole chunks, so it may retrieve more than it was asked for."""
    counts = read_connector_log(retrieved(512, 224) + retrieved(0, 256))
    assert counts["retrieved_tokens"] > counts["required_tokens"]
    assert doubts(counts, 480) == ["connector_retrieved_less_than_required"]


def test_more_than_was_asked_for_is_no_doubt():
    assert doubts(read_connector_log(retrieved(256, 224)), 224) == []


def test_a_line_that_is_cut_proves_nothing():
    whole = retrieved(512, 512)
    for end in range(whole.index(b" required tokens")):
        assert read_connector_log(whole[:end])["retrieved_tokens"] == 0


def test_without_a_log_no_external_hit_is_proven():
    assert doubts(None, 512) == ["connector_log_missing"]
    assert doubts(None, 1) == ["connector_log_missing"]
    assert doubts(None, 0) == []
    assert doubts(None, None) == []


DOUBTS = {
    "nothing retrieved": ({}, 512, ["connector_log_shows_no_such_retrieve"]),
    "one token too little": (
        {"retrieved_tokens": 510, "required_tokens": 510},
        511,
        ["connector_log_shows_no_such_retrieve"],
    ),
    "just enough": ({"retrieved_tokens": 511, "required_tokens": 511}, 511, []),
    "one token": ({"retrieved_tokens": 1, "required_tokens": 1}, 1, []),
    "less than required": (
        {"retrieved_tokens": 511, "required_tokens": 512},
        511,
        ["connector_retrieved_less_than_required"],
    ),
    "short retrieve": (
        {"retrieved_tokens": 512, "required_tokens": 512, "short_retrieves": 1},
        512,
        ["connector_retrieved_less_than_required"],
    ),
    "failed load": (
        {"retrieved_tokens": 512, "required_tokens": 512, "failed_loads": 1},
        512,
        ["connector_retrieved_less_than_required"],
    ),
    "nothing of what was required": (
        {"required_tokens": 512},
        512,
        ["connector_retrieved_less_than_required", "connector_log_shows_no_such_retrieve"],
    ),
    "time-out": (
        {"retrieved_tokens": 512, "required_tokens": 512, "lookup_timeouts": 1},
        512,
        ["connector_lookup_timed_out"],
    ),
    "degraded": ({"retrieved_tokens": 512, "required_tokens": 512, "degraded": 1}, 512, ["connector_degraded"]),
    "degraded, no hit": ({"degraded": 1}, 0, ["connector_degraded"]),
    "time-out, no hit": ({"lookup_timeouts": 2}, 0, ["connector_lookup_timed_out"]),
    "time-out, hits unknown": ({"lookup_timeouts": 2}, None, ["connector_lookup_timed_out"]),
    "double unpins alone": ({"retrieved_tokens": 512, "required_tokens": 512, "double_unpins": 9}, 512, []),
    "no hit and no retrieve": ({}, 0, []),
    "a retrieve that the engine does not count": (
        {"retrieved_tokens": 1, "required_tokens": 1},
        0,
        ["connector_log_shows_uncounted_retrieve"],
    ),
    "hits unknown": ({"retrieved_tokens": 512, "required_tokens": 512}, None, []),
}


@pytest.mark.parametrize(("counts", "external", "found"), DOUBTS.values(), ids=DOUBTS)
def test_what_the_log_says_against_a_hit(counts, external, found):
    assert doubts({**NONE, **counts}, external) == found


@given(
    st.lists(st.tuples(st.integers(0, 2048), st.integers(0, 2048)), max_size=4),
    st.lists(st.sampled_from([CHATTER, SHORT, FAILED_LOAD, SYNC_TIMEOUT, ASYNC_TIMEOUT, DEGRADED, UNHEALTHY])),
    st.integers(1, 2048),
)
def test_no_doubt_only_where_all_was_retrieved_and_nothing_went_wrong(retrieves, others, external):
    text = b"".join([*(retrieved(*one) for one in retrieves), *others])
    proven = doubts(read_connector_log(text), external) == []
    whole = all(got >= asked for got, asked in retrieves) and sum(got for got, _ in retrieves) >= external
    assert proven == (whole and all(other is CHATTER for other in others))

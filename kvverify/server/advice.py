"""What to do about what a server check found, per kind of server and mode."""

from collections.abc import Mapping

from kvverify.server.reasons import REASONS

FINDINGS: Mapping[str, str] = {
    "one_server": "both URLs lead to one server: each one's own counter shows the requests that went to the other; "
    "start a second process without a cache and see that each port is answered by the one you mean",
    "other_traffic": "the server was also working for others: their requests can change batches and evict cache "
    "entries; run again while it is idle",
    "thinking": "the model thinks before it answers, and most chat templates leave the thinking out of turn 2: by text "
    "no hit can cover it, and by ids turn 2 is not what a chat would send; switch thinking off at the server",
}
"""Each finding of a run with what it says and what to do."""

_REPORT_COUNTS = {
    "vllm": "start vLLM with --enable-prompt-tokens-details",
    "sglang": "start SGLang with --enable-cache-report",
    "llamacpp": "use a llama.cpp server whose timings hold cache_n",
    "openai": "the server must report usage.prompt_tokens_details.cached_tokens",
}
_CACHE_ON = {
    "vllm": "start vLLM without --no-enable-prefix-caching",
    "sglang": "start SGLang without --disable-radix-cache",
    "llamacpp": "start llama-server with -np 1 --cache-ram 0, and leave it to this check alone",
    "openai": "switch the server's prompt cache on",
}
_CACHE_OFF = {
    "vllm": "start the server at --nocache-url with --no-enable-prefix-caching",
    "sglang": "start the server at --nocache-url with --disable-radix-cache",
    "llamacpp": "start the server at --nocache-url with --no-cache-prompt",
    "openai": "switch off the cache of the server at --nocache-url",
}
_BUSY = "answers that do not repeat show nothing about the cache: see that nothing else uses the server"
_THINKING_OFF = {
    "vllm": "vLLM: --default-chat-template-kwargs '{\"enable_thinking\": false}'",
    "llamacpp": "llama.cpp: --reasoning-budget 0",
}


def explain(code: str, kind: str, mode: str) -> str:
    """Say in words what a reason code means and what to do; the bare code where it is one of another version."""
    says, advice = REASONS.get(code), _advice(code, kind, mode)
    if says is None:
        return code
    return f"{says}: {advice}" if advice else says


def explain_finding(code: str, kind: str) -> str:
    """Say in words what a finding of a run means and what to do."""
    says = FINDINGS.get(code, code)
    how = _THINKING_OFF.get(kind) if code == "thinking" else None
    return f"{says} ({how})" if how else says


def _advice(code: str, kind: str, mode: str) -> str | None:
    if code in ("cached_hits_unknown", "recomputed_hits_unknown"):
        return _REPORT_COUNTS.get(kind)
    if code == "cached_without_hit":
        return _CACHE_ON.get(kind)
    if code == "recomputed_had_hit":
        if mode == "two-servers":
            return f"{_CACHE_OFF.get(kind)}, and see that the two URLs do not lead to one server"
        return "the server does not honour cache_salt; use --mode two-servers" if mode == "one-server" else None
    if code in ("cached_hit_too_short", "cached_hit_ends_in_turn1_prompt"):
        return "caches keep whole blocks or pages: raise --max-tokens, or --hit-tolerance to the size of one"
    if code.endswith("_not_repeated"):
        return _BUSY
    if code.endswith("_not_whole"):
        return "the server's own limit on length is in the way: lower --max-tokens, or raise the limit"
    return None

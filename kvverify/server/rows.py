"""What a person reads of a server check's report, as values: chosen and worded once, laid out by each rendering."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvverify.server.advice import explain, explain_finding
from kvverify.server.document import Document

LEGEND = (
    "Turn 1: tokens of its prompt + its answer. Cached: prompt tokens of turn 2 that each cache-path request took from "
    "the cache. Differs at: first token ID (or character) of turn 2 that differs between the paths; = none does."
)
"""How to read the table of conversations."""


@dataclass(frozen=True)
class Row:
    """One conversation."""

    id: str
    """Its id (untrusted text)."""
    turn1: str
    """Tokens of turn 1 as in ``31+256``; ``?`` unknown."""
    cached: str
    """Cached tokens of the two requests on the cache path."""
    verdict: str
    """``PASS``, ``FAIL`` or ``INCONCLUSIVE``."""
    difference: str
    """Index of the first difference, ``=`` none, ``?`` not comparable."""


@dataclass(frozen=True)
class Summary:
    """What a report says. Its sentences are our own; ids, values and errors can hold anything."""

    verdict: str
    headline: str
    rows: tuple[Row, ...]
    reasons: tuple[str, ...]
    """Each distinct reason in words, the frequent first."""
    findings: tuple[str, ...]
    errors: tuple[str, ...]
    """Untrusted text."""
    meaning: tuple[str, ...]
    """What the verdict means and does not."""
    facts: tuple[tuple[str, str], ...]
    """Names and values (untrusted text)."""
    block: tuple[tuple[str, str], ...]
    """Names and values of the result block: counts and settings only."""


def summarise(document: Document, path: Path) -> Summary:
    """Choose what is worth reading from a sound report that lies at ``path``."""
    result, plan, server = document["result"], document["plan"], document["servers"][0]
    codes = Counter(code for one in document["conversations"] for code in one["reasons"])
    errors = [f"{one['stage']}: {one['message']}" for one in document["errors"]]
    for one in document["conversations"]:
        errors += [
            f"{one['id']}, {answer['role']} {answer['repeat']}: {answer['error']}"
            for answer in one["answers"]
            if answer["error"] is not None
        ]
    return Summary(
        verdict=result["verdict"],
        headline=_headline(document),
        rows=tuple(_row(one) for one in document["conversations"]),
        reasons=tuple(
            f"{explain(code, server['kind'], plan['mode'])} ({number} conversation{'s' * (number != 1)})"
            for code, number in sorted(codes.items(), key=lambda item: (-item[1], item[0]))
        ),
        findings=tuple(explain_finding(code, server["kind"]) for code in result["findings"]),
        errors=tuple(errors),
        meaning=_meaning(document),
        facts=(
            *(
                (f"{one['name']} server", f"{one['url']} ({_build(one)}, model {one['model']})")
                for one in document["servers"]
            ),
            ("conversations", str(document["request"]["conversations"])),
            ("run", f"{document['run_id'][:12]} of {document['created_at']}, kvverify {document['tool']['version']}"),
            ("report", str(path)),
        ),
        block=_block(document),
    )


def _headline(document: Document) -> str:
    result = document["result"]
    counts, verdict = result["conversations"], result["verdict"]
    of_valid = f"{counts['valid']} valid conversation{'s' * (counts['valid'] != 1)} (of {counts['planned']})"
    if verdict == "fail":
        return f"FAIL: the prompt cache changed the answer in {counts['differing']} of {of_valid}"
    if verdict == "pass":
        return f"PASS: the prompt cache changed no answer in {of_valid}"
    if verdict == "pass_hits_unchecked":
        return f"PASS, HITS UNCHECKED: no answer differs in {of_valid}, but no count shows that the cache was used"
    return f"INCONCLUSIVE: neither pass nor fail, because {_why(document)}"


def _why(document: Document) -> str:
    """Name the first thing that stands against a verdict."""
    counts, requests = document["result"]["conversations"], document["result"]["requests"]
    if document["state"] != "complete":
        how = "was interrupted" if document["state"] == "interrupted" else "has not ended"
        return f"the run {how} after {counts['asked']} of {counts['planned']} conversations"
    if requests["failed"] or document["errors"]:
        return f"requests failed ({requests['answered']} of {requests['planned']} were answered)"
    if "one_server" in document["result"]["findings"]:
        return "both URLs lead to one server"
    share = f"{document['plan']['min_valid']:.0%}"
    return f"only {counts['valid']} of {counts['planned']} conversations are valid, and {share} must be"


def _row(one: Document) -> Row:
    answers = {(answer["role"], answer["repeat"]): answer for answer in one["answers"]}
    turn1 = answers.get(("turn1", 1))
    cached = [answers.get(("cached", repeat)) for repeat in (1, 2)]
    return Row(
        id=one["id"],
        turn1="-" if turn1 is None else f"{_known(turn1['prompt_tokens'])}+{_known(turn1['completion_tokens'])}",
        cached=", ".join("-" if answer is None else _known(answer["cached_tokens"]) for answer in cached),
        verdict=one["verdict"].upper(),
        difference=_difference(one),
    )


def _known(value: int | None) -> str:
    return "?" if value is None else str(value)


def _difference(one: Document) -> str:
    found = one["first_difference"]
    if found is None:
        return "=" if one["verdict"] == "pass" else "?"
    return "hidden" if found["index"] is None else f"{found['unit']} {found['index']}"


def _meaning(document: Document) -> tuple[str, ...]:
    verdict, mode = document["result"]["verdict"], document["plan"]["mode"]
    lines = []
    if verdict == "fail":
        lines.append(
            "a difference shows that answers depend on what is cached. The usual cause is plain floating point: KV "
            "written token by token and KV computed at once come from different kernels, and quantised weights make it "
            "frequent. It is not by itself a sign of corrupted state"
        )
    if verdict in ("pass", "pass_hits_unchecked"):
        lines.append("agreement here is no proof for other conversations, lengths, models or settings")
    if mode == "two-servers":
        lines.append("two servers can also differ for other reasons than the cache: device, build, settings")
    lines.append("not tested: sampling with a temperature, requests at the same time, eviction, restarts")
    return tuple(lines)


def _build(server: Document) -> str:
    return f"{server['kind']} {server['version'] or 'of unknown version'}"


def _block(document: Document) -> tuple[tuple[str, str], ...]:
    """Choose what anybody may see: counts and settings, no text of a conversation, no URL, no path."""
    result, plan = document["result"], document["plan"]
    counts, requests, levels = result["conversations"], result["requests"], result["comparison"]
    places = [
        "hidden" if one["first_difference"]["index"] is None else str(one["first_difference"]["index"])
        for one in document["conversations"]
        if one["verdict"] == "fail"
    ]
    units = {one["first_difference"]["unit"] for one in document["conversations"] if one["verdict"] == "fail"}
    built = Counter(one["turn2_from"] for one in document["conversations"])
    model = document["servers"][0]["model"].replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    settings = [
        f"{server['name']}: " + ", ".join(f"{name} {value}" for name, value in server["settings"].items())
        for server in document["servers"]
        if server["settings"]
    ]
    lines = [
        ("kvverify", f"{document['tool']['version']}, server check of {document['created_at'][:10]}"),
        ("verdict", f"{result['verdict']} (exit status {result['exit_status']})"),
        ("servers", ", ".join(_build(server) for server in document["servers"])),
        ("model", model),
        ("mode", plan["mode"]),
        ("compared by", f"token ids {levels['token_ids']}, text {levels['text']}"),
        ("turn 2 from", f"ids {built['ids']}, messages {built['messages']}"),
        ("conversations", f"planned {counts['planned']}, valid {counts['valid']}, differing {counts['differing']}"),
        ("differ at", f"{' or '.join(sorted(units))} {', '.join(places)}" if places else "-"),
        ("requests", f"answered {requests['answered']}, failed {requests['failed']}, retried {requests['retried']}"),
        ("invalid for", _codes(document["conversations"])),
        ("findings", ", ".join(result["findings"]) or "-"),
        (
            "settings",
            (
                f"max_tokens {plan['max_tokens']}, hit_tolerance {plan['hit_tolerance']}, "
                f"hits {'not checked' if plan['skip_hit_check'] else 'checked'}, min_valid {plan['min_valid']:g}, "
                f"temperature {plan['temperature']}, seed {plan['seed']}"
            ),
        ),
        ("asked", f"conversations sha256 {plan['conversations_sha256'][:16]}"),
        *(("server settings", line) for line in settings),
    ]
    return tuple(lines)


def _codes(conversations: Sequence[Document]) -> str:
    codes = Counter(code for one in conversations for code in one["reasons"])
    return ", ".join(f"{code} {number}" for code, number in sorted(codes.items())) or "-"

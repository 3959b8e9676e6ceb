"""The derived parts of a server check's report, computed from its raw answers and from nothing else.

``judge`` is the one place where a report's JSON becomes the typed facts of ``kvverify.server.facts``. The writer calls
it after each answer, and ``rederive`` calls it again on a report that somebody hands in. No I/O here.
"""

from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from kvverify.comparison.facts import ids_sha256, is_count
from kvverify.server.facts import ORDER, Terms, Turn
from kvverify.server.judgement import Run, exit_status, judge_conversation, judge_run

SCHEMA = "kvverify.server-check.v1"

Document = dict[str, Any]
"""A report, or a part of one, as JSON gives it. The schema says what is in it."""


def judge(document: Document) -> tuple[list[Document], Document]:
    """Compute what a report that fits the schema says of each of its conversations, and its ``result``."""
    plan, asked = document["plan"], document["conversations"]
    terms = Terms(plan["max_tokens"], plan["hit_tolerance"], plan["skip_hit_check"])
    judged = [judge_conversation(terms, [_turn(answer) for answer in one["answers"]]) for one in asked]
    answers = [answer for one in asked for answer in one["answers"]]
    failed = sum(answer["error"] is not None for answer in answers)
    found = findings(document)
    verdict = judge_run(
        Run(
            planned=len(plan["conversations"]),
            min_valid=plan["min_valid"],
            failed_requests=failed,
            complete=_complete(document),
            hits_checked=plan["skip_hit_check"] is False,
            one_server="one_server" in found,
        ),
        [one.verdict for one in judged],
    )
    levels = Counter(one.comparison for one in judged)
    result = {
        "verdict": verdict,
        "exit_status": exit_status(verdict),
        "findings": found,
        "conversations": {
            "planned": len(plan["conversations"]),
            "asked": len(asked),
            "valid": sum(one.valid for one in judged),
            "differing": sum(one.verdict == "fail" for one in judged),
        },
        "requests": {
            "planned": len(ORDER) * len(plan["conversations"]),
            "answered": len(answers) - failed,
            "failed": failed,
            "retried": sum(answer["attempts"] > 1 for answer in answers),
        },
        "comparison": {"token_ids": levels["token_ids"], "text": levels["text"]},
    }
    verdicts = [
        {
            "verdict": one.verdict,
            "reasons": list(one.reasons),
            "comparison": one.comparison,
            "first_difference": one.difference and {"unit": one.difference.unit, "index": one.difference.index},
        }
        for one in judged
    ]
    return verdicts, result


def judged(document: Document) -> Document:
    """Return the report with its derived parts computed anew; the given one stays as it is."""
    verdicts, result = judge(document)
    conversations = [{**one, **verdict} for one, verdict in zip(document["conversations"], verdicts, strict=True)]
    return {**document, "conversations": conversations, "result": result}


def findings(document: Document) -> list[str]:
    """List what the run noticed apart from its answers, as sorted keys of :data:`~kvverify.server.advice.FINDINGS`."""
    found = set()
    if any(one["thinking"] for one in document["conversations"]):
        found.add("thinking")
    moves = [_counted(server) for server in document["servers"]]
    ours = [_generated(document, server["name"]) for server in document["servers"]]
    together = None if None in ours else sum(one for one in ours if one is not None)
    # Each server's own counter shows what both were asked: they are one process.
    if len(moves) == 2 and together and 0 not in ours and moves == [together, together]:
        found.add("one_server")
    elif any(move is not None and mine is not None and move > mine for move, mine in zip(moves, ours, strict=True)):
        found.add("other_traffic")
    if any(server["load"]["running_before"] for server in document["servers"]):
        found.add("other_traffic")
    return sorted(found)


def text_sha256(text: str) -> str:
    """Return the hex sha256 of a generated text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _counted(server: Document) -> int | None:
    """Give the tokens that a server says it generated during the run."""
    before, after = server["load"]["generated_tokens_before"], server["load"]["generated_tokens_after"]
    return after - before if is_count(before) and is_count(after) and after >= before else None


def _generated(document: Document, server: str) -> int | None:
    """Give the tokens that a server generated for this run; None where an answer does not tell, or failed."""
    counts: list[int | None] = [
        None if answer["error"] is not None else answer["completion_tokens"]
        for one in document["conversations"]
        for answer in one["answers"]
        if answer["server"] == server
    ]
    known = [one for one in counts if one is not None]
    return sum(known) if len(known) == len(counts) else None


def _complete(document: Document) -> bool:
    return document["state"] == "complete" and not document["errors"]


def _turn(answer: Mapping[str, Any]) -> Turn:
    ids, generated, text = answer["prompt_token_ids"], answer["generated_token_ids"], answer["text"]
    return Turn(
        role=answer["role"],
        repeat=answer["repeat"],
        prompt_tokens=answer["prompt_tokens"],
        prompt_sha256=None if ids is None else ids_sha256(ids),
        generated=None if generated is None else tuple(generated),
        text=text,
        text_sha256=answer["text_sha256"] if text is None else text_sha256(text),
        completion_tokens=answer["completion_tokens"],
        finish_reason=answer["finish_reason"],
        cached=answer["cached_tokens"],
        error=answer["error"],
    )

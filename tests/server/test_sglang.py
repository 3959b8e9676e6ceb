"""SGLang: exchanges recorded from a real 0.5.23 and replayed, since it has no build for CPUs on PyPI.

Its kernels were stubbed for the recording (attention and sampling by torch), so that it says nothing about how SGLang's
own kernels answer: only that requests, answers, ids, salts and counts are what the client takes them for.
"""

from pathlib import Path

from .conftest import Run
from .recording import Player, serving

RECORDING = Path(__file__).with_name("sglang-0.5.23.jsonl")


def test_recorded_exchanges_are_asked_for_and_understood(run: Run) -> None:
    player = Player(RECORDING)
    with serving(player) as url:
        status, report, said = run(
            "--base-url", url, "--limit", "2", "--max-tokens", "40", "--hit-tolerance", "16", key=False
        )
    assert player.mistakes == []
    assert player.complete
    server = report["servers"][0]
    assert (server["kind"], server["version"]) == ("sglang", "0.5.23")
    assert server["settings"]["disable_radix_cache"] is False
    assert report["plan"]["mode"] == "one-server"
    for one in report["conversations"]:
        turn1, cached, recomputed, *_ = one["answers"]
        ids = [*turn1["prompt_token_ids"], *turn1["generated_token_ids"]]
        assert one["reasons"] == []
        assert (one["comparison"], one["turn2_from"]) == ("token_ids", "ids")
        assert cached["prompt_token_ids"][: len(ids)] == ids
        assert cached["cached_tokens"] >= len(ids) - 16
        assert recomputed["cached_tokens"] == 0
    assert status == report["result"]["exit_status"], said

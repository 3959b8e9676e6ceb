import copy
from collections.abc import Callable
from pathlib import Path

import pytest

from kvverify.report.document import Document, judge, judged, planned_generations

from .report_factory import CONTROL, LMCACHE, NATIVE, Change, make_report, unchanged

Edit = Callable[[Document], object]


def results(tmp_path: Path, change: Change = unchanged, arms: tuple[str, ...] = (CONTROL, NATIVE)) -> Document:
    return make_report(tmp_path / "report.json", arms, change)[0]


def differing(name: str, role: str, index: int) -> Change:
    def change(arm: str, answer: Document) -> Document:
        if arm == name and answer["role"] == role:
            answer["generated_token_ids"][index] += 1
        return answer

    return change


def test_exact_reuse_passes(tmp_path: Path) -> None:
    document = results(tmp_path)
    assert document["control"]["verdict"] == "pass"
    assert [target["verdict"] for target in document["targets"]] == ["pass"]
    assert document["result"]["verdict"] == "pass"


def test_a_difference_fails_with_its_index(tmp_path: Path) -> None:
    document = results(tmp_path, differing(LMCACHE, "reuse", 11), (CONTROL, LMCACHE, NATIVE))
    assert [target["verdict"] for target in document["targets"]] == ["fail", "pass"]
    assert (document["result"]["verdict"], document["result"]["exit_status"]) == ("fail", 1)
    assert document["targets"][0]["probes"][0] == {
        "id": "chat-511-r1",
        "verdict": "fail",
        "reasons": ["difference_from_cold", "difference_from_control"],
        "comparisons": [
            {
                "role": "cold",
                "ordinal": 0,
                "first_difference_from_control": None,
                "first_difference_from_cold": None,
            },
            {"role": "reuse", "ordinal": 1, "first_difference_from_control": 11, "first_difference_from_cold": 11},
        ],
    }
    assert document["result"]["generations"] == {"planned": 42, "completed": 42}


def test_control_only_tests_no_reuse(tmp_path: Path) -> None:
    result = results(tmp_path, arms=(CONTROL,))["result"]
    assert result == {
        "verdict": "control_only_pass",
        "reuse_tested": False,
        "exit_status": 0,
        "generations": {"planned": 6, "completed": 6},
    }


def test_reuse_counts_as_tested_only_with_a_hit(tmp_path: Path) -> None:
    def without_hit(_arm: str, answer: Document) -> Document:
        return answer | {"cached_tokens": 0, "cached_tokens_local": 0}

    result = results(tmp_path, without_hit)["result"]
    assert (result["verdict"], result["reuse_tested"]) == ("inconclusive", False)


def test_answers_without_ids_or_with_an_error_are_no_completed_generations(tmp_path: Path) -> None:
    def change(arm: str, answer: Document) -> Document:
        if arm == NATIVE and answer["role"] == "cold":
            return answer | {"error": "raised"}
        if arm == NATIVE and answer["ordinal"] == 3:
            return answer | {"generated_token_ids": None}
        return answer

    assert results(tmp_path, change)["result"]["generations"] == {"planned": 24, "completed": 24 - 6 - 3}


def set_in(place: str, value: object) -> Edit:
    """Set the member at a dotted place to a value."""

    def edit(document: Document) -> None:
        *path, last = [int(step) if step.isdecimal() else step for step in place.split(".")]
        at: object = document
        for step in path:
            at = at[step]  # type: ignore[index]
        at[last] = value  # type: ignore[index]

    return edit


@pytest.fixture(scope="module")
def passing(tmp_path_factory: pytest.TempPathFactory) -> Document:
    return results(tmp_path_factory.mktemp("passing"))


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Document:
    return results(tmp_path_factory.mktemp("failing"), differing(NATIVE, "reuse", 0))


DOUBTS: dict[str, Edit] = {
    "still running": set_in("state", "running"),
    "interrupted": set_in("state", "interrupted"),
    "error of the run": set_in("errors", [{"stage": "x", "message": "y"}]),
    "model changed": set_in("identity.model.unchanged_at_end", value=False),
    "model not looked at": set_in("identity.model.unchanged_at_end", None),
    "tokenizer not looked at": set_in("identity.tokenizer.unchanged_at_end", None),
    "control failed": set_in("arms.0.state", "failed"),
    "target failed": set_in("arms.1.state", "failed"),
    "target past a limit": set_in("arms.1.limit", "shutdown_timeout"),
    "target with an error": set_in("arms.1.errors", ["y"]),
    "target unknown inside": set_in("arms.1.effective", None),
    "target without its cache": set_in("arms.1.effective.prefix_caching", value=False),
    "target with another cache": set_in("arms.1.effective.connector", {"class": "C", "module": "m"}),
    "control with a cache": set_in("arms.0.effective.prefix_caching", value=True),
    "control of unknown caching": set_in("arms.0.effective.prefix_caching", None),
    "another target asked for": set_in("request.kv_connector", "LMCacheConnectorV1"),
    "no target asked for": set_in("request.native_prefix_caching", value=False),
    "target missing": lambda document: document["arms"].pop(),
    "target twice": lambda document: document["arms"].append(document["arms"][1]),
    "control missing": lambda document: document["arms"].pop(0),
    "answer missing": lambda document: document["arms"][1]["answers"].pop(),
    "control answer missing": lambda document: document["arms"][0]["answers"].pop(),
    "answer twice": lambda document: document["arms"][1]["answers"].append(document["arms"][1]["answers"][0]),
    "control answer twice": lambda document: document["arms"][0]["answers"].append(document["arms"][0]["answers"][0]),
    "answer of no probe": set_in("arms.1.answers.0.probe", "chat-1-r1"),
    "extra answer of no probe": lambda document: document["arms"][1]["answers"].append(
        document["arms"][1]["answers"][0] | {"probe": "chat-1-r1"}
    ),
    "hit on the wrong tier": lambda document: document["arms"][1]["answers"][1].update(
        cached_tokens_local=0, cached_tokens_external=496
    ),
    "probe without answers": lambda document: document["plan"]["probes"].append(
        document["plan"]["probes"][0] | {"id": "chat-9-r1"}
    ),
}


@pytest.mark.parametrize("edit", DOUBTS.values(), ids=DOUBTS.keys())
def test_whatever_is_missing_odd_or_unknown_is_never_a_pass(passing: Document, edit: Edit) -> None:
    document = copy.deepcopy(passing)
    edit(document)
    _, _, result = judge(document)
    assert (result["verdict"], result["exit_status"]) == ("inconclusive", 2)


@pytest.mark.parametrize(
    "edit", [edit for name, edit in DOUBTS.items() if name not in ("target missing", "model changed")]
)
def test_a_difference_stays_a_fail_whatever_else_is_wrong(failing: Document, edit: Edit) -> None:
    document = copy.deepcopy(failing)
    edit(document)
    _, _, result = judge(document)
    assert (result["verdict"], result["exit_status"]) == ("fail", 1)


def test_a_difference_between_different_weights_is_no_sign_of_a_cache(failing: Document) -> None:
    failing["identity"]["model"]["unchanged_at_end"] = False
    assert (judge(failing)[2]["verdict"], judge(failing)[2]["exit_status"]) == ("inconclusive", 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sampling", {"temperature": 1.0, "max_tokens": 16, "seed": 0}),
        ("sampling", None),
        ("max_model_len", 4096),
        ("block_size", None),
        ("max_num_seqs", True),
        ("attention_backends", ["FLASHINFER"]),
        ("device_name", "another GPU"),
        ("variables", {"PYTHONHASHSEED": "7"}),
    ],
)
def test_an_engine_that_ran_otherwise_than_planned_or_than_the_control_proves_nothing(
    passing: Document, name: str, value: object
) -> None:
    passing["arms"][1]["effective"][name] = value
    assert judge(passing)[2]["verdict"] == "inconclusive"


def test_the_connector_has_to_be_the_engines_own(tmp_path: Path) -> None:
    document = results(tmp_path, arms=(CONTROL, LMCACHE))
    assert document["result"]["verdict"] == "pass"
    document["arms"][1]["effective"]["connector"]["module"] = "lmcache.integration.vllm.lmcache_connector_v1"
    assert judge(document)[2]["verdict"] == "inconclusive"


def test_an_answer_that_nobody_asked_for_still_counts_where_it_differs(tmp_path: Path) -> None:
    document = results(tmp_path)
    odd = document["arms"][1]["answers"][1] | {"generated_token_ids": [5] * 16}
    document["arms"][1]["answers"].append(odd)
    _, targets, result = judge(document)
    assert result["verdict"] == "fail"
    assert "unexpected_answer" in targets[0]["probes"][0]["reasons"]


def test_judged_leaves_its_argument_alone(tmp_path: Path) -> None:
    document = results(tmp_path)
    document["arms"][1]["answers"].clear()
    anew = judged(document)
    assert document["result"]["verdict"] == "pass"
    assert anew["result"]["verdict"] == "inconclusive"


def test_arithmetic_of_the_acceptance() -> None:
    probes = [{"reuse_count": 3}, {"reuse_count": 1}, {"reuse_count": 1}, {"reuse_count": 1}]
    assert planned_generations(probes, 2) == 24
    assert planned_generations(probes, 0) == 4

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvverify.errors import ReportError
from kvverify.report.document import Document
from kvverify.report.rederive import check, check_document
from kvverify.report.summary import render

from .report_factory import CONTROL, LMCACHE, NATIVE, make_identity, make_plan, make_report

Edit = Callable[[Document], object]
Place = tuple[str | int, ...]


def differing(arm: str, answer: Document) -> Document:
    if arm == LMCACHE and answer["role"] == "reuse":
        answer["generated_token_ids"][7] += answer["ordinal"]
    return answer


def gaps(arm: str, answer: Document) -> Document | None:
    if arm == NATIVE and answer["role"] == "cold":
        return answer | {"cached_tokens": None, "cached_tokens_local": None}
    return None if arm == NATIVE and answer["ordinal"] == 2 else answer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rederive")


@pytest.fixture(scope="module")
def reports(folder: Path) -> dict[str, Document]:
    plan = make_plan((40, 41), (1, 2))
    both = (CONTROL, LMCACHE, NATIVE)
    return {
        "pass": make_report(folder / "pass.json", both, plan=plan)[0],
        "fail": make_report(folder / "fail.json", both, differing, plan=plan)[0],
        "control_only_pass": make_report(folder / "only.json", (CONTROL,), plan=plan)[0],
    }


@pytest.fixture
def passing(reports: dict[str, Document]) -> Document:
    return copy.deepcopy(reports["pass"])


@pytest.fixture
def failing(reports: dict[str, Document]) -> Document:
    return copy.deepcopy(reports["fail"])


def test_sound_reports_have_no_reasons_whatever_their_verdict(reports: dict[str, Document], folder: Path) -> None:
    for verdict, document in reports.items():
        assert document["result"]["verdict"] == verdict
        assert check(document, folder) == []
    document, _ = make_report(folder / "gaps.json", (CONTROL, NATIVE), gaps)
    document["arms"][1]["state"] = "failed"
    assert document["result"]["verdict"] == "inconclusive"
    assert check(document, folder) == []


def test_a_verdict_that_lies_is_named_with_its_place_and_reason(failing: Document, folder: Path) -> None:
    failing["targets"][0]["probes"][2]["verdict"] = "pass"
    assert check(failing, folder) == [
        (
            "targets[0].probes[2] (chat-41-r1): verdict says pass, the answers give fail "
            "(difference_from_cold, difference_from_control)"
        )
    ]


def make_it_look_passed(document: Document) -> None:
    """Turn every derived section into that of a pass and leave the answers as they are."""
    for target in document["targets"]:
        target["verdict"] = "pass"
        for probe in target["probes"]:
            probe.update(verdict="pass", reasons=[])
            for one in probe["comparisons"]:
                one.update(first_difference_from_control=None, first_difference_from_cold=None)
    document["result"].update(verdict="pass", exit_status=0)


def test_a_report_dressed_up_as_a_pass_is_found_out(failing: Document, folder: Path) -> None:
    make_it_look_passed(failing)
    reasons = check(failing, folder)
    assert "targets[0]: verdict says pass, the answers give fail" in reasons
    assert 'result.verdict: says "pass", the answers give "fail"' in reasons
    assert "result.exit_status: says 0, the answers give 1" in reasons
    assert (
        "targets[0].probes[0] (chat-40-r1).comparisons[1].first_difference_from_control: says null, the answers give 7"
        in reasons
    )


LIES: dict[str, tuple[Edit, str]] = {
    "a prompt id": (
        lambda d: d["plan"]["probes"][1]["prompt_token_ids"].__setitem__(0, 1),
        "plan.probes[1] (chat-40-r2): prompt_sha256 says",
    ),
    "a prompt's length": (
        lambda d: d["plan"]["probes"][1]["prompt_token_ids"].pop(),
        "plan.probes[1] (chat-40-r2): prompt_tokens says 40, there are 39",
    ),
    "the manifest": (lambda d: d["plan"].update(seed=1), "plan.manifest_sha256: says"),
    "planned generations": (lambda d: d["plan"].update(generations=15), "plan.generations: says 15, "),
    "a scope": (lambda d: d["plan"]["probes"][0].update(scope="other"), "its scope other is not the tenant"),
    "a probe twice": (
        lambda d: d["plan"]["probes"].append(d["plan"]["probes"][0]),
        'plan.probes: the id "chat-40-r1" is there twice',
    ),
    "a format": (lambda d: d["plan"]["probes"][0].update(prompt_format="raw"), "its format raw is not one"),
    "no room": (lambda d: d["plan"].update(max_model_len=50), "do not fit into max_model_len 50"),
    "what was asked": (
        lambda d: d["request"].update(compare_native=False),
        "arms: the request asks for control, lmcache_connector_v1; the report holds control, lmcache_connector_v1, nat",
    ),
    "a hidden target": (
        lambda d: (d["arms"].pop(1), d["targets"].pop(0)),
        "arms: the request asks for control, lmcache_connector_v1, native_prefix_caching; the report holds control, n",
    ),
    "a renamed arm": (
        lambda d: d["arms"][2].update(name=LMCACHE, tier="external"),
        "targets[1]: name says native_prefix_caching, the arm in that place is lmcache_connector_v1",
    ),
    "a target without an arm": (
        lambda d: d["targets"].append(d["targets"][0]),
        "targets[2] (lmcache_connector_v1): there is no arm of that name in that place",
    ),
    "a missing target": (lambda d: d["targets"].pop(), "targets[1] (native_prefix_caching): is missing"),
    "a missing probe": (
        lambda d: d["targets"][0]["probes"].pop(),
        "targets[0].probes[3] (chat-41-r2): is missing",
    ),
    "a probe of its own": (
        lambda d: d["control"]["probes"].append(d["control"]["probes"][0]),
        "control.probes[4] (chat-40-r1): is not in the plan",
    ),
    "probes in another order": (
        lambda d: d["control"]["probes"].reverse(),
        "control.probes[0]: id says chat-41-r2, the plan's probe in that place is chat-40-r1",
    ),
    "reasons": (
        lambda d: d["targets"][0]["probes"][0].update(reasons=["reuse_without_hit"]),
        "targets[0].probes[0] (chat-40-r1): reasons say reuse_without_hit; the answers give none",
    ),
    "a comparison": (
        lambda d: d["targets"][0]["probes"][0]["comparisons"].pop(),
        "targets[0].probes[0] (chat-40-r1).comparisons: holds 1 entries, the answers give 2",
    ),
    "reuse": (lambda d: d["result"].update(reuse_tested=False), "result.reuse_tested: says false, the answers"),
    "generations": (
        lambda d: d["result"]["generations"].update(completed=23),
        "result.generations.completed: says 23, the answers give 24",
    ),
    "an answer's ids": (
        lambda d: d["arms"][1]["answers"][1]["generated_token_ids"].__setitem__(3, 1),
        "the answers give fail (difference_from_cold, difference_from_control)",
    ),
    "an answer's prompt": (
        lambda d: d["arms"][0]["answers"][0].update(submitted_sha256="0" * 64),
        "control.probes[0] (chat-40-r1): verdict says pass, the answers give inconclusive (submitted_ids_differ)",
    ),
    "a hit": (
        lambda d: d["arms"][1]["answers"][1].update(cached_tokens=0, cached_tokens_external=0),
        "the answers give inconclusive (",
    ),
    "a missing answer": (
        lambda d: d["arms"][1]["answers"].pop(),
        "arms[1] (lmcache_connector_v1): says complete, and 1 of its answers are missing",
    ),
    "an answer twice": (
        lambda d: d["arms"][1]["answers"].insert(2, d["arms"][1]["answers"][1]),
        "arms[1] (lmcache_connector_v1).answers[2] (chat-40-r1, reuse 1): is there twice",
    ),
    "answers in another order": (
        lambda d: d["arms"][1]["answers"].insert(0, d["arms"][1]["answers"].pop(1)),
        "or comes after an answer that it precedes",
    ),
    "an answer of no probe": (
        lambda d: d["arms"][1]["answers"][0].update(probe="other"),
        "answers[0] (other, cold 0): the plan asks for no such answer",
    ),
    "a control's answer in a target": (
        lambda d: d["arms"][1]["answers"].append(d["arms"][0]["answers"][0]),
        "(chat-40-r1, control 0): the plan asks for no such answer",
    ),
    "a running arm": (lambda d: d["arms"][1].update(state="running"), "is running in a run that has ended"),
    "a pending arm": (lambda d: d["arms"][1].update(state="pending"), "is pending, but holds"),
    "a log": (lambda d: d["arms"][1].update(log="x.log"), 'its log "x.log" is not among the evidence'),
    "the engine inside": (
        lambda d: d["arms"][2]["effective"].update(prefix_caching=False),
        "targets[1]: verdict says pass, the answers give inconclusive",
    ),
    "changed files": (
        lambda d: d["identity"]["model"].update(unchanged_at_end=False),
        'result.verdict: says "pass", the answers give "inconclusive"',
    ),
    "an error": (
        lambda d: d["errors"].append({"stage": "a", "message": "b"}),
        'result.verdict: says "pass", the answers give "inconclusive"',
    ),
}


@pytest.mark.parametrize(("edit", "says"), LIES.values(), ids=LIES.keys())
def test_every_lie_is_named(passing: Document, folder: Path, edit: Edit, says: str) -> None:
    edit(passing)
    reasons = check(passing, folder)
    assert any(says in reason for reason in reasons), reasons
    assert all(reason.isprintable() for reason in reasons)


def test_files_of_a_local_directory_have_to_give_its_digest(passing: Document, folder: Path) -> None:
    sha = "dc1114cc074914bd872cc1f9a23ec910ea2203bc79779ab2e17da25782a624fc"
    identity = make_identity("model") | {
        "kind": "local_directory",
        "revision": None,
        "files": [{"path": "config.json", "bytes": 2, "sha256": sha}],
        "files_sha256": "0" * 64,
        "unchanged_at_end": True,
    }
    passing["identity"]["model"] = identity
    (reason,) = check(passing, folder)
    assert reason.startswith(f"identity.model.files_sha256: says {'0' * 64}, the files give ")
    identity["files_sha256"] = reason.rsplit(" ", 1)[1]
    assert check(passing, folder) == []
    identity["files"].append(identity["files"][0])
    assert 'identity.model.files: the path "config.json" is there twice' in check(passing, folder)


def places(node: object, prefix: Place = ()) -> Iterator[Place]:
    """Walk through every place of a JSON value, the root left out."""
    items: Any = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*prefix, key)
        yield from places(value, (*prefix, key))


def at(document: object, place: Place) -> Any:
    for step in place:
        document = document[step]  # type: ignore[index]
    return document


def put(document: Document, place: Place, value: object) -> None:
    at(document, place[:-1])[place[-1]] = value


DERIVED_FROM = ("control", "targets", "result")


def flipped(place: Place, value: object) -> object:
    """Give another value of the same kind, so that the schema alone does not find it."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if place[-1] == "verdict":
        return "fail" if value != "fail" else "inconclusive"
    if isinstance(value, str) and len(value) == 64:
        return ("0" if value[0] != "0" else "1") + value[1:]
    return None


def flippable(document: Document) -> list[Place]:
    """Every id, count, verdict and digest that has to be what the rest of the report says."""
    found = []
    for place in places(document):
        checked = place[0] in {*DERIVED_FROM, "evidence"} or place[:2] == ("plan", "probes")
        if place[0] == "arms" and "answers" in place:
            checked = "generated_token_ids" in place or "cached_tokens" in str(place[-1]) or "sha256" in str(place[-1])
        if place[0] == "plan" and isinstance(place[-1], str):
            checked = checked or place[-1] not in {"eos_token_ids", "probes"}
        if checked and flipped(place, at(document, place)) is not None:
            found.append(place)
    return found


def test_every_flipped_id_count_verdict_and_digest_is_caught(passing: Document, folder: Path) -> None:
    tried = flippable(passing)
    assert len(tried) > 700
    for place in tried:
        value = at(passing, place)
        put(passing, place, flipped(place, value))
        reasons = check_document(passing) if place[0] != "evidence" else check(passing, folder)
        assert reasons, place
        put(passing, place, value)
    assert check(passing, folder) == []


def test_every_flip_in_a_failing_report_is_caught_up_to_its_difference(failing: Document) -> None:
    # From its first difference on, a reuse's ids have nothing to agree with: any others are as different.
    def free(place: Place) -> bool:
        reuse = "generated_token_ids" in place and at(failing, place[:4])["role"] == "reuse"
        return reuse and place[1] == 1 and int(place[-1]) >= 7

    tried = [place for place in flippable(failing) if place[0] not in {"plan", "evidence"} and not free(place)]
    assert len(tried) > 200
    for place in tried:
        value = at(failing, place)
        put(failing, place, flipped(place, value))
        assert check_document(failing), place
        put(failing, place, value)


ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "pass", "fail", "control", "reuse", "..", "/", "chat-40-r1", "\x1b[31m", "a\nb", "0" * 64])
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_mutation_of_a_report_crashes_or_is_believed(reports: dict[str, Document], folder: Path, data: Any) -> None:
    document = copy.deepcopy(reports[data.draw(st.sampled_from(sorted(reports)))])
    before = document["result"]["verdict"]
    for _ in range(data.draw(st.integers(1, 3))):
        place = draw_place(data, document)
        kind = data.draw(st.sampled_from(["replace", "delete", "add", "repeat"]))
        parent = at(document, place[:-1])
        if kind == "delete":
            del parent[place[-1]]
        elif kind == "add" and isinstance(parent, dict):
            parent[data.draw(st.text(max_size=8))] = data.draw(ANY_JSON)
        elif kind == "repeat" and isinstance(parent, list):
            parent.insert(int(place[-1]), copy.deepcopy(parent[int(place[-1])]))
        else:
            parent[place[-1]] = data.draw(ANY_JSON)
    reasons = check(document, folder)
    assert all(isinstance(reason, str) and reason.isprintable() and len(reason) < 2000 for reason in reasons), reasons
    if reasons:
        assert_not_shown_as_sound(document, folder)
    else:
        # What can change without a contradiction (a device's name) changes no verdict.
        assert document["result"]["verdict"] == before
        assert render(document, folder / "x.json", "text").startswith(before.upper().replace("_", " "))
        render(document, folder / "x.json", "markdown")


def draw_place(data: Any, document: Document) -> Place:
    """Go down from the root step by step, so that short sections are drawn as often as long ones."""
    place: Place = ()
    node: object = document
    while isinstance(node, dict | list) and node and (not place or data.draw(st.sampled_from([True, True, False]))):
        step = data.draw(st.sampled_from(list(node) if isinstance(node, dict) else list(range(len(node)))))
        place = (*place, step)
        node = node[step]
    return place


def assert_not_shown_as_sound(document: Document, folder: Path) -> None:
    if check_document(document):
        with pytest.raises(ReportError, match="not a sound report"):
            render(document, folder / "x.json", "text")


@settings(max_examples=200, deadline=None)
@given(document=ANY_JSON)
def test_no_json_value_at_all_crashes(document: object) -> None:
    assert check(document, Path("nowhere"))


class TestEvidence:
    @pytest.fixture
    def report(self, tmp_path: Path) -> Document:
        return make_report(tmp_path / "report.json", plan=make_plan((40,), (1,)))[0]

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        return tmp_path / "report.evidence"

    def test_changed_content(self, report: Document, directory: Path) -> None:
        (directory / "control.log").write_text("engine output of controL\n")
        (reason,) = check(report, directory.parent)
        assert reason.startswith('evidence.files[0] ("control.log"): the report says sha256 ')

    def test_changed_size(self, report: Document, directory: Path) -> None:
        (directory / "control.log").write_text("")
        size, digest = check(report, directory.parent)
        assert size == 'evidence.files[0] ("control.log"): the report says 25 bytes, the file has 0'
        assert "sha256" in digest

    def test_missing_file(self, report: Document, directory: Path) -> None:
        (directory / "control.log").unlink()
        assert check(report, directory.parent) == ['evidence.files[0] ("control.log"): is missing on disk']

    def test_file_that_is_not_listed(self, report: Document, directory: Path) -> None:
        (directory / "sub").mkdir()
        (directory / "sub" / "new\n.log").write_text("")
        (directory / "link").symlink_to("control.log")
        assert check(report, directory.parent) == [
            'evidence: "link" is in the directory and not in the report',
            'evidence: "sub/new\\n.log" is in the directory and not in the report',
        ]

    def test_running_report_may_have_more_evidence_than_it_lists(self, report: Document, directory: Path) -> None:
        report.update(state="running")
        report["evidence"]["files"] = []
        report["result"].update(verdict="inconclusive", exit_status=2)
        assert check(report, directory.parent) == []

    def test_missing_directory(self, report: Document, directory: Path) -> None:
        shutil.rmtree(directory)
        (reason,) = check(report, directory.parent)
        assert reason == 'evidence.directory: "report.evidence" is missing, not a directory beside the report'

    def test_directory_that_is_a_link(self, report: Document, directory: Path) -> None:
        directory.rename(directory.with_name("elsewhere"))
        directory.symlink_to("elsewhere")
        (reason,) = check(report, directory.parent)
        assert "is a link, not a directory" in reason

    @pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "sub/../control.log", "./control.log", "a//b", "a/"])
    def test_paths_that_lead_out_are_not_opened(self, report: Document, directory: Path, path: str) -> None:
        (directory.parent / "secret").write_text("secret")
        report["evidence"]["files"].append({"path": path, "bytes": 6, "sha256": "0" * 64})
        reasons = check(report, directory.parent)
        (reason,) = reasons
        assert reason.startswith(f"evidence.files[2] ({json.dumps(path)}): leads out of the evidence directory")

    def test_links_in_the_directory_are_not_followed(self, report: Document, directory: Path) -> None:
        (directory / "control.log").unlink()
        (directory / "control.log").symlink_to("/etc/passwd")
        (directory / "sub").symlink_to("/etc")
        report["evidence"]["files"].append({"path": "sub/passwd", "bytes": 6, "sha256": "0" * 64})
        assert check(report, directory.parent) == [
            'evidence.files[0] ("control.log"): is a link on disk',
            'evidence.files[2] ("sub/passwd"): is a link on disk',
            'evidence: "sub" is in the directory and not in the report',
        ]

    def test_what_is_no_file_or_has_no_possible_name(self, report: Document, directory: Path) -> None:
        (directory / "sub").mkdir()
        for path in ("sub", "nul\0", "x" * 300, "\ud800"):
            report["evidence"]["files"].append({"path": path, "bytes": 6, "sha256": "0" * 64})
        kinds = [reason.rsplit(": ", 1)[1] for reason in check(report, directory.parent)]
        assert kinds == ["is directory on disk", *["is unreadable on disk"] * 3]

    def test_file_that_is_listed_twice(self, report: Document, directory: Path) -> None:
        report["evidence"]["files"].append(report["evidence"]["files"][0])
        assert check(report, directory.parent) == ['evidence.files[2] ("control.log"): is listed twice']

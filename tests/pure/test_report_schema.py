import copy
import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from kvverify.report.document import Document
from kvverify.report.schema import NAME, load, shown, validate

from .report_factory import CONTROL, LMCACHE, NATIVE, make_report

ROOT = Path(__file__).resolve().parents[2]
OPEN = {"request", "packages", "variables", "effective", "kv_layout", "connector", "acceptance"}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Document:
    return make_report(tmp_path_factory.mktemp("schema") / "report.json", (CONTROL, LMCACHE, NATIVE))[0]


def objects(node: object, name: str = "report") -> Iterator[tuple[str, Document]]:
    """Find every object that the schema describes, but not what only narrows one (allOf)."""
    if isinstance(node, dict):
        if "properties" in node:
            yield name, node
        for key, value in node.items():
            if key in {"properties", "$defs"}:
                for member, schema in value.items():
                    yield from objects(schema, member)
            elif key in {"items", "additionalProperties"}:
                yield from objects(value, name)


def test_published_schema_is_the_one_that_ships() -> None:
    assert json.loads((ROOT / "schemas" / NAME).read_text()) == load()


def test_schema_is_valid_draft_2020_12() -> None:
    assert load()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(load())


def test_every_member_is_described_and_only_named_objects_are_open() -> None:
    found = dict(objects(load()))
    assert len(found) > 20
    for name, schema in found.items():
        assert schema.get("additionalProperties") is False or name in OPEN, name
        assert schema["description"].endswith("."), name
        for member, content in schema["properties"].items():
            described = content if "description" in content else load()["$defs"][content["$ref"].rsplit("/", 1)[1]]
            assert described["description"].endswith("."), (name, member)


def test_no_member_is_about_speed_or_cost() -> None:
    names = {member for _, schema in objects(load()) for member in schema["properties"]}
    for word in ("latency", "cost", "throughput", "seconds", "duration", "time", "price", "speed"):
        assert not [name for name in names if word in name.split("_")], word


def test_reports_of_every_kind_fit_also_a_plain_validator(report: Document) -> None:
    assert validate(report) == []
    jsonschema.Draft202012Validator(load()).validate(report)


WRONG = [
    ("claim_eligible", True, "claim_eligible: is true and must be false"),
    ("claim_eligible", 0, "claim_eligible: is 0 and must be "),
    ("schema", "v2", 'schema: is "v2" and must be "efim.kv-reuse-verification.v1"'),
    ("state", "done", 'state: is "done" and must be "running" or "complete" or "interrupted"'),
    ("result.exit_status", 2, "result.exit_status: is 2 and must be 0"),
    ("result.exit_status", False, "result.exit_status: is false and must be"),
    ("result.generations.completed", 42.0, "is 42.0 and must be of type integer"),
    ("result.generations.completed", None, "is null and must be of type integer"),
    ("arms.1.tier", "local", 'arms[1].tier: is "local" and must be "external"'),
    ("arms.0.tier", "local", 'arms[0].tier: is "local" and must be null'),
    ("arms.1.answers.0.cached_tokens", -1, "arms[1].answers[0].cached_tokens: is -1 and must be at least 0"),
    ("arms.1.answers.0.cached_tokens", True, "is true and must be of type integer or null"),
    ("arms.1.answers.0.generated_token_ids.3", "7", 'generated_token_ids[3]: is "7" and must be of type integer'),
    ("arms.1.answers.0.generated_token_ids.3", 2**31, "must be at most 2147483647"),
    ("arms.1.answers.0.submitted_sha256", "abc", 'submitted_sha256: is "abc", and must be: Digest'),
    ("plan.probes", [], "plan.probes: has length 0 and must have at least 1"),
    ("plan.reuse_counts", [1, 1], "plan.reuse_counts: is [1, 1] and must hold no entry twice"),
    ("plan.manifest_sha256", "A" * 64, "must match"),
    ("run_id", "x", "run_id: "),
    ("created_at", "yesterday", "created_at: "),
    ("identity.model.kind", "local_directory", "identity.model.revision: "),
    ("latency_seconds", 1, "report: has members that a report does not have"),
    ("arms.0.seconds", 1, "arms[0]: has members that a report does not have"),
    ("evidence.directory", "../x.evidence", "evidence.directory: "),
]


@pytest.mark.parametrize(("place", "value", "says"), WRONG)
def test_says_what_does_not_fit_and_where(report: Document, place: str, value: object, says: str) -> None:
    document = copy.deepcopy(report)
    *path, last = [int(step) if step.isdecimal() else step for step in place.split(".")]
    at: object = document
    for step in path:
        at = at[step]
    at[last] = value
    reasons = validate(document)
    assert any(says in reason for reason in reasons), reasons
    assert all(len(reason) < 400 and reason.isprintable() for reason in reasons)


@pytest.mark.parametrize("state", ["running", "interrupted"])
def test_only_a_complete_run_passes(report: Document, state: str) -> None:
    reasons = validate({**report, "state": state})
    assert reasons == ['result.verdict: is "pass" and must be "fail" or "inconclusive"']


def test_every_member_is_required(report: Document) -> None:
    for name in report:
        reasons = validate({key: value for key, value in report.items() if key != name})
        assert f"report: the member '{name}' is missing" in reasons


@pytest.mark.parametrize("value", [None, True, 0, 1.5, "report", [], [[]], {}, {"schema": None}])
def test_any_json_value_gives_reasons(value: object) -> None:
    assert validate(value)


def test_long_and_odd_values_are_shown_short_and_plain() -> None:
    assert shown("\x1b[31m\n") == '"\\u001b[31m\\n"'
    assert len(shown(list(range(10_000)))) == 60
    assert shown(object()) == "object"

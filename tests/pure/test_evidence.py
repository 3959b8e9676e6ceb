"""Every recorded run that is committed must be sound: its verdicts follow from its raw answers and evidence files."""

import json
from pathlib import Path

import pytest

from kvverify.report.fixture import check_fixture
from kvverify.report.load import load_report
from kvverify.report.rederive import check

ROOT = Path(__file__).resolve().parents[2]
REPORTS = sorted((ROOT / "evidence").glob("*/*.json"))
FIXTURES = sorted((ROOT / "fixtures").glob("*.json"))


def test_there_is_recorded_evidence():
    assert len(REPORTS) >= 7


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_a_recorded_run_is_sound(report: Path):
    assert check(load_report(report), report.parent) == []


@pytest.mark.parametrize("report", [path for path in REPORTS if "lmcache" in path.stem], ids=lambda path: path.stem)
def test_lmcache_fails_every_probe_where_native_caching_passes_them_all(report: Path):
    targets = {target["name"]: target["probes"] for target in json.loads(report.read_text())["targets"]}
    assert [probe["verdict"] for probe in targets["lmcache_connector_v1"]] == ["fail"] * 4
    assert [probe["verdict"] for probe in targets["native_prefix_caching"]] == ["pass"] * 4


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
def test_a_shipped_fixture_is_sound(fixture: Path):
    assert check_fixture(load_report(fixture)) == []

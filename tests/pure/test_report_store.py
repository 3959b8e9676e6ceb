import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvverify.errors import ReportError, UsageError
from kvverify.report.rederive import check
from kvverify.report.store import ReportStore, serialise

from .report_factory import CONTROL, make_report, run_arm, start


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of its own with room for 256 KiB: what fills up there is really full."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"NOT TESTED here: a full and a read-only disk, because mount needs root ({made.stderr.strip()})")
    yield folder
    subprocess.run(["umount", folder], check=True)


def everything_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_check_leaves_nothing_behind_and_create_makes_the_evidence_directory(tmp_path: Path) -> None:
    store = ReportStore(tmp_path / "report.json")
    store.check()
    assert everything_in(tmp_path) == []
    store.create()
    assert everything_in(tmp_path) == ["report.evidence"]


@pytest.mark.parametrize(
    ("name", "evidence"),
    [("report.json", "report.evidence"), ("report", "report.evidence"), ("a.b.json", "a.b.evidence")],
)
def test_evidence_directory_is_named_after_the_report(tmp_path: Path, name: str, evidence: str) -> None:
    assert ReportStore(tmp_path / name).evidence == tmp_path / evidence


def refusal(report: Path) -> str:
    with pytest.raises(UsageError) as caught:
        ReportStore(report).check()
    message = str(caught.value)
    assert message.startswith("--report: ")
    assert caught.value.remedy
    assert "\n" not in message
    with pytest.raises(UsageError):
        ReportStore(report).create()
    return message


def test_refuses_what_exists_and_leaves_it_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("mine")
    assert "is never overwritten" in refusal(tmp_path / "report.json")
    assert (tmp_path / "report.json").read_text() == "mine"
    (tmp_path / "other.evidence").mkdir()
    assert "evidence directory" in refusal(tmp_path / "other.json")
    (tmp_path / "dangling.json").symlink_to(tmp_path / "nowhere")
    assert "is never overwritten" in refusal(tmp_path / "dangling.json")
    (tmp_path / "link.evidence").symlink_to(tmp_path / "nowhere")
    assert "is never overwritten" in refusal(tmp_path / "link.json")


def test_refuses_folders_and_places_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "file").write_text("")
    assert "is a folder" in refusal(tmp_path / "folder.json")
    assert "is a folder" in refusal(Path())
    assert "is a folder" in refusal(tmp_path / "..")
    assert "does not exist" in refusal(tmp_path / "missing" / "report.json")
    assert not (tmp_path / "missing").exists()
    assert "is not a folder" in refusal(tmp_path / "file" / "report.json")
    assert "cannot be used" in refusal(tmp_path / ("long" * 100))
    assert "does not exist" in refusal(tmp_path / "file" / "below" / "report.json")
    assert "cannot be used" in refusal(tmp_path / "nul\0.json")


def test_refuses_a_read_only_disk_even_for_root(mount: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", mount], check=True)
    assert "cannot be written to" in refusal(mount / "report.json")


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED here: only root can become another user")
def test_refuses_a_folder_without_permission(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o555)
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o011)
    nobody = 65534
    os.seteuid(nobody)
    try:
        with pytest.raises(UsageError, match="cannot be written to"):
            ReportStore(folder / "report.json").check()
    finally:
        os.seteuid(0)


def test_only_one_of_two_runs_gets_a_name(tmp_path: Path) -> None:
    first, second = ReportStore(tmp_path / "report.json"), ReportStore(tmp_path / "report.json")
    first.check()
    second.check()
    first.create()
    with pytest.raises(UsageError, match="--report"):
        second.create()


def test_a_run_that_was_overtaken_after_its_check_gets_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ReportStore(tmp_path / "report.json").create()
    late = ReportStore(tmp_path / "report.json")
    monkeypatch.setattr(late, "check", lambda: None)  # it was passed just before the other run began
    with pytest.raises(UsageError, match="created by another run meanwhile"):
        late.create()


def test_a_disk_that_turns_read_only_is_a_report_error(mount: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ReportStore(mount / "report.json")
    monkeypatch.setattr(store, "check", lambda: None)  # it was passed while the disk was still writable
    subprocess.run(["mount", "-o", "remount,ro", mount], check=True)
    with pytest.raises(ReportError, match="Read-only file system; check the folder"):
        store.create()


def test_writes_replace_each_other_whole_and_leave_no_temporary_file(tmp_path: Path) -> None:
    store = ReportStore(tmp_path / "report.json")
    store.create()
    for number in range(3):
        store.write({"number": number})
        assert json.loads(store.report.read_text()) == {"number": number}
    assert everything_in(tmp_path) == ["report.evidence", "report.json"]


def test_reports_are_as_readable_as_the_umask_lets_them_be(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = ReportStore(tmp_path / "report.json")
        store.write({})
    finally:
        os.umask(before)
    assert store.report.stat().st_mode & 0o777 == 0o644


def test_serialise_keeps_integer_lists_on_a_line_and_every_value() -> None:
    document = {"ids": [1, -2, 30], "empty": [], "mixed": [1, "a"], "text": "[\n  1,\n  2\n]", "nested": [[1], [2]]}
    text = serialise(document).decode("ascii")
    assert '"ids": [1, -2, 30]' in text
    assert json.loads(text) == document


def test_values_that_json_does_not_have_are_not_written(tmp_path: Path) -> None:
    store = ReportStore(tmp_path / "report.json")
    with pytest.raises(ValueError, match="JSON"):
        store.write({"number": float("nan")})
    assert everything_in(tmp_path) == []


def test_full_disk_keeps_the_last_report_whole(mount: Path) -> None:
    store = ReportStore(mount / "report.json")
    store.create()
    recorder = start(store)
    run_arm(recorder, store, CONTROL)
    before = store.report.read_bytes()
    log = store.evidence_path("filler.log")
    with pytest.raises(OSError, match="No space left"):
        log.write_bytes(b"\0" * (1 << 20))
    with pytest.raises(ReportError) as caught:
        recorder.arm_state(CONTROL, "complete", error="one more line")
    assert "No space left on device" in str(caught.value)
    assert "free some space" in caught.value.remedy
    assert store.report.read_bytes() == before
    assert everything_in(mount) == ["report.evidence", "report.json"]
    assert check(json.loads(before), mount) == []
    log.unlink()
    recorder.finish("interrupted")
    assert check(json.loads(store.report.read_text()), mount) == []


def test_refuses_a_disk_that_is_full_from_the_start(mount: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (mount / "filler").write_bytes(b"\0" * (1 << 20))
    assert "No space left" in refusal(mount / "report.json")
    assert everything_in(mount) == ["filler"]


def test_a_folder_that_disappears_is_a_report_error(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    store = ReportStore(folder / "report.json")
    store.create()
    store.evidence.rmdir()
    folder.rmdir()
    with pytest.raises(ReportError, match="cannot be written"):
        store.write({})


@pytest.mark.parametrize("name", ["", "..", "../x", "a/../b", "/etc/x", ".hidden", "a//b", "a\nb", "a/.", "a\\b"])
def test_evidence_names_stay_in_the_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="evidence"):
        ReportStore(tmp_path / "report.json").evidence_path(name)


def test_seal_lists_what_is_there_sorted_and_without_links(tmp_path: Path) -> None:
    store = ReportStore(tmp_path / "report.json")
    store.create()
    store.save("plan.json", {"a": 1})
    store.evidence_path("b.log").write_bytes(b"log\n")
    (store.evidence / "sub").mkdir()
    store.evidence_path("sub/c.log").write_bytes(b"")
    (store.evidence / "link").symlink_to("b.log")
    contents = {"b.log": b"log\n", "plan.json": b'{\n  "a": 1\n}\n', "sub/c.log": b""}
    assert store.seal() == [
        {"path": path, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for path, content in contents.items()
    ]


def test_a_directory_that_is_gone_cannot_be_sealed_into_a_sound_report(tmp_path: Path) -> None:
    document, store = make_report(tmp_path / "report.json")
    for path in store.evidence.iterdir():
        path.unlink()
    store.evidence.rmdir()
    assert check(document, tmp_path) == [
        'evidence.directory: "report.evidence" is missing, not a directory beside the report'
    ]

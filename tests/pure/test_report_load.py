import os
from pathlib import Path

import pytest

from kvverify.errors import ReportError
from kvverify.report.load import MOST_LEVELS, load_report
from kvverify.report.store import serialise

from .report_factory import make_report


def refusal(path: Path) -> str:
    with pytest.raises(ReportError) as caught:
        load_report(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message or repr(str(path)) in message
    assert caught.value.remedy
    assert len(caught.value.problem) - len(str(path)) < 200
    return message


def test_reads_what_the_store_wrote(tmp_path: Path) -> None:
    document, store = make_report(tmp_path / "report.json")
    assert load_report(store.report) == document


BAD = {
    "empty": (b"", "Expecting value at line 1"),
    "text": (b"PASS", "Expecting value"),
    "half": (serialise({"a": [1, 2, 3]})[:-5], "at line"),
    "two values": (b"{} {}", "Extra data"),
    "not UTF-8": (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf{}", "BOM"),
    "NaN": (b'{"a": NaN}', "NaN is not JSON"),
    "infinity": (b'{"a": -Infinity}', "-Infinity is not JSON"),
    "out of range": (b'{"a": 1e999}', "1e999 is out of range"),
    "huge integer": (b'{"a": ' + b"9" * 5000 + b"}", "digits"),
    "a name twice": (b'{"a": 1, "b": {"c": 1, "c": 2}}', '"c" is there twice'),
    "half a character": (b'{"a": "\\ud800"}', "surrogate"),
    "half a character in a name": (b'{"\\udfff": 1}', "surrogate"),
    "deep": (b'{"a":' * (MOST_LEVELS + 5) + b"1" + b"}" * (MOST_LEVELS + 5), "deeper than"),
    "very deep": (b"[" * 1_000_000, "deeper than"),
    "control character": (b'{"a": "\x01"}', "control character"),
}


@pytest.mark.parametrize(("content", "says"), BAD.values(), ids=BAD.keys())
def test_refuses_what_is_not_json_in_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content)
    assert says in refusal(path)


def test_reads_strings_of_any_script(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text('{"a": "é\\ud83d\\ude00"}', encoding="utf-8")
    assert load_report(path) == {"a": "é\N{GRINNING FACE}"}


def test_refuses_what_is_no_file(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "missing.json")
    assert "Is a directory" in refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refusal(tmp_path / "pipe")
    assert "not a regular file" in refusal(Path("/dev/zero"))
    assert "cannot be" in refusal(tmp_path / "nul\0")


def test_refuses_more_than_a_report_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvverify.report.load.MOST_BYTES", 1 << 20)
    path = tmp_path / "report.json"
    path.write_bytes(b" " * (1 << 20) + b"{}")
    assert "larger than 1 MiB" in refusal(path)

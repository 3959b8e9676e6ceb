"""The demo model is whole or not there: never half made, never another file, never made of something else."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "smollm2.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("smollm2", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_offline(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "UV_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, SCRIPT, folder], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def copy(smollm2: Path, tmp_path: Path) -> Path:
    """A copy of the model whose files can be replaced; the weights are linked, never written through."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in smollm2.iterdir():
        if path.name == "model.safetensors":
            (folder / path.name).symlink_to(path)
        else:
            shutil.copy(path, folder)
    return folder


def test_a_whole_model_is_used_as_it_is(copy: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in copy.iterdir()}
    run = run_offline(copy)
    assert (run.returncode, run.stdout, run.stderr) == (0, f"{copy}\n", "")
    assert {path: path.stat().st_mtime_ns for path in copy.iterdir()} == before


def test_every_kind_of_damage_is_named(script: ModuleType, copy: Path) -> None:
    assert script.faults(copy) == []
    (copy / "config.json").write_text("{}")
    (copy / "tokenizer.json").unlink()
    (copy / "pytorch_model.bin").touch()
    changed, missing, extra = (
        "config.json has sha256",
        "tokenizer.json is missing",
        "pytorch_model.bin does not",
    )
    found = "\n".join(script.faults(copy))
    assert all(part in found for part in (changed, missing, extra))


def test_without_network_a_new_model_is_an_error_and_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "model"
    run = run_offline(folder)
    assert run.returncode == 2
    assert run.stdout == ""
    assert "demo-model.lock could not be fetched" in run.stderr
    assert [path.name for path in folder.parent.iterdir()] == [".model.lock"]


def test_a_damaged_model_stays_in_place_until_a_whole_one_can_replace_it(copy: Path) -> None:
    (copy / "tokenizer.json").write_text("{}")
    run = run_offline(copy)
    assert run.returncode == 2
    assert (copy / "tokenizer.json").read_text() == "{}"
    assert sorted(path.name for path in copy.parent.iterdir()) == [".model.lock", "model"]


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.txt").write_text("years of work")
    run = run_offline(folder)
    assert run.returncode == 2
    assert "holds something else" in run.stderr
    assert (folder / "chapter.txt").read_text() == "years of work"


def test_only_the_known_file_is_converted(script: ModuleType, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    with pytest.raises(script.ModelError, match=r"other\.gguf has sha256"):
        script.convert(other, tmp_path)


def test_the_cache_folder_follows_xdg(script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert script.default_folder() == tmp_path / "kvverify" / "smollm2-135m-instruct"
    monkeypatch.setenv("XDG_CACHE_HOME", "")  # the XDG specification: empty means unset
    monkeypatch.setenv("HOME", str(tmp_path))
    assert script.default_folder() == tmp_path / ".cache" / "kvverify" / "smollm2-135m-instruct"


@pytest.mark.parametrize("arguments", [["--help"], ["a", "b"]])
def test_wrong_use_is_told(arguments: list[str]) -> None:
    run = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr.startswith("usage: ")

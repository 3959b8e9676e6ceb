"""Which model exactly: the hashes of a folder, a commit of the hub, and whether anything was written since."""

import hashlib
import os
from pathlib import Path

import huggingface_hub.constants
import pytest

from kvverify.errors import PreflightError, UsageError
from kvverify.target.identity import check_model, hash_folder, model_limit, resolve

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    (model / "sub" / "deeper").mkdir(parents=True)
    for name, content in {"b.json": "b", "a.txt": "a", "sub/z": "", "sub/deeper/c": "c" * 5000, "B": "capital"}.items():
        (model / name).write_text(content)
    return model


def test_files_are_sorted_and_hashed_one_by_one(folder):
    files = hash_folder(folder)
    assert [file.path for file in files] == ["B", "a.txt", "b.json", "sub/deeper/c", "sub/z"]
    for file in files:
        content = (folder / file.path).read_bytes()
        assert (file.size, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_the_hash_of_the_whole_is_that_of_the_list_and_does_not_depend_on_where_it_lies(folder, tmp_path):
    first = resolve("model", str(folder), None)
    assert first.files_sha256 == resolve("tokenizer", str(folder), None).files_sha256
    moved = folder.rename(tmp_path / "elsewhere")
    os.utime(moved / "a.txt", (1, 1))
    assert resolve("model", str(moved), None).files_sha256 == first.files_sha256
    listed = "".join(f"{file.sha256}  {file.path}\n" for file in first.files)
    assert first.files_sha256 == hashlib.sha256(listed.encode()).hexdigest()


@pytest.mark.parametrize("change", ["content", "name", "added", "removed"])
def test_another_content_has_another_hash(folder, change):
    before = resolve("model", str(folder), None).files_sha256
    if change == "content":
        (folder / "a.txt").write_text("A")
    elif change == "name":
        (folder / "a.txt").rename(folder / "a.md")
    elif change == "added":
        (folder / "empty").write_text("")
    else:
        (folder / "sub" / "z").unlink()
    assert resolve("model", str(folder), None).files_sha256 != before


def test_the_report_holds_what_was_asked_and_what_it_is(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    identity = resolve("model", "model", None).to_json()
    assert identity["requested"] == "model"
    assert identity["resolved"] == str(folder)
    assert identity["kind"] == "local_directory"
    assert identity["revision"] is None
    assert identity["unchanged_at_end"] is None
    assert [set(file) for file in identity["files"]] == [{"path", "bytes", "sha256"}] * 5


def test_a_version_controlled_folder_is_hashed_without_its_history(folder):
    (folder / ".git").mkdir()
    (folder / ".git" / "index").write_text("x")
    assert not any(file.path.startswith(".git") for file in hash_folder(folder))


def test_links_are_followed(folder, tmp_path):
    (tmp_path / "blob").write_text("far away")
    (folder / "a.txt").unlink()
    (folder / "a.txt").symlink_to(tmp_path / "blob")
    (named,) = [file for file in hash_folder(folder) if file.path == "a.txt"]
    assert named.size == len("far away")


def test_a_folder_that_nobody_touched_is_unchanged(folder):
    identity = resolve("model", str(folder), None)
    (folder / "a.txt").read_text()
    assert identity.unchanged() is True


def overwrite(folder: Path) -> None:
    (folder / "a.txt").write_text("A")


def touch(folder: Path) -> None:
    (folder / "a.txt").touch()


def restore(folder: Path) -> None:
    """Write something else and put everything back that a program can put back."""
    file = folder / "a.txt"
    content, status = file.read_bytes(), file.stat()
    file.write_bytes(b"other")
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace(folder: Path) -> None:
    """Put a file with the same content in its place."""
    (folder / "new").write_bytes((folder / "a.txt").read_bytes())
    (folder / "new").replace(folder / "a.txt")


def add(folder: Path) -> None:
    (folder / "sub" / "new").write_text("")


def remove(folder: Path) -> None:
    (folder / "sub" / "z").unlink()


def remove_all(folder: Path) -> None:
    folder.rename(folder.with_name("gone"))


def link_elsewhere(folder: Path) -> None:
    (folder / "a.txt").unlink()
    (folder / "a.txt").symlink_to(folder / "B")


CHANGES = [overwrite, touch, restore, replace, add, remove, remove_all, link_elsewhere]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_any_change_after_hashing_is_noticed(folder, change):
    identity = resolve("model", str(folder), None)
    change(folder)
    assert identity.unchanged() is False


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache as a download leaves it, without a network: one commit of one model."""
    snapshot = tmp_path / "hub" / "models--org--name" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return snapshot


def test_a_commit_of_the_hub_is_what_it_says_and_does_not_change(hub):
    identity = resolve("model", "org/name", COMMIT)
    assert identity.folder == hub
    assert check_model(identity)["architectures"] == ["LlamaForCausalLM"]
    assert identity.unchanged() is True
    assert identity.to_json() == {
        "requested": "org/name",
        "revision": COMMIT,
        "kind": "hub_commit",
        "resolved": f"org/name@{COMMIT}",
        "files": [],
        "files_sha256": None,
        "unchanged_at_end": None,
    }


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(("name", "commit"), [("org/name", "f" * 40), ("org/other", COMMIT)])
def test_a_commit_that_cannot_be_had_is_one_clear_line(name, commit):
    with pytest.raises(PreflightError, match=name) as refused:
        resolve("tokenizer", name, commit)
    assert "--tokenizer" in str(refused.value)
    assert commit in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "HF_TOKEN" in refused.value.remedy


@pytest.mark.parametrize("name", ["a/b/c", "/a/b", "a b/c", "../a/", "a"])
def test_what_is_neither_a_folder_nor_a_name_of_the_hub_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="--model"):
        resolve("model", name, COMMIT)


MOVABLE = [None, "", "main", "v1.0", "refs/pr/1", COMMIT[:-1], COMMIT + "0", COMMIT.upper(), "g" * 40, f"{COMMIT}\n"]


@pytest.mark.parametrize("revision", MOVABLE)
def test_a_revision_that_can_move_is_refused(revision, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="--model-revision"):
        resolve("model", "org/name", revision)


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ({"max_position_embeddings": 2048}, 2048),
        ({"n_positions": 1024}, 1024),
        ({"max_position_embeddings": 9, "text_config": {"max_position_embeddings": 4096}}, 4096),
        ({"max_position_embeddings": 9, "text_config": {"hidden_size": 1}}, 9),
        ({"max_position_embeddings": True, "n_positions": 7}, 7),
    ],
)
def test_the_limit_is_the_text_models_own(config, limit):
    assert model_limit(config) == limit

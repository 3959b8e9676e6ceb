"""Which model and tokenizer exactly: an immutable commit, or a directory whose files are hashed."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kvverify.errors import PreflightError, UsageError

Part = Literal["model", "tokenizer"]
_COMMIT = re.compile(r"[0-9a-f]{40}")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length")


@dataclass(frozen=True)
class FileHash:
    """One file of a hashed directory."""

    path: str
    """Relative to the directory, with forward slashes."""
    size: int
    """Bytes."""
    sha256: str
    mark: tuple[int, ...]
    """Inode, size and times of the file when it was hashed: equal marks mean that nobody wrote to it since."""


@dataclass(frozen=True)
class Identity:
    """A model or tokenizer as it was asked for and as it was resolved."""

    part: Part
    requested: str
    revision: str | None
    folder: Path
    """Where its files are."""
    files: tuple[FileHash, ...]
    """Every file of a local directory, sorted by path; empty for a hub commit, which names its content itself."""
    marks: Mapping[str, tuple[int, ...]]
    """The mark of every file when it was resolved, by path."""

    @property
    def files_sha256(self) -> str | None:
        """SHA-256 over the lines ``sha256  path`` of the files, None for a hub commit."""
        if self.revision is not None:
            return None
        return hashlib.sha256("".join(f"{file.sha256}  {file.path}\n" for file in self.files).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The identity as the report holds it; whether it is unchanged is known only at the end."""
        return {
            "requested": self.requested,
            "revision": self.revision,
            "kind": "local_directory" if self.revision is None else "hub_commit",
            "resolved": str(self.folder) if self.revision is None else f"{self.requested}@{self.revision}",
            "files": [{"path": f.path, "bytes": f.size, "sha256": f.sha256} for f in self.files],
            "files_sha256": self.files_sha256,
            "unchanged_at_end": None,
        }

    def unchanged(self) -> bool:
        """Whether the files are the ones that were resolved, and nobody wrote to one since.

        A file that was written and put back counts as changed: the engine may have read it in between. A local
        directory must hold no others either; a hub cache may be given more of the same commit meanwhile.
        """
        try:
            now = {path: _mark(self.folder / path) for path in _file_names(self.folder)}
        except OSError:
            return False
        if self.revision is not None:
            now = {path: mark for path, mark in now.items() if path in self.marks}
        return bool(now) and now == self.marks


def resolve(part: Part, name: str, revision: str | None) -> Identity:
    """Find a model or tokenizer and fix what it is; UsageError or PreflightError where that cannot be done.

    ``name`` is a local directory, or ``organisation/name`` on the hub with a 40-digit commit as ``revision``.
    """
    folder = Path(name)
    if not name:
        raise UsageError(f"--{part} is empty", "name a directory, or organisation/name of the model hub")
    if folder.is_dir():
        if revision is not None:
            raise UsageError(
                f"--{part}-revision: {name} is a local directory, which has no revision",
                "leave it out; it is hashed",
            )
        try:
            files = hash_folder(folder)
            return Identity(part, name, None, folder.resolve(), files, {file.path: file.mark for file in files})
        except OSError as error:  # most often a link into a hub cache that is not there any more
            raise PreflightError(
                f"--{part}: {error.filename} cannot be read ({error.strerror})", "complete the folder, or name another"
            ) from None
    if not _HUB_NAME.fullmatch(name) or folder.exists():
        raise UsageError(
            f"--{part}: {name} is no directory and no organisation/name of the model hub", "check the path"
        )
    if revision is None or not _COMMIT.fullmatch(revision):
        raise UsageError(
            f"--{part}-revision: {revision or 'none given'} for {name}, which is no local directory; on the hub, "
            "branches and tags can move",
            f"check the path, or give the commit of {name}: 40 lower-case hexadecimal digits",
        )
    snapshot = _download(part, name, revision)
    return Identity(
        part, name, revision, snapshot, (), {path: _mark(snapshot / path) for path in _file_names(snapshot)}
    )


def hash_folder(folder: Path) -> tuple[FileHash, ...]:
    """Size and SHA-256 of every file below ``folder``, sorted by path; links are followed."""
    files = []
    for path in _file_names(folder):
        mark = _mark(folder / path)
        with (folder / path).open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        files.append(FileHash(path, (folder / path).stat().st_size, digest, mark))
    return tuple(files)


def check_model(identity: Identity) -> dict[str, Any]:
    """The model's config.json; PreflightError where the folder holds no model."""
    file = identity.folder / "config.json"
    try:
        config = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise PreflightError(
            f"--model: {file} cannot be read ({error})", "name a model folder with a config.json"
        ) from None
    if not isinstance(config, dict) or "architectures" not in config:
        raise PreflightError(f"--model: {file} names no architecture", "name a folder in Hugging Face's model format")
    return config


def model_limit(config: dict[str, Any]) -> int:
    """The model's own limit of prompt and generated tokens together, from its configuration."""
    text = config.get("text_config")
    for source in (text if isinstance(text, dict) else {}, config):
        for key in _LENGTH_KEYS:
            if type(source.get(key)) is int and source[key] > 0:
                return int(source[key])
    raise PreflightError(
        "--model: its config.json tells no length limit, which --max-model-len is checked against",
        f"name a model whose config.json has one of {', '.join(_LENGTH_KEYS)}",
    )


def _file_names(folder: Path) -> list[str]:
    found = []
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if name != ".git"]
        found += [Path(parent, name).relative_to(folder).as_posix() for name in names]
    return sorted(found)


def _mark(file: Path) -> tuple[int, ...]:
    status = file.stat()
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _download(part: Part, name: str, revision: str) -> Path:
    # Comes with every engine; not needed to read a local directory, nor for validate and summary.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    files = ["*.json", "*.jinja", "*.model", "*.txt"] + (["*.safetensors"] if part == "model" else [])
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=files))
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError, ValueError) as error:
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise PreflightError(
            f"--{part}: {name} at {revision} cannot be had from the hub ({first_line})",
            "check the name, the commit, HF_TOKEN and the network, or mount a cache that holds it",
        ) from None

"""Whether the files beside a report are the evidence that it lists: no more, no less, and byte for byte."""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kvverify.report.schema import shown
from kvverify.report.store import size_and_sha256


def check_evidence(evidence: Mapping[str, Any], folder: Path, *, ended: bool) -> list[str]:
    """List what is wrong with the evidence of a report in ``folder``.

    ``evidence`` is the report's section and fits the schema. While a run has not ended its evidence grows, so that
    files which are not listed yet are no mistake then.
    """
    directory = folder / evidence["directory"]
    kind = _kind(directory)
    if kind != "directory":
        return [f"evidence.directory: {shown(evidence['directory'], 200)} is {kind}, not a directory beside the report"]
    reasons, listed = [], set()
    for place, file in enumerate(evidence["files"]):
        label = f"evidence.files[{place}] ({shown(file['path'], 200)})"
        if file["path"] in listed:
            reasons.append(f"{label}: is listed twice")
        listed.add(file["path"])
        reasons += [f"{label}: {reason}" for reason in _check_file(directory, file)]
    if ended:
        extra = sorted(set(_everything(directory)) - listed)
        reasons += [f"evidence: {shown(name, 200)} is in the directory and not in the report" for name in extra]
    return reasons


def _check_file(directory: Path, file: Mapping[str, Any]) -> Iterator[str]:
    """Compare one file; a path that could lead out of the directory is refused before anything is opened."""
    parts = file["path"].split("/")
    if any(part in {"", ".", ".."} for part in parts):
        yield "leads out of the evidence directory, or is not written in the one plain way"
        return
    path = directory
    for part in parts:
        path /= part
        kind = _kind(path)
        if kind != ("file" if part is parts[-1] and path == directory.joinpath(*parts) else "directory"):
            yield f"is {kind} on disk"
            return
    try:
        found = size_and_sha256(path)
    except OSError as error:
        yield f"cannot be read: {error.strerror}"
        return
    if found["bytes"] != file["bytes"]:
        yield f"the report says {file['bytes']} bytes, the file has {found['bytes']}"
    if found["sha256"] != file["sha256"]:
        yield f"the report says sha256 {file['sha256']}, the file has {found['sha256']}"


def _kind(path: Path) -> str:
    """Say what is at ``path`` itself; a link counts as a link, wherever it leads."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return "missing"
    except (OSError, ValueError):
        return "unreadable"
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "a link" if stat.S_ISLNK(mode) else "neither a file nor a directory"


def _everything(directory: Path) -> Iterator[str]:
    for parent, folders, names in os.walk(directory):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        for name in [*names, *links]:
            yield Path(parent, name).relative_to(directory).as_posix()

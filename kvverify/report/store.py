"""Where a report and its evidence lie on disk: never over something else, and never half written."""

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvverify.errors import ReportError, UsageError

_EVIDENCE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")


class ReportStore:
    """The report at ``report`` (``--report``) and the evidence directory beside it."""

    def __init__(self, report: Path) -> None:
        self.report = report
        self.evidence = report.parent / f"{report.name.removesuffix('.json')}.evidence"

    def check(self) -> None:
        """Refuse, with UsageError, a destination that a run could not write to; leaves nothing behind."""
        folder = self.report.parent
        if self.report.name in {"", ".", ".."} or _is_folder(self.report):
            raise UsageError(f"--report: {self.report} is a folder", "name a JSON file in it")
        if _status(folder) is None:
            raise UsageError(f"--report: the folder {folder} does not exist", "create it")
        if not folder.is_dir():
            raise UsageError(f"--report: {folder} is not a folder", "name a JSON file in a folder")
        for taken, what in ((self.report, "report"), (self.evidence, "evidence directory")):
            if _status(taken) is not None:
                raise UsageError(
                    f"--report: the {what} {taken} exists and is never overwritten",
                    "name another file, or move the old report and its evidence away",
                )
        _try_writing(folder)

    def create(self) -> None:
        """Check the destination again and create the evidence directory, which also takes the name."""
        self.check()
        try:
            self.evidence.mkdir()
        except FileExistsError:
            raise UsageError(
                f"--report: the evidence directory {self.evidence} was created by another run meanwhile",
                "name another file",
            ) from None
        except OSError as error:
            raise _not_written(self.evidence, error) from error

    def write(self, document: Mapping[str, Any]) -> None:
        """Replace the report on disk by ``document``, in one step that a crash cannot leave half done.

        Raises ReportError where that fails (a full disk): the report written before is still there, whole.
        """
        _write_atomically(self.report, serialise(document))

    def evidence_path(self, name: str) -> Path:
        """Give the path of an evidence file; a name that could leave the directory raises ValueError."""
        if not _EVIDENCE_NAME.fullmatch(name):
            raise ValueError(f"not the name of an evidence file: {name!r}")
        return self.evidence / name

    def save(self, name: str, document: Mapping[str, Any]) -> None:
        """Write ``document`` as an evidence file of that name, as atomically as the report itself."""
        _write_atomically(self.evidence_path(name), serialise(document))

    def seal(self) -> list[dict[str, Any]]:
        """List the evidence directory's files, sorted by path: each with its size in bytes and its sha256."""
        try:
            return [
                {"path": path.relative_to(self.evidence).as_posix(), **size_and_sha256(path)}
                for path in evidence_files(self.evidence)
            ]
        except OSError as error:
            raise ReportError(
                f"the evidence in {self.evidence} cannot be read: {error.strerror}",
                "leave the evidence directory alone while a run is going",
            ) from error


def serialise(document: Mapping[str, Any]) -> bytes:
    """Give ``document`` as JSON in ASCII, indented, with lists of plain values (token ids) on one line each."""
    return f"{_indented(document, '')}\n".encode("ascii")


def _indented(value: Any, margin: str) -> str:
    # json.dumps can only indent every list or none, and is slow where it indents.
    inner = f"{margin}  "
    if isinstance(value, Mapping) and value:
        members = [f"{inner}{json.dumps(str(name))}: {_indented(member, inner)}" for name, member in value.items()]
        return "{\n" + ",\n".join(members) + f"\n{margin}}}"
    if isinstance(value, list | tuple) and any(isinstance(one, Mapping | list | tuple) for one in value):
        return "[\n" + ",\n".join(f"{inner}{_indented(one, inner)}" for one in value) + f"\n{margin}]"
    return json.dumps(value, allow_nan=False)


def evidence_files(directory: Path) -> list[Path]:
    """Find every regular file below ``directory``, sorted; links hold nothing and are left out."""
    return sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def size_and_sha256(path: Path) -> dict[str, Any]:
    """Read a file once and give its size in bytes and its sha256 (hex)."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _status(path: Path) -> os.stat_result | None:
    """Look at what is at ``path`` itself (a link is not followed), None where nothing is."""
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--report: {str(path)!r} cannot be used: {why}", "name another file") from None


def _is_folder(path: Path) -> bool:
    status = _status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def _try_writing(folder: Path) -> None:
    """Write to a file without a name: permission bits alone do not tell (root, read-only mounts, quotas)."""
    try:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"\0" * 4096)
            probe.flush()
    except OSError as error:
        raise UsageError(
            f"--report: the folder {folder} cannot be written to: {error.strerror}",
            "make room or change its permissions, or name a file in another folder",
        ) from None


def _write_atomically(path: Path, content: bytes) -> None:
    # Not tempfile.mkstemp: its files are for their owner alone, and a report written as root in a container
    # has to be readable outside; 0o666 leaves the decision to the caller's umask.
    temporary = path.parent / f".{secrets.token_hex(8)}.kvverify-tmp"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise _not_written(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _not_written(path: Path, error: OSError) -> ReportError:
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    return ReportError(
        f"{path} cannot be written: {error.strerror}",
        f"{'free some space' if full else 'check the folder and its permissions'} and run again; "
        "what was written there before is still whole",
    )

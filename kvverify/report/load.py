"""Reading a report that somebody hands in: any file at all, and one clear error for what is not a report."""

import json
import math
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvverify.errors import ReportError

MOST_BYTES = 1 << 28
"""Largest report that is read. One of 24 prompts of 128 Ki tokens has about 30 MB."""

MOST_LEVELS = 40
"""Deepest nesting of objects and lists that is read; a report's own sections use 7, an engine's configuration more."""


def load_report(path: Path) -> Any:
    """Read the JSON value in ``path``, stricter than ``json.load``.

    Raises ReportError for what cannot be read, is not UTF-8, is not JSON (NaN is not), names a member twice, so that
    readers could disagree on what it says, or is larger or deeper than a report can be.
    """
    content = _read(path)
    try:
        document = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
        _check_shape(document)
    except UnicodeDecodeError as error:
        raise _unusable(path, f"it is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise _unusable(path, f"it nests deeper than {MOST_LEVELS} levels") from None
    except json.JSONDecodeError as error:
        raise _unusable(path, f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except ValueError as error:
        raise _unusable(path, str(error)) from None
    return document


def _read(path: Path) -> bytes:
    try:
        # Without O_NONBLOCK a named pipe would keep us waiting before we can see what it is.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ReportError(f"{path} is not a regular file", "name a report that kvverify run wrote")
            content = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}", "name a report that kvverify run wrote") from None
    except ValueError:
        raise ReportError(f"{str(path)!r} cannot be a file's name", "name a report that kvverify run wrote") from None
    if len(content) > MOST_BYTES:
        raise _unusable(path, f"it is larger than {MOST_BYTES >> 20} MiB")
    return content


def _unusable(path: Path, why: str) -> ReportError:
    return ReportError(f"{path} is not a report: {why}", "name a report that kvverify run wrote, unchanged")


def _without_duplicates(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"the member {json.dumps(name)[:80]} is there twice in one object")
        members[name] = value
    return members


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is out of range")
    return number


def _check_shape(document: object) -> None:
    """Refuse deep nesting, which recursive readers choke on, and half characters, which nothing can print."""
    level, values = 0, [document]
    while values:
        inner: list[object] = []
        for value in values:
            if isinstance(value, dict):
                inner += [*value, *value.values()]
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, str) and not value.isascii():
                _check_text(value)
        level, values = level + 1, inner
        if level > MOST_LEVELS:
            raise RecursionError


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a string holds half of a surrogate pair") from None

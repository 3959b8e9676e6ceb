"""What an arm's log says: the real cause of a failure, and what was written since the last look."""

import re
from pathlib import Path

_TAIL_BYTES = 1 << 18
_PREFIX = re.compile(r"^(\([^)]*\) )?([A-Z]+ [\d-]+ [\d:.]+ \[[^\]]*\] )?")
_ERROR = re.compile(r"^(?:(?:[a-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception)\b|Worker proc \S+ died unexpectedly)")
_GENERIC = (
    "Engine core initialization failed",
    "EngineDeadError",
    "See root cause above",
    "WorkerProc initialization failed",
)


def cause_in(log: Path) -> str | None:
    """The first specific exception or death of a worker in the last part of the log, as the engine worded it, or None.

    vLLM's parent process only says "Engine core initialization failed"; the cause is printed by the process that met
    it, earlier in the log and behind a process prefix such as ``(EngineCore pid=7) ERROR 01-01 00:00:00 [core.py:1]``.
    """
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        text = _PREFIX.sub("", line).strip()
        if _ERROR.match(text) and not any(phrase in text for phrase in _GENERIC):
            return text[:300]
    return None


class LogTail:
    """Gives the part of a growing log that was written since the last look."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0

    def new(self) -> bytes:
        """The bytes since the last call."""
        with self._log.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        self._read += len(text)
        return text

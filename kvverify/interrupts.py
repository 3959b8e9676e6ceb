"""Signals that end a run become one exception, so that every engine is ended and the report says ``interrupted``."""

import signal
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The run was told to end; not an Exception, so that no handler of errors takes it for one."""


def raise_on_signals() -> None:
    """From now on SIGINT, SIGTERM and SIGHUP raise Interrupted, once: later ones do not disturb the cleaning up."""
    for number in _SIGNALS:
        signal.signal(number, _interrupt)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(signal.Signals(number).name)

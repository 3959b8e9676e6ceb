"""Signals that end a run become one exception, so that every engine is ended and the report says ``interrupted``."""

import signal
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The run was told to end; not an Exception, so that no handler of errors takes it for one."""


class _Once:
    """Raises at the first signal, and stays the handler.

    To ignore signals from then on would make Python complain on stderr about each one that is pending already.
    """

    def __init__(self) -> None:
        self._raised = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if not self._raised:
            self._raised = True
            raise Interrupted(signal.Signals(number).name)


def raise_on_signals() -> None:
    """From now on SIGINT, SIGTERM and SIGHUP raise Interrupted, once: later ones do not disturb the cleaning up."""
    handler = _Once()
    for number in _SIGNALS:
        signal.signal(number, handler)

"""The errors that a user sees: each says what is wrong, where, and what to do about it."""


class KvverifyError(Exception):
    """Base of every error that ends a command with one clear line.

    ``problem`` says what is wrong and where; ``remedy`` what to do about it. ``exit_status`` is what the
    command
    returns: 2, because nothing was proven either way.
    """

    exit_status = 2

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}" if self.remedy else self.problem


class UsageError(KvverifyError):
    """An option has a value that cannot be used; the message names the option."""


class PreflightError(KvverifyError):
    """The machine, the installed packages, the model or the tokenizer cannot run what was asked for."""


class EngineError(KvverifyError):
    """An engine process did not start, answer or stop as it must; carries the cause from its log where there is one."""


class ReportError(KvverifyError):
    """A report or its evidence cannot be read or written."""

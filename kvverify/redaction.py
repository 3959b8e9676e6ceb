"""Secrets out of what a report or its evidence records: by the name of a setting, and inside any text."""

import re
from collections.abc import Mapping

NOT_RECORDED = "(not recorded)"
"""Stands where a secret was."""

_NEVER_NUMBERS = r"(?:secret|password|passwd|passphrase|credential)s?"
_WORDS = rf"(?:{_NEVER_NUMBERS}|tokens?|keys?|[_-]auth)"
_SECRET_NAME = re.compile(rf"{_WORDS}$", re.IGNORECASE)
_SECRET_NUMBER = re.compile(rf"{_NEVER_NUMBERS}$", re.IGNORECASE)
# Up to the last @: a password may hold any character, and a host that is hidden with it does less harm.
_USER_OF_URL = re.compile(r"(?<=://)[^\s'\"]*@")
# In JSON, YAML, a Python literal or a URL's query: the name, : or =, then a list, an object, a quoted or a bare value.
_NAMED = re.compile(
    rf"""([\w.-]*{_WORDS}["']?\s*[:=]\s*)(\[[^\]]*\]|\{{[^}}]*\}}|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,;&"'}}\]]+)""",
    re.IGNORECASE,
)


def is_secret(name: str, value: object) -> bool:
    """Whether a setting of that name holds a secret; a number under ``..._tokens`` or ``..._key`` is none.

    >>> is_secret("redis_password", "x"), is_secret("tokenizer", "x"), is_secret("max_num_batched_tokens", 2048)
    (True, False, False)
    """
    if value is None or value == "" or isinstance(value, bool):
        return False
    pattern = _SECRET_NUMBER if isinstance(value, int | float) else _SECRET_NAME
    return pattern.search(name) is not None


def without_secrets(text: str) -> str:
    """``text`` without the user part of URLs and without values that a name of a secret stands before.

    >>> without_secrets("redis://me:pass@host:6379/0?token=abc")
    'redis://(not recorded)@host:6379/0?token=(not recorded)'
    """
    return _NAMED.sub(rf"\g<1>{NOT_RECORDED}", _USER_OF_URL.sub(f"{NOT_RECORDED}@", text))


def holds_secret(name: str, value: object) -> bool:
    """Whether a JSON value, or anything inside it, is a secret."""
    if isinstance(value, Mapping):
        return any(holds_secret(str(key), item) for key, item in value.items())
    if isinstance(value, list):
        return any(holds_secret(name, item) for item in value)
    return is_secret(name, value) or (isinstance(value, str) and without_secrets(value) != value)

"""Numbers and labels from a server's Prometheus metrics."""

import re
from collections.abc import Iterator

_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+\S+)?$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


def total(metrics: str, name: str) -> int | None:
    """Add up all series of a counter or gauge; None where there is none, or it is no whole number.

    >>> total('a_total{engine="0"} 2.0', "a_total")
    2
    >>> total("b_total 2.0", "a_total") is None
    True
    """
    values = []
    for found in _series(metrics, name):
        try:
            values.append(float(found["value"]))
        except ValueError:
            return None
    whole = bool(values) and all(value.is_integer() and value >= 0 for value in values)
    return int(sum(values)) if whole else None


def labels(metrics: str, name: str) -> dict[str, str]:
    """Give the labels of the first series of that name.

    >>> labels('info{block_size="16",enable="True"} 1.0', "info")
    {'block_size': '16', 'enable': 'True'}
    """
    for found in _series(metrics, name):
        return dict(_LABEL.findall(found["labels"] or ""))
    return {}


def _series(metrics: str, name: str) -> Iterator[re.Match[str]]:
    for line in metrics.splitlines():
        if line.startswith(name) and (found := _LINE.match(line)) and found["name"] == name:
            yield found

"""Where two lists of token ids part."""

from collections.abc import Sequence


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Return the index of the first id that differs, or None where the two are the same.

    Where one is a proper prefix of the other it is the shorter length. Ids are compared exactly, with their
    type: JSON can carry ``true`` and ``1.0``, which Python calls equal to 1.

    >>> first_difference([5, 6, 7], [5, 9, 7])
    1
    >>> first_difference([5, 6], [5, 6, 7])
    2
    >>> first_difference([5, 6], [5, 6]) is None
    True
    """
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right or type(left) is not type(right):
            return index
    return None if len(a) == len(b) else min(len(a), len(b))

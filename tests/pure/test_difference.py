import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvverify.comparison import first_difference, ids_sha256

ids = st.lists(st.integers(min_value=0, max_value=3), max_size=8)


@pytest.mark.parametrize(
    ("a", "b", "index"),
    [
        ((), (), None),
        ((5,), (5,), None),
        ((5, 6, 7), (5, 6, 7), None),
        ((5, 6, 7), (4, 6, 7), 0),
        ((5, 6, 7), (5, 6, 8), 2),
        ((5, 6, 7), (5, 9, 8), 1),
        ((), (5,), 0),
        ((5, 6), (5, 6, 7), 2),
        ((5, 6, 7), (5, 6), 2),
        ((5, 6), (5, 7, 7), 1),
        ((0, 1), (0, True), 1),
        ((0, 1), (0, 1.0), 1),
    ],
)
def test_first_difference(a: tuple[int, ...], b: tuple[int, ...], index: int | None) -> None:
    assert first_difference(a, b) == index


@given(ids, ids)
def test_it_is_symmetric_and_none_only_for_equal_ids(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    index = first_difference(a, b)
    assert index == first_difference(b, a)
    assert (index is None) == (a == b)


@given(ids, ids)
def test_all_before_it_is_equal_and_what_stands_at_it_is_not(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    index = first_difference(a, b)
    if index is not None:
        assert a[:index] == b[:index]
        assert a[index : index + 1] != b[index : index + 1]


def test_lists_and_tuples_of_the_same_ids_do_not_differ() -> None:
    assert first_difference([1, 2], (1, 2)) is None


def test_ids_are_hashed_as_decimals_joined_by_commas() -> None:
    assert ids_sha256([1, 23, 456]) == hashlib.sha256(b"1,23,456").hexdigest()
    assert ids_sha256(iter(())) == hashlib.sha256(b"").hexdigest()


@given(ids, ids)
def test_equal_hashes_mean_equal_ids_in_their_order(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    # Two empty lists and one empty id cannot be confused: an id is at least one digit.
    assert (ids_sha256(a) == ids_sha256(b)) == (a == b)


@pytest.mark.parametrize(("a", "b"), [((1, 2), (12,)), ((1,), (True,)), ((1,), (1.0,)), ((1, 2), (2, 1))])
def test_hashes_tell_ids_apart_that_look_alike(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    assert ids_sha256(a) != ids_sha256(b)

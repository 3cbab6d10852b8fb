"""A value is made once for each generation, whichever thread asks first."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ragembed.indexes.types import PerGeneration


def test_a_value_is_made_once_for_each_generation_from_the_one_before():
    kept, calls = PerGeneration(), []

    def make(before):
        calls.append(before)
        return len(calls)

    assert [kept.of(generation, make) for generation in (None, None, 7, 7, 6)] == [1, 1, 2, 2, 3]
    assert calls == [None, 1, 2]
    kept.clear()
    assert kept.of(6, make) == 4
    assert calls[-1] is None


def test_threads_share_one_value():
    kept = PerGeneration()
    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(lambda _: kept.of(1, lambda _: []), range(64)))
    assert all(value is values[0] for value in values)


def test_a_value_that_cannot_be_made_leaves_the_one_before():
    kept = PerGeneration()
    kept.of(1, lambda _: "first")
    with pytest.raises(ZeroDivisionError):
        kept.of(2, lambda _: 1 / 0)
    assert kept.of(1, lambda _: "again") == "first"

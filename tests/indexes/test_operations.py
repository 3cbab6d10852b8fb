"""A store agrees with a dictionary through random changes and searches, many more of them in the slow tests."""

import numpy as np
import pytest

from ragembed.indexes import Store
from tests.conftest import KnownEncoder
from tests.indexes.random_operations import EXACT, KINDS, Mirror, measure
from tests.slow.helpers import scaled

QUICK = ("flat", "hnsw-sq8", "ivf-pq", "IVF8,SQ6")


@pytest.mark.parametrize(
    ("kind", "count"),
    [*((kind, 40) for kind in QUICK), *(pytest.param(kind, scaled(600), marks=pytest.mark.slow) for kind in KINDS)],
)
def test_random_operations_agree_with_a_dictionary(tmp_path, kind, count):
    tally = measure(tmp_path, kind, count, seed=0)
    assert tally.wrong == []
    assert tally.searches == count // 2
    assert (tally.approximate > 0) == (kind not in EXACT)
    assert all(overlap >= 0.8 for overlap in tally.overlaps) or count > 40
    assert np.mean(tally.overlaps or [1.0]) >= (0.98 if count > 40 else 0.9)


def test_a_wrong_result_is_reported(tmp_path, monkeypatch):
    right = Store.search

    def wrong(store, *arguments, **named):
        return right(store, *arguments, **named)[::-1]

    monkeypatch.setattr(Store, "search", wrong)
    tally = measure(tmp_path, "flat", 40, 1)
    assert any("not the best" in sentence for sentence in tally.wrong)


def test_brute_force_scores_equal_sqlite(tmp_path, make_record):
    texts = {"a": "wing wing air", "b": "wing air air heat heat heat", "c": "air"}
    mirror = Mirror(KnownEncoder(dim=8))
    with Store.create(tmp_path / "s", mirror.encoder) as store:
        store.add([make_record(name, text) for name, text in texts.items()])
        for name, text in texts.items():
            mirror.put(name, text, 0, None)
        for query in ("wing", "heat", "air", "wing heat air"):
            for mode, ranking in (("dense", mirror.dense), ("lexical", mirror.lexical)):
                hits = store.search(query, 9, mode)
                expected = ranking(query, lambda entry: True)
                assert [hit.id for hit in hits] == [name for name, _ in expected]
                assert [hit.score for hit in hits] == pytest.approx([score for _, score in expected], rel=1e-5)

"""Random changes and searches of a store beside a dictionary, as in benchmarks/reliability/operations.py, but few."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from ragembed.indexes import index_choice, kinds, segment_search
from ragembed.indexes.ann import picking
from ragembed.indexes.ann.specs import NAMES

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def operations():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield import_module("reliability.operations")
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in [name for name in sys.modules if name.split(".")[0] in ("reliability", "report", "collection")]:
            del sys.modules[name]


@pytest.mark.guarantee(20)
@pytest.mark.parametrize("kind", [*NAMES, "IVF8,SQ6"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_store_agrees_with_a_dictionary_through_random_operations(operations, tmp_path, kind, seed):
    tally = operations.measure(tmp_path, kind, 90, seed)
    assert tally.wrong == []
    assert tally.searches == 45
    assert (tally.approximate > 0) == (kind not in ("flat", "fp16"))
    assert all(overlap >= 0.8 for overlap in tally.overlaps)


@pytest.mark.parametrize(("kind", "least"), [("hnsw", 64), ("ivf-pq", 256)])
def test_limits_are_low_for_the_time_of_the_operations_alone(operations, kind, least):
    def limits():
        sizes = {kinds.LEAST_APPROXIMATE, picking.LEAST_ASKED}
        return sizes, index_choice.QUERIES, segment_search._EXACT_ROWS, segment_search._EXACT_SHARE

    before = limits()
    with operations.low_limits(kind):
        assert limits() == ({least}, 20, 16, 0.0)
    assert limits() == before == ({10_000, 1_000}, 300, 5_000, 0.05)


def test_every_kind_is_among_those_that_are_measured(operations):
    assert set(NAMES) < set(operations.KINDS)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda hits: hits[1:], "expected"),
        (lambda hits: [*hits[:-1], *hits[:1]], "found twice"),
        (lambda hits: hits[::-1], "not the best"),
    ],
)
def test_an_answer_that_is_not_the_dictionarys_is_told(operations, tmp_path, monkeypatch, change, told):
    from ragembed.indexes import Store

    right = Store.search

    def wrong(store, *arguments, **named):
        return change(right(store, *arguments, **named))

    monkeypatch.setattr(Store, "search", wrong)
    tally = operations.measure(tmp_path, "flat", 40, 1)
    assert any(told in sentence for sentence in tally.wrong)


def test_brute_force_scores_are_sqlites(operations, tmp_path, encoder, make_record):
    from ragembed.indexes import Store

    texts = {"a": "wing wing air", "b": "wing air air heat heat heat", "c": "air"}
    mirror = operations.Mirror(operations.HashedEncoder(8))
    with Store.create(tmp_path / "s", mirror.encoder) as store:
        store.add([make_record(name, text) for name, text in texts.items()])
        for name, text in texts.items():
            mirror.put(name, text, 0, None)
        for question in ("wing", "heat", "air", "wing heat air"):
            for mode, ranking in (("dense", mirror.dense), ("lexical", mirror.lexical)):
                hits = store.search(question, 9, mode)
                expected = ranking(question, lambda entry: True)
                assert [hit.id for hit in hits] == [name for name, _ in expected]
                assert [hit.score for hit in hits] == pytest.approx([score for _, score in expected], rel=1e-5)

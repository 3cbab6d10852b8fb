"""Exact search equals a plain loop; retrieval tasks with vectors whose measures are known, and their reader."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from ragembed.errors import ConfigError
from ragembed.evaluation import RetrievalCollection, read_retrieval, search, tasks
from ragembed.evaluation.encoding import Encoded
from ragembed.evaluation.tasks import retrieval_task

SMALL = st.integers(-2, 2).map(float)


def by_loop(queries, documents, k):
    """Return rows and scores from a plain loop with a stable sort."""
    scores = [[sum(float(a) * float(b) for a, b in zip(q, x, strict=True)) for x in documents] for q in queries]
    rows = [sorted(range(len(documents)), key=lambda row: -line[row])[:k] for line in scores]
    return [[line[row] for row in found] for line, found in zip(scores, rows, strict=True)], rows


@given(
    queries=npst.arrays(np.float32, st.tuples(st.integers(1, 4), st.just(3)), elements=SMALL),
    documents=npst.arrays(np.float32, st.tuples(st.integers(1, 25), st.just(3)), elements=SMALL),
    k=st.integers(1, 30),
    cells=st.sampled_from([1, 30, 1 << 24]),
)
def test_search_equals_plain_loop_with_ties(queries, documents, k, cells):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "_BLOCK_CELLS", cells)
        scores, rows = search(queries, documents, k)
    assert (scores.tolist(), rows.tolist()) == by_loop(queries, documents, k)


@given(
    documents=npst.arrays(
        np.float32, st.tuples(st.integers(1, 12), st.just(2)), elements=st.floats(-(2.0**60), 2.0**60, width=32)
    )
)
def test_numbers_of_any_size(documents):
    scores, rows = search(documents, documents, 3)
    expected = documents.astype(np.float64) @ documents.astype(np.float64).T
    for line, found, reached in zip(expected, rows, scores, strict=True):
        np.testing.assert_array_equal(reached, line[found])
        np.testing.assert_array_equal(reached, np.sort(line)[::-1][:3])


def test_equal_documents_tie_in_any_position():
    """A matrix product rounds differently in its inner part and at its margins."""
    generator = np.random.default_rng(5)
    documents = generator.normal(size=(203, 384)).astype(np.float32)
    documents[[3, 50, 117, 201, 202]] = documents[0]
    queries = np.concatenate([documents[:1], documents[:1] + 0.01 * generator.normal(size=(6, 384)).astype(np.float32)])
    _, rows = search(queries, documents, 4)
    assert rows.tolist() == [[0, 3, 50, 117]] * 7


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 2, 0], [1, 0, 2]])
def test_order_follows_exact_products(order):
    """2²⁴ + 0.6 + 0.6 is more than 2²⁴ + 1.1, but less if added term by term in float32, where steps are 2."""
    documents = np.array([[2.0**24, 1.1, 0.0], [2.0**24, 0.6, 0.6]], dtype=np.float32)[:, order]
    scores, rows = search(np.ones((1, 3)), documents, 1)
    assert rows.tolist() == [[1]]
    assert scores[0, 0] == pytest.approx(2.0**24 + 1.2, abs=1e-6)


@pytest.mark.parametrize(
    ("queries", "documents", "k", "message"),
    [
        (np.ones((1, 2)), np.ones((1, 3)), 1, "queries have 2 dimensions and documents 3"),
        (np.ones((1, 2)), np.ones((0, 2)), 1, "documents has 0 rows"),
        (np.ones((0, 2)), np.ones((1, 2)), 1, "queries has 0 rows"),
        (np.ones((1, 2)), np.ones((1, 2)), 0, "k is 0"),
        ([[np.nan, 0.0]], np.ones((1, 2)), 1, "row 0 of queries has NaN"),
        (np.ones((1, 2)), [[1.0, 0.0], [np.inf, 0.0]], 1, "row 1 of documents has NaN or infinity"),
        (np.full((1, 2), 1e30), np.full((1, 2), 1e30), 1, "exceeds float32"),
        (np.full((1, 2), 1e300), np.ones((1, 2)), 1, "row 0 of queries, as float32, has NaN or infinity"),
        (np.ones((1, 0)), np.ones((1, 0)), 1, "expected \\(n, d\\)"),
    ],
)
def test_search_errors(queries, documents, k, message):
    with pytest.raises(ConfigError, match=message):
        search(queries, documents, k)


def at_angles(degrees):
    radians = np.radians(degrees)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


def test_retrieval_by_hand():
    """The first query finds its document at rank 1, the second at rank 2: nDCG 1 and 1/log2(3), MRR 1 and 1/2."""
    collection = RetrievalCollection(
        "c", {"d1": "one", "d2": "two"}, {"q1": "?", "q2": "??"}, {"q1": {"d1": 1}, "q2": {"d1": 1}}
    )
    task = retrieval_task(collection)
    assert (task.name, task.documents, task.queries, task.symmetric) == ("c", ["one", "two"], ["?", "??"], False)
    measured = task.measure(Encoded(at_angles([0, 90]), 7 * at_angles([10, 80])), None)
    assert measured.scores == {
        "ndcg@10": pytest.approx(50 * (1 + 1 / np.log2(3))),
        "recall@100": 100.0,
        "mrr@10": 75.0,
        "map": 75.0,
        "queries": 2,
    }
    np.testing.assert_allclose(measured.by_query, [100.0, 100 / np.log2(3)])


@pytest.fixture
def wings(tmp_path):
    folder = tmp_path / "wings"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(json.dumps({"_id": "d1", "text": "a wing"}) + "\n")
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": "what flies?"}) + "\n")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    return folder


def test_collection_is_named_after_its_folder(wings, monkeypatch):
    assert read_retrieval(wings).name == "wings"
    monkeypatch.chdir(wings)
    assert read_retrieval(Path()).name == "wings"

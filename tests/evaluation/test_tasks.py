"""Retrieval tasks with vectors whose measures are known, and their reader."""

import json
from pathlib import Path

import numpy as np
import pytest

from ragembed.evaluation import RetrievalCollection, read_retrieval
from ragembed.evaluation.encoding import Encoded
from ragembed.evaluation.tasks import RetrievalTask


def at_angles(degrees):
    radians = np.radians(degrees)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


def test_retrieval_by_hand():
    """The first query finds its document at rank 1, the second at rank 2: nDCG 1 and 1/log2(3), MRR 1 and 1/2."""
    collection = RetrievalCollection(
        "c", {"d1": "one", "d2": "two"}, {"q1": "?", "q2": "??"}, {"q1": {"d1": 1}, "q2": {"d1": 1}}
    )
    task = RetrievalTask(collection)
    assert (task.name, task.documents, task.queries, task.symmetric) == ("c", ["one", "two"], ["?", "??"], False)
    measured = task.measure(Encoded(at_angles([0, 90]), 7 * at_angles([10, 80])))
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

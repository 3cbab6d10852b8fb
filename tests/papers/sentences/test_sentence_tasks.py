"""Sentence tasks with vectors whose measures are known, and errors of their readers."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from ragembed.errors import ConfigError
from ragembed.evaluation.encoding import Encoded
from ragembed.evaluation.tasks import evaluate
from ragembed.papers import SentencePairs
from ragembed.papers.sentences.sentence_tasks import (
    READERS,
    isotropy_task,
    sts_task,
)
from tests.papers.sentences.conftest import at_angles

PAIRS = SentencePairs(("a", "b", "c"), ("d", "e", "f"), (5.0, 3.0, 1.0))
NOTHING = np.zeros((0, 2), dtype=np.float32)


def test_sts_is_fitted_on_both_sentences():
    task = sts_task("years", PAIRS)
    assert task.documents == ["a", "b", "c", "d", "e", "f"]
    assert task.queries == ("d", "e", "f")
    vectors = at_angles([0, 0, 0, 10, 40, 80])
    measured = task.measure(Encoded(vectors, NOTHING), None)
    assert measured.scores["spearman"] == pytest.approx(100.0)
    assert measured.scores["pairs"] == 3
    assert measured.headline == "spearman"
    assert list(measured.scores) == ["spearman", "pearson", "pairs"]


def test_separate_fit_encodes_second_sentences_as_queries():
    task = sts_task("years", PAIRS)
    vectors = at_angles([0, 0, 0, 10, 40, 80]), at_angles([80, 40, 10])
    for fit, expected in (("separate", -100.0), ("shared", 100.0)):
        assert task.measure(Encoded(*vectors, fit), None).scores["spearman"] == pytest.approx(expected)


def test_isotropy_by_hand():
    """Four corners of a square have equal variances. Of the pairs 0-2 and 1-3, only the first has the highest score."""
    corners = np.array([[0, 0], [1, 0], [0, 1], [1, 1]], dtype=np.float32)
    texts = isotropy_task("texts", tuple("abcd")).measure(Encoded(corners, NOTHING), None).scores
    assert texts["iso_score"] == pytest.approx(1.0)
    assert texts["uniformity"] == pytest.approx(np.log((4 * np.exp(-2) + 2 * np.exp(-4)) / 6))
    assert list(texts) == ["iso_score", "uniformity", "vectors"]
    pairs = SentencePairs(("a", "b"), ("c", "d"), (5.0, 4.8))
    far = np.array([[0, 0], [1, 0], [0, 3], [1, 1]], dtype=np.float32)
    found = isotropy_task("pairs", tuple("abcd"), pairs).measure(Encoded(far, NOTHING), None).scores
    assert (found["alignment"], found["positive_score"], found["positive_pairs"]) == (pytest.approx(9.0), 5.0, 1)
    found = isotropy_task("pairs", tuple("abcd"), pairs, 4.0).measure(Encoded(far, NOTHING), None).scores
    assert (found["alignment"], found["positive_pairs"]) == (pytest.approx((9 + 1) / 2), 2)


def test_undefined_measure_does_not_stop_the_other_configurations(tiny_config):
    """Layer -1 of [CLS] is the same for every text, so that all cosines are 1."""
    configs = [tiny_config.replace(pooling="cls", layers=layers, query_fit="shared") for layers in ("1", "-1", "2")]
    pairs = SentencePairs(("cat", "cat", "dog"), ("dog", "red", "fish"), (1.0, 2.0, 3.0))
    first, constant, last = (measured for _, measured in evaluate(sts_task("years", pairs), configs))
    assert first.undefined is None is last.undefined
    assert constant.scores == {"spearman": None, "undefined": constant.undefined}
    assert constant.undefined == "all 3 predictions are equal: their correlation is not defined"


def beir(folder: Path, judged: str | None = "q1\td1\t1") -> Path:
    folder.mkdir()
    documents = [{"_id": "d1", "text": "a wing"}, {"_id": "d2", "title": "Locks", "text": "a lock"}]
    (folder / "corpus.jsonl").write_text("\n".join(json.dumps(row) for row in documents) + "\n")
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "what flies?"}\n')
    if judged is not None:
        (folder / "qrels").mkdir()
        (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}\n")
    return folder


PAIRS_HEADER = "score\tsentence1\tsentence2\n"
TEXTS_HEADER = "label\ttext\n"


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("sts", "", "line 1: the header is '': expected score sentence1 sentence2"),
        ("sts", PAIRS_HEADER + "1\ta\tb\n1.0\tc\td\n", "all 2 scores are '1.0': expected at least 2 different"),
        ("clustering", TEXTS_HEADER + "x\ta\nx\tb\n", "all 2 labels are 'x': expected at least 2 different labels"),
        ("clustering", PAIRS_HEADER + "1\ta\tb\n", "line 1: the header is"),
        ("classification", TEXTS_HEADER + "x\ta\nx\tb\n", "all 2 labels are 'x'"),
        (
            "classification",
            TEXTS_HEADER + "x\ta\n" * 10 + "y\tb\n",
            "the label 'y' has 1 texts, fewer than the 10 folds",
        ),
        ("classification", PAIRS_HEADER + "1\ta\tb\n2\ta\tb\n", "has 2 pairs, fewer than the 10 folds"),
        ("classification", PAIRS_HEADER + "1\ta\tb\n1\ta\tb\n", "all 2 scores are '1.0'"),
        ("isotropy", "", "it has no texts"),
        ("isotropy", "same\nsame\n", "all 2 texts are 'same'"),
        ("isotropy", PAIRS_HEADER + "4\ta\tb\n1\tc\td\n", "no pair with a score of 5 or more, which alignment needs"),
        ("isotropy", b"caf\xe9\n", "not UTF-8"),
    ],
)
def test_readers_check_collections(task, content, message, tmp_path):
    file = tmp_path / "data.tsv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as error:
        READERS[task](file)
    assert message in str(error.value)
    assert str(file) in str(error.value)


@pytest.mark.parametrize("task", ["sts", "clustering", "classification", "isotropy"])
def test_folder_or_missing_file_is_an_error(task, tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        READERS[task](tmp_path / "missing.tsv")
    folder = {
        "isotropy": "has no corpus.jsonl: expected a BEIR folder",
        "clustering": "cannot be read",
    }.get(task, "has the files of no known collection: expected one of ")
    with pytest.raises(ConfigError, match=re.escape(folder)):
        READERS[task](tmp_path)


def test_isotropy_reads_every_kind_of_collection(tmp_path):
    folder = beir(tmp_path / "wings")
    file = tmp_path / "data.tsv"
    assert READERS["isotropy"](folder).documents == ("a wing", "Locks\n\na lock")
    file.write_text("\ufeff" + PAIRS_HEADER + "5\ta\tb\n1\tc\td\n", encoding="utf-8")
    assert READERS["isotropy"](file).documents == ("a", "c", "b", "d")
    file.write_text(TEXTS_HEADER + "x\ta\nx\tb\n")
    assert READERS["isotropy"](file).documents == ("a", "b")
    file.write_text("first text\n\nsecond text\n")
    assert READERS["isotropy"](file).documents == ("first text", "second text")

"""BM25 scores equal the formula after any changes of the store."""

import math
import re
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.indexes import Store
from ragembed.indexes.lexical.analyzer import Analyzer
from tests.conftest import KnownEncoder, record

K1, B = 1.2, 0.75
LEAST_IDF = 1e-6
WORDS = ["lock", "writer", "zebra", "wing", "flow", "x9", "naïve"]
LETTERS = "東京都の地図"
PLAIN = [*WORDS, "zebra lock", "flow wing writer"]

texts = st.lists(st.sampled_from([*WORDS, LETTERS, LETTERS[2:]]), max_size=12).map(" ".join)
chunks = st.fixed_dictionaries(
    {"text": texts, "title": st.none() | texts, "searched": st.none() | texts, "headings": st.lists(texts, max_size=2)}
)
names = st.sampled_from([f"id{i}" for i in range(6)])
changes = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.tuples(names, chunks), min_size=1, max_size=4)),
        st.tuples(st.just("delete"), st.lists(names, min_size=1, max_size=3)),
        st.tuples(st.just("optimize"), st.none()),
    ),
    min_size=1,
    max_size=8,
)


def records(named):
    return [record(name, **{**fields, "headings": tuple(fields["headings"])}) for name, fields in named]


def scores(store, query):
    return {hit.id: hit.score for hit in store.search(query, 99, "lexical")}


def words_of(chunk):
    text = chunk.text if chunk.searched is None else chunk.searched
    return re.findall(r"\w+", Analyzer().of_text(" ".join([chunk.title or "", *chunk.headings, text])))


def bm25(documents, query):
    """Return the scores of those ``documents``, lists of words by id, that contain a word of the query."""
    mean = sum(map(len, documents.values())) / max(len(documents), 1)
    found = Counter()
    for word in dict.fromkeys(query.split()):
        holding = {name: words.count(word) for name, words in documents.items() if word in words}
        idf = math.log((len(documents) - len(holding) + 0.5) / (len(holding) + 0.5))
        for name, count in holding.items():
            length = K1 * (1 - B + B * len(documents[name]) / mean)
            found[name] += (idf if idf > 0 else LEAST_IDF) * count * (K1 + 1) / (count + length)
    return dict(found)


@given(done=changes, language=st.sampled_from(["english", "none"]))
def test_scores_after_changes_equal_a_new_store_and_the_formula(done, language):
    with tempfile.TemporaryDirectory() as folder:
        left = {}
        with Store.create(Path(folder, "store"), KnownEncoder(), language=language) as store:
            for what, value in done:
                if what == "add":
                    store.add(records(value))
                    for each in records(value):
                        left.pop(each.id, None)
                        left[each.id] = each
                elif what == "delete":
                    store.delete(value)
                    left = {name: each for name, each in left.items() if name not in value}
                else:
                    store.optimize()
            documents = {name: words_of(each.chunk) for name, each in left.items()}
            with Store.create(Path(folder, "again"), KnownEncoder(), language=language) as again:
                again.add(left.values())
                for query in [*PLAIN, "京都 lock", LETTERS, '"都の地"', "図"]:
                    assert scores(store, query) == scores(again, query)
                    if language == "none" and query in PLAIN:
                        expected = bm25(documents, query)
                        # A chunk with an empty searchable text counts in the statistics, but is never a hit.
                        hits = {name: score for name, score in expected.items() if left[name].chunk.searched != ""}
                        assert scores(store, query) == pytest.approx(hits, rel=1e-9)
            assert store.verify().problems == []


def test_phrase_has_the_weight_of_one_rare_word(tmp_path):
    """Its idf uses the frequency of the phrase, not of its words."""
    texts = ["access denied here", "denied access here", "access was not denied", *["access elsewhere now"] * 9]
    with Store.create(tmp_path / "s", KnownEncoder()) as store:
        store.add(record(f"id{i}", text) for i, text in enumerate(texts))
        found = scores(store, '"access denied"')
    mean = sum(len(text.split()) for text in texts) / len(texts)
    idf = math.log((len(texts) - 1 + 0.5) / 1.5)
    assert found == pytest.approx({"id0": idf * (K1 + 1) / (1 + K1 * (1 - B + B * 3 / mean))})

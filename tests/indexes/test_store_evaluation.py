"""Rankings by the search of a store, for documents with known vectors and words."""

from pathlib import Path

import pytest

from ragembed import Embedder
from ragembed.documents.model import Chunk
from ragembed.errors import ConfigError
from ragembed.evaluation import JudgedQueries, RetrievalCollection
from ragembed.evaluation.tasks import evaluate, retrieval_task
from ragembed.indexes import ChunkRecord, Fusion, SourceRecord, Store
from ragembed.indexes.store_evaluation import SearchSettings, StoreJudgements, in_store, rank, rank_in_store

DOCUMENTS = {
    "lock": "the writer holds the lock of the store",
    "wing": "air flow over a wing",
    "again": "air flow over a wing",
    "shock": "Shock waves\n\na shock wave and a boundary layer",
    "empty": "",
    "title": "zebra",
}
TITLES = {"shock": "Shock waves", "title": "zebra"}
QUERIES = {"q1": "shock wave", "q2": "who holds the lock?", "q3": "zebra", "q4": "?"}


@pytest.fixture
def collection():
    return RetrievalCollection("small", dict(DOCUMENTS), dict(QUERIES), {"q1": {"shock": 1}}, dict(TITLES))


@pytest.fixture
def opened(tmp_path, encoder):
    """A store in ``tmp_path`` with two files in three chunks, and a chunk without a file."""
    chunks = {"c1": ("docs/a.md", "lock lock"), "c2": ("docs/a.md", "lock and wing"), "c3": ("docs/b.md", "wing")}
    with Store.create(tmp_path / ".ragembed", encoder) as store:
        records = [ChunkRecord(name, Chunk(text), source) for name, (source, text) in chunks.items()]
        records.append(ChunkRecord("c4", Chunk("zebra")))
        with store.writer() as writer:
            writer.stage(record.chunk.embedded_text for record in records)
            sources = [SourceRecord(f"docs/{name}.md", 1, 0, "0" * 64, "r") for name in "ab"]
            writer.commit(chunks=records, sources=sources)
        yield store


def names(ranking):
    return [name for name, _ in ranking]


def test_lexical_search_needs_no_embedder_and_finds_titles(collection):
    [found] = rank(collection, None, [SearchSettings("lexical")])
    assert {query: names(ranking) for query, ranking in found.items()} == {
        "q1": ["shock"],
        "q2": ["lock"],
        "q3": ["title"],
        "q4": [],
    }


def test_dense_search_equals_brute_force(collection, tiny_config):
    config = tiny_config.replace(query_fit="shared")
    [(_, measured)] = evaluate(retrieval_task(collection), [config])
    [found] = rank(collection, Embedder(config), [SearchSettings("dense")])
    for query, expected in measured.rankings.items():
        cosines = dict(found[query])
        assert cosines.keys() == dict(expected).keys() == DOCUMENTS.keys()
        for name, cosine in expected:
            assert cosines[name] == pytest.approx(cosine, abs=5e-3), (query, name)


def test_several_searches_share_a_store(collection, tiny_config, monkeypatch):
    encoded = []
    raw = Embedder.raw_documents
    monkeypatch.setattr(
        Embedder, "raw_documents", lambda self, texts, *more: encoded.extend(texts) or raw(self, texts, *more)
    )
    searches = [
        SearchSettings("dense"),
        SearchSettings("hybrid", Fusion(alpha=0.0, feedback=0.0)),
        SearchSettings("lexical"),
    ]
    dense, hybrid, lexical = rank(collection, Embedder(tiny_config), searches, depth=2)
    assert len(encoded) == len(DOCUMENTS)
    assert [len(dense[query]) for query in QUERIES] == [2, 2, 2, 2]
    for query in ("q1", "q2", "q3"):
        assert names(hybrid[query])[0] == names(lexical[query])[0]


def test_embedder_is_fitted_as_by_fit(collection, tiny_config):
    config = tiny_config.replace(weighting="idf", postprocess=("center", "normalize"), query_fit="separate")
    embedder = Embedder(config)
    rank(collection, embedder, [SearchSettings("dense")])
    texts = [Chunk(text, title=title).embedded_text for title, text in map(collection.parts, DOCUMENTS)]
    assert embedder.fingerprint == Embedder(config).fit(texts).fingerprint


def test_dense_search_needs_an_embedder(collection):
    with pytest.raises(ConfigError, match="no embedder given for dense or hybrid search"):
        rank(collection, None, [SearchSettings("lexical"), SearchSettings("hybrid")])


def test_files_rank_by_their_best_chunk(opened):
    judged = StoreJudgements({}, frozenset({"q1"}))
    found = rank_in_store(opened, {"q1": "lock wing zebra", "q2": "lock wing zebra"}, judged, SearchSettings("lexical"))
    chunks, files = names(found["q2"]), names(found["q1"])
    assert sorted(chunks) == ["c1", "c2", "c3", "c4"]
    owners = {"c1": "docs/a.md", "c2": "docs/a.md", "c3": "docs/b.md", "c4": "c4"}
    assert files == list(dict.fromkeys(owners[chunk] for chunk in chunks))
    best = {owners[chunk]: score for chunk, score in reversed(found["q2"])}
    assert dict(found["q1"]) == best


def test_files_match_by_name_and_by_path(opened, tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path / "docs")
    relevance = {"q1": {"docs/a.md": 2}, "q2": {"a.md": 1, str(tmp_path / "docs" / "b.md"): 0}, "q3": {"c1": 1}}
    judged = in_store(opened, JudgedQueries.of("q", {}, relevance), Path("q.jsonl"))
    assert judged.relevance == {"q1": {"docs/a.md": 2}, "q2": {"docs/a.md": 1, "docs/b.md": 0}, "q3": {"c1": 1}}
    assert judged.by_file == {"q1", "q2"}


@pytest.mark.parametrize(
    ("gains", "message"),
    [
        (
            {"docs/c.md": 0, "docs/a.md": 0, "c9": 0},
            r"q\.jsonl: 2 of 3 document ids are not in the store .*'docs/c.md'",
        ),
        ({"docs/a.md": 1, "c3": 1}, r"q\.jsonl names both files and chunks for query 'q': expected only one of them"),
        ({"docs/a.md": 1, "./docs/a.md": 1}, r"q\.jsonl names a file by two paths for query 'q'"),
    ],
)
def test_invalid_judgements_raise(opened, gains, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        in_store(opened, JudgedQueries.of("q", {}, {"q": gains}), Path("q.jsonl"))


GERMAN = [
    "Die Züge fahren heute nicht, weil der Bahnhof gesperrt ist und alle Gleise repariert werden.",
    "Im Garten wachsen Äpfel und Birnen, die wir im Herbst mit den Kindern ernten und lagern.",
    "Das Buch handelt von einem Mann, der mit seinem Hund durch die Berge wandert.",
    "Wer die Häuser am See baut, muss auf den Grund achten, denn er ist weich und nass.",
]


@pytest.mark.parametrize(("language", "best"), [(None, 1.0), ("none", 0.0)])
def test_language_of_documents_is_recognised(language, best):
    documents = {f"d{i}": text for i, text in enumerate(GERMAN)}
    collection = RetrievalCollection("de", documents, {"q": "ein Haus bauen"}, {"q": {"d3": 1}})
    [found] = rank(collection, None, [SearchSettings("lexical", language=language)])
    assert [name for name, _ in found["q"]][:1] == (["d3"] if best else [])

"""Why a file is not among the results: ranks equal those of a full search, and lost words are reported."""

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.errors import ConfigError
from ragembed.indexes import Fusion, SourceRecord, Store
from ragembed.indexes.search.feedback import shares
from ragembed.postprocess import unit_rows

TEXTS = {
    "locks/a": "The writer holds the lock of the store.",
    "locks/b": "A reader never waits for the writer; locked is the store.",
    "wings/a": "Shock wave and boundary layer: supersonic air flow on a wing.",
    "wings/b": "Pressure in the boundary layer of a body at subsonic speed.",
    "animals/a": "The cat sleeps and the dog runs.",
    "animals/b": "The bird flies, the fish swims.",
    "numbers/a": "one two three four five six seven eight nine ten",
}
QUERY = "who holds the lock of the writer?"
SOURCES = [SourceRecord(f"{name}.md", 1, 2, "0" * 64, "r") for name in ("locks", "wings", "animals", "numbers")]


@pytest.fixture(scope="module")
def embedder(tiny_model):
    config = EmbedderConfig(model=str(tiny_model), dtype="float32")
    return Embedder(config).fit(TEXTS.values())


@pytest.fixture
def files(tmp_path, embedder, make_record):
    """A store with one file for each folder name, and one chunk per text."""
    with Store.create(tmp_path / "f", embedder) as made:
        records = [make_record(name, text, name.split("/")[0] + ".md") for name, text in TEXTS.items()]
        with made.writer() as writer:
            writer.stage(record.chunk.embedded_text for record in records)
            writer.commit(chunks=records, sources=SOURCES)
        yield made


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_ranks_equal_those_of_a_full_search(files, mode):
    hits = files.search(QUERY, 7, mode)
    for source in ("wings.md", "animals.md", "locks.md"):
        found = files.why_not(QUERY, source, 2, mode)
        assert (found.source, found.mode, found.chunks) == (source, mode, 2)
        ranked = [(i, hit) for i, hit in enumerate(hits, 1) if hit.source == source]
        if not ranked:
            assert (found.rank_in_mode.rank, found.rank_in_mode.score, found.rank_in_mode.chunk) == (None, None, None)
            continue
        rank, best = ranked[0]
        assert (found.rank_in_mode.rank, found.rank_in_mode.chunk.id) == (rank, best.id)
        assert found.rank_in_mode.score == pytest.approx(best.score, abs=1e-5)
        assert found.rank_in_mode.needed == pytest.approx(hits[1].score, abs=1e-5)
        assert found.chunk.id == best.id


def test_words_missing_in_the_file(files):
    found = files.why_not("lock writer cat", "animals.md", 2, "lexical")
    results = [hit for hit in files.search("lock writer cat", 2, "lexical") if hit.source != "animals.md"]
    assert found.results == len(results)
    lost = {phrase.phrase: phrase for phrase in found.phrases}
    assert lost.keys() == {"writer", "lock"}
    for phrase in lost.values():
        assert (phrase.here, phrase.in_file) == (0.0, False)
        assert phrase.results > 0
        assert phrase.found_in == sum(phrase.phrase in hit.chunk.text for hit in results)
    assert found.words == ()


def test_words_that_count_less_in_the_file(files):
    found = files.why_not(QUERY, "numbers.md", 3, "dense")
    results = [each for each in files.explain(QUERY, 3, "dense") if each.hit.source != "numbers.md"]
    [own] = [each for each in files.explain(QUERY, 7, "dense") if each.hit.source == "numbers.md"]
    here = {share.word: share.value for share in own.contributions.query_words() if share.origin == "text"}
    there = [{s.word: s.value for s in each.contributions.query_words()} for each in results]
    for word in found.words:
        assert word.here == pytest.approx(here[word.word], abs=1e-6)
        assert word.results == pytest.approx(np.mean([each[word.word] for each in there]), abs=1e-6)
        assert word.here < word.results
    losses = [word.here - word.results for word in found.words]
    assert losses == sorted(losses)
    assert {word for word in here if here[word] < np.mean([each[word] for each in there])} == {
        word.word for word in found.words
    }
    assert found.phrases == ()


def test_score_of_a_file_that_is_not_a_candidate(tmp_path, make_encoder, make_record):
    """Two hundred chunks rank higher by vectors, and more than that by words."""
    table = {"asked word": (1.0, 0.0), "far": (-1.0, 0.0)}
    table |= {f"word near {i}": (1.0, i / 1000) for i in range(250)}
    with Store.create(tmp_path / "s", make_encoder(table)) as store:
        records = [make_record(text, text, "wings.md" if text == "far" else "locks.md") for text in table]
        with store.writer() as writer:
            writer.stage(record.chunk.embedded_text for record in records)
            writer.commit(chunks=records, sources=SOURCES)
        found = store.why_not("asked word", "wings.md", 10)
        hybrid = found.rank_in_mode
        assert hybrid.rank is None
        assert hybrid.of < 252
        assert hybrid.score < hybrid.needed
        best = store.explain("asked word", 10)[-1]
        cosine = -best.dense.line.origin + found_cosine(store, "asked word", best)
        expected = 0.6 * cosine / best.dense.line.unit
        expected -= sum(part.factor * part.line.origin for part in (best.lexical, best.shared))
        assert hybrid.score == pytest.approx(expected, abs=1e-4)
        assert "does not know their tokens" in found.note
        ranked = store.why_not("asked word", "wings.md", 10, fusion=Fusion("rrf")).rank_in_mode
        assert (ranked.rank, ranked.score) == (None, None)


def found_cosine(store, question, explanation):
    """The cosine of the query, moved towards the best three, with the opposite vector."""
    best = store.vectors([record.id for record in explanation.towards])
    [query] = unit_rows(np.array([[1.0, 0.0]], dtype=np.float32))
    first = store.search(question, 100, fusion=Fusion(feedback=0.0))
    weights = 0.75 * shares(np.array([hit.score for hit in first]), 3)
    [moved] = unit_rows((query + weights @ best)[None])
    return float(moved @ store.vectors(["far"])[0])


def test_file_that_was_never_indexed_is_refused(files):
    with pytest.raises(ConfigError, match="never indexed, or was deleted; add it with 'ragembed index PATH'"):
        files.why_not(QUERY, "nothing.md")
    with pytest.raises(ConfigError, match=r"did you mean locks\.md\?"):
        files.why_not(QUERY, "docs/Locks")

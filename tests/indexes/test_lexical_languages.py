"""The language of a store selects the stemmer for its words."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import snowballstemmer as snowball

from ragembed.errors import ConfigError, IncompatibleStoreError, StoreDamagedError
from ragembed.indexes import Store
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.lexical import analyzer
from ragembed.indexes.lexical.analyzer import stemmer
from ragembed.indexes.storage import schema
from ragembed.indexes.verification import verify_store
from tests.conftest import KnownEncoder, record


@pytest.fixture
def forget():
    """Clear the cached stemmers before and after the test."""

    def clear():
        stemmer.cache_clear()
        analyzer.of_language.cache_clear()

    clear()
    yield clear
    clear()


def made(folder, language, texts):
    store = Store.create(folder / "store", KnownEncoder(), language=language)
    store.add(record(name, text) for name, text in texts.items())
    return store


def found(store, query):
    return {hit.id for hit in store.search(query, 99, "lexical")}


GERMAN = {"a": "Die schönen Häuser stehen dort.", "b": "Wer läuft am schnellsten?", "c": "Running in den Straßen"}


@pytest.mark.parametrize(
    ("language", "query", "ids"),
    [
        ("german", "Haus", {"a"}),
        ("german", '"schönes Haus"', {"a"}),
        ("german", "Strasse", {"c"}),
        ("english", "hauser", {"a"}),
        ("english", "runs", {"c"}),
        ("none", "runs", set()),
    ],
)
def test_words_are_found_by_their_stems(tmp_path, language, query, ids):
    with made(tmp_path, language, GERMAN) as store:
        assert found(store, query) == ids
        assert store.language == store.status()["language"] == language


@pytest.mark.parametrize(
    ("language", "written", "asked"),
    [
        ("french", "les généralisations de l'avion", "généralisation"),
        ("russian", "красивые дома", "красивый дом"),
        ("arabic", "الكتب", "كتب"),
    ],
)
def test_languages_of_snowball(tmp_path, language, written, asked):
    with made(tmp_path, language, {"a": written, "b": "東京都"}) as store:
        assert found(store, asked) == {"a"}
        assert found(store, "京都") == {"b"}
        store.delete(["a"])
        assert found(store, asked) == set()
        assert store.verify().problems == []


def test_store_keeps_its_language(tmp_path):
    with made(tmp_path, "german", GERMAN) as store:
        store.add([record("d", "viele Häuser"), record("a", "kein Wort")])
        assert found(store, "Haus") == {"d"}
        store.optimize()
        store.copy(tmp_path / "copy")
    for path in (tmp_path / "store", tmp_path / "copy"):
        with Store.open(path, KnownEncoder()) as again:
            assert (again.language, found(again, "Haus")) == ("german", {"d"})
        assert verify_store(path, KnownEncoder()).problems == []


def test_unknown_language_raises_and_lists_languages(tmp_path):
    with pytest.raises(ConfigError, match=r"'klingon': expected english, .*german.*none"):
        Store.create(tmp_path / "s", KnownEncoder(), language="klingon")
    assert not (tmp_path / "s").exists()


def test_new_release_of_the_stemmer_rebuilds_the_index(tmp_path, forget, monkeypatch):
    with made(tmp_path, "german", GERMAN) as store:
        forget()
        monkeypatch.setattr(snowball, "stemmer", lambda language: type("S", (), {"stemWord": lambda self, w: w[:3]})())
        monkeypatch.setattr("importlib.metadata.version", lambda package: "9.7.1")
        store.delete(["b"])
        assert found(store, "Häufung") == {"a"}
        assert found(store, "läuft") == set()
        assert store.verify().problems == []
        generation = store.status()["generation"]
        store.delete(["nobody"])
        assert store.status()["generation"] == generation


def test_stemmer_is_thread_safe():
    words = [f"{word}{ending}" for word in ("häus", "strass", "lauf", "gross") for ending in ("er", "en", "ern", "es")]
    alone = [snowball.stemmer("german").stemWord(word) for word in words] * 200
    stemmer.cache_clear()
    stem = stemmer("german")
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(stem, words * 200)) == alone


# The store


def edit(store, script):
    with closing(sqlite3.connect(store / "store.db")) as connection:
        schema.register(connection)
        connection.executescript(script)


@pytest.mark.parametrize(
    "value",
    ['{"language": "german", "stemmer": null}', '{"language": 5, "stemmer": null}', "{"],
)
def test_database_with_another_language_than_its_index_is_damaged(tmp_path, value):
    made(tmp_path, "english", GERMAN).close()
    edit(tmp_path / "store", f"UPDATE meta SET value = '{value}' WHERE key = 'words'")
    with pytest.raises(StoreDamagedError, match=r"store"):
        Store.open(tmp_path / "store", KnownEncoder())


def test_store_without_a_language_is_english(tmp_path):
    made(tmp_path, "english", GERMAN).close()
    edit(tmp_path / "store", "DELETE FROM meta WHERE key = 'words'")
    with Store.open(tmp_path / "store", KnownEncoder()) as store:
        assert (store.language, found(store, "runs")) == ("english", {"c"})


# Files


@pytest.fixture
def docs(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("Die schönen Häuser stehen dort.", encoding="utf-8")
    return folder


def test_language_of_indexed_files_is_kept_in_the_store(tmp_path, docs, tiny_config):
    store = tmp_path / "store"
    index_files(IndexingRequest(store, (docs,), embedder=tiny_config, language="german"))
    (docs / "b.txt").write_text("Ein Haus am See.", encoding="utf-8")
    for language in (None, "german"):
        index_files(IndexingRequest(store, language=language))
        with Store.open(store) as opened:
            assert {hit.source for hit in opened.search("Haus", 9, "lexical")} == {"docs/a.txt", "docs/b.txt"}
    with pytest.raises(IncompatibleStoreError, match=r"was made with the language german, not english: .*--store"):
        index_files(IndexingRequest(store, language="english"))

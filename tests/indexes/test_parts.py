"""Small parts: where a store is, match expressions, fusion, the spool, the lock."""

from pathlib import Path

import numpy as np
import pytest

from ragembed.documents.model import Chunk
from ragembed.errors import ConfigError
from ragembed.indexes.indexing.scan import Spool, spool_line
from ragembed.indexes.lexical.analyzer import ENGLISH, of_language
from ragembed.indexes.lexical.fulltext import match_expression
from ragembed.indexes.search.fusion import METHODS, Fusion
from ragembed.indexes.storage.layout import NamesInStore, choose_store, file_path, is_below, source_path
from ragembed.indexes.types import SourceRecord


def test_store_is_found_in_parent_folders(in_folder, monkeypatch):
    deep = in_folder / "a" / "b"
    deep.mkdir(parents=True)
    assert choose_store(None, deep) == deep / ".ragembed"
    (in_folder / ".ragembed").mkdir()
    (in_folder / ".ragembed" / "store.db").write_text("")
    assert choose_store(None, deep) == in_folder / ".ragembed"
    monkeypatch.setenv("RAGEMBED_STORE", str(in_folder / "named"))
    assert choose_store(None, deep) == in_folder / "named"
    assert choose_store(in_folder / "given", deep) == in_folder / "given"


def test_file_names_are_relative_to_the_store(tmp_path):
    store = tmp_path / "project" / ".ragembed"
    for file, name in (("project/docs/a.md", "docs/a.md"), ("other/b.md", "../other/b.md"), ("project", ".")):
        assert source_path(tmp_path / file, store) == name
        assert file_path(name, store) == tmp_path / file


@pytest.mark.parametrize("file", ["./a.md", "docs/../a.md", "../b.md", "/a.md", "/x/a.md", "\udcff/b\udcfe.md"])
@pytest.mark.parametrize("store", ["docs/.ragembed", "../s", "/s"])
def test_names_of_many_files_equal_single_names(in_folder, file, store):
    names = NamesInStore(Path(store))
    for path in (Path(file), Path(file).absolute()):
        assert names.of(path) == names.of(path) == source_path(path, Path(store))


@pytest.mark.parametrize(
    ("source", "root", "below"),
    [
        ("docs2/a.md", "docs", False),
        ("a.md", ".", True),
        ("../../a.md", "..", False),
        ("../a.md", "../b", False),
        ("/xy/a.md", "/x", False),
        ("a.md", "/", False),
    ],
)
def test_is_below(source, root, below):
    assert is_below(source, root) is below


@pytest.mark.parametrize(
    ("query", "expression"),
    [
        ("what is faiss.IndexFlat?", '"faiss.IndexFlat?" OR "faiss" OR "IndexFlat"'),
        ("What's the IT budget?", '"IT" OR "budget"'),
        ("Why don’t WE do it?", '"WE" OR "it"'),
        ("WHO OR WHAT, ?", '"WHO" OR "OR" OR "WHAT"'),
        ('"to be" or the', '"to be"'),
        ("error 0x80070005 AND NOT (x*)", '"error" OR "0x80070005" OR "AND" OR "NOT" OR "x"'),
        ("?! --", None),
        ("日本語", '"日本 本語" OR "日本" OR "本語"'),
        ('"日本語" 猫', '"日本 本語" OR "猫"*'),
        ("caf\udce9 a\0b", '"caf" OR "b"'),
    ],
)
def test_match_expression(query, expression):
    assert match_expression(query, of_language(ENGLISH)) == expression


def test_fusion_by_hand():
    dense, words = np.array([1.0, 0.0, -1.0]), np.array([0.0, 0.0, 3.0])
    z = np.sqrt(1.5)
    expected = [0.6 * z - 0.4 * np.sqrt(0.5), -0.4 * np.sqrt(0.5), -0.6 * z + 0.4 * np.sqrt(2)]
    np.testing.assert_allclose(Fusion().scores(dense, words), expected)
    np.testing.assert_allclose(Fusion("minmax").scores(dense, words), [0.6, 0.3, 0.4])
    reciprocal = [0.6 / 61, 0.6 / 62, 0.6 / 63 + 0.4 / 61]
    np.testing.assert_allclose(Fusion("rrf").scores(dense, words), reciprocal)
    np.testing.assert_allclose(Fusion("rrf", alpha=0.5, rrf_k=1).scores(words, words), [0.5 / 3, 0.5 / 3, 0.5])


@pytest.mark.parametrize(
    "settings",
    [{"method": "sum"}, {"alpha": -0.1}, {"alpha": 1.1}, {"alpha": np.nan}, {"feedback": -1}, {"rrf_k": 0}],
)
def test_invalid_fusion_is_an_error(settings):
    [value] = settings.values()
    with pytest.raises(ConfigError, match=f"{value}"):
        Fusion(**settings)


def test_fusion_of_equal_scores():
    noise = np.array([0.7, 0.7, np.nextafter(0.7, 1)])
    for method in ("zscore", "minmax"):
        assert Fusion(method).scores(np.ones(3), np.zeros(3)).tolist() == [0, 0, 0]
        assert Fusion(method).scores(noise, noise).tolist() == [0, 0, 0]
    for method in METHODS:
        assert Fusion(method).scores(np.ones(0), np.ones(0)).tolist() == []


def test_spool_returns_its_entries(tmp_path):
    source = SourceRecord("a.md", 1, 2, "3", "4")
    chunks = [Chunk("text 🎉\ud800", ("A", "B"), "T", 1, 2, None, 9, {"k": [1, None]}), Chunk("plain")]
    with Spool() as spool:
        spool.append(spool_line(source, chunks), len(chunks))
        spool.append(spool_line(SourceRecord("b.md", 0, 0, "", ""), []), 0)
        assert spool.chunks == 2
        assert list(spool) == list(spool) == [(source, chunks), (SourceRecord("b.md", 0, 0, "", ""), [])]

"""The public API: ``ragembed.index``, ``ragembed.search`` and adding texts to a store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ragembed
from ragembed.errors import ConfigError, StoreNotFoundError
from ragembed.indexes import Store
from tests.conftest import KnownEncoder


@pytest.fixture
def docs(in_folder: Path) -> Path:
    (in_folder / "docs").mkdir()
    (in_folder / "docs" / "lock.md").write_text("the writer holds the lock of the store")
    (in_folder / "docs" / "wing.md").write_text("air flows over the wing of a bird")
    return in_folder


def test_index_and_search(docs: Path, tiny_config: Any) -> None:
    report = ragembed.index("docs", embedder=tiny_config)
    assert (report.chunks, sorted(report.scan.added)) == (2, ["docs/lock.md", "docs/wing.md"])
    assert re.fullmatch(r"files: 2 added, 0 .*; 2 chunks, 2 embedded on cpu; [0-9.]+ s", str(report))
    assert "2 unchanged" in repr(ragembed.index("docs", embedder=tiny_config))
    hits = ragembed.search("who holds the lock", k=1, mode="lexical")
    assert [(type(hit), hit.source) for hit in hits] == [(ragembed.Hit, "docs/lock.md")]
    assert ragembed.search("lock", mode="lexical", where="path = 'docs/wing.md'") == []
    (docs / "docs" / "wing.md").unlink()
    assert ragembed.index().scan.removed == ["docs/wing.md"]


def test_paths_and_stores_may_be_str_path_or_list(docs: Path, tiny_config: Any) -> None:
    ragembed.index([Path("docs/lock.md"), "docs/wing.md"], "named", embedder=tiny_config)
    assert len(ragembed.search("wing", Path("named"), mode="lexical")) == 1


def test_missing_store_and_empty_paths_are_errors(in_folder: Path) -> None:
    with pytest.raises(StoreNotFoundError):
        ragembed.search("lock")
    with pytest.raises(ConfigError, match="nothing to index"):
        ragembed.index()
    for empty in (("docs", ""), ("",)):
        with pytest.raises(ConfigError, match="empty"):
            ragembed.index(*empty)


def test_texts_are_added_with_ids_and_metadata(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s", KnownEncoder()) as store:
        assert store.add(["one", "two"], ids=["a", "b"], metadata=[{"n": 1}, {"n": 2}]) == ["a", "b"]
        assert [hit.id for hit in store.search("two", mode="lexical", where="n = 2")] == ["b"]
        store.add(["other"], ids=["b"])
        assert [record.chunk.text for record in store.get(["a", "b"])] == ["one", "other"]


def test_duplicate_text_is_kept_once_unless_metadata_differs(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s", KnownEncoder()) as store:
        first = store.add(["tea", "tea"], metadata=[{"n": 1}, {"n": 2}])
        assert store.add(["tea"], metadata=[{"n": 1}]) == first[:1]
        assert len(store) == len(set(first)) == 2


@pytest.mark.parametrize(
    ("chunks", "about"),
    [
        (["a", "b"], {"ids": ["a"]}),
        (["a"], {"metadata": [{}, {}]}),
        ("a text", {}),
    ],
)
def test_different_counts_are_an_error(tmp_path: Path, chunks: Any, about: Any) -> None:
    with Store.create(tmp_path / "s", KnownEncoder()) as store:
        with pytest.raises(ConfigError, match="expected"):
            store.add(chunks, **about)
        assert len(store) == 0


def test_records_do_not_accept_ids(tmp_path: Path, make_record: Any) -> None:
    with Store.create(tmp_path / "s", KnownEncoder()) as store, pytest.raises(ConfigError, match="texts only"):
        store.add([make_record("a", "text")], ids=["a"])

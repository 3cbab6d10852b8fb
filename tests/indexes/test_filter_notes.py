"""Notes on filters that cannot match, and the forms of paths that filters understand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ragembed
from ragembed import Store
from ragembed.indexes import Collection
from ragembed.indexes.filters import And, Comparison, Field, Glob, Not, Or, Where
from ragembed.indexes.filters.globs import path_in_store

ROWS = '{"text": "Tea.", "topic": "kitchen", "tags": ["x"], "price": {"eur": 1}, "year": 2020, "new": true}\n'
LIST = "its values are lists: the comparison is never true; to compare the elements of a list, use CONTAINS"


def make_store(folder: Path, tiny_model: Path) -> Path:
    (folder / "docs" / "deep").mkdir(parents=True)
    for name in ("docs/rows.jsonl", "docs/deep/more.jsonl", "top.jsonl"):
        (folder / name).write_text(ROWS)
    settings = ragembed.EmbedderConfig(extractor="re:dim=8", model=str(tiny_model))
    ragembed.index(folder, store=folder / ".ragembed", embedder=settings)
    return folder / ".ragembed"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Store]:
    with Store.open(make_store(tmp_path_factory.mktemp("notes") / "root", tiny_model)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("where", "note"),
    [
        ("topik = 'kitchen'", "no chunk has the field 'topik': did you mean 'topic'?"),
        ("topik LIKE '%' OR year > 1", "no chunk has the field 'topik': did you mean 'topic'?"),
        ("zzz CONTAINS 1", "no chunk has the field 'zzz': expected one of new, price, tags, topic, year, path, source"),
        ("mtme > 5", "no chunk has the field 'mtme': did you mean 'mtime'?"),
        ("price.euro = 1", "no chunk has the field 'price.euro': did you mean 'price.eur'?"),
        ("topic.name = 1", "the field 'topic' has no keys: its values are strings"),
        ("tags IN ('x', 5)", f"the field 'tags' is compared with a number or a string, but {LIST}"),
        ({"tags": {"$nin": ["x"]}}, f"the field 'tags' is compared with a string, but {LIST}"),
        ("price = 1", "but its values are objects: the comparison is never true; to compare a value in an"),
        ("year CONTAINS 2", "the field 'year' is compared with an element of a list, but its values are numbers"),
        ({"new": "yes"}, "the field 'new' is compared with a string, but its values are booleans"),
        ("path = 'docs/none'", "no indexed file has the path 'docs/none': expected a path relative to the folder"),
        ("path = 'docs'", "no indexed file has the path 'docs': to select the files in this folder, write path"),
        ("path GLOB './docs'", "no indexed file has a path like './docs': to select the files in this folder, write"),
        ("source IN ('a', 'b')", "no indexed file has one of the paths 'a', 'b'"),
        ({"path": {"$like": "%.pdf"}}, "no indexed file has a path like '%.pdf'"),
    ],
)  # fmt: skip
def test_filter_that_cannot_match_has_a_note(store: Store, where: Where, note: str) -> None:
    [found] = store.filter_notes(where)
    assert note in found


@pytest.mark.parametrize(
    "where",
    [
        "topic = 'none' AND year > 3000 AND new = false AND price.eur < 0 AND tags CONTAINS 'none'",
        "topik IS NULL OR price.zzz = 1 OR price IS NOT NULL OR year IN ('a', 1)",
        "title = 'x' OR page = 3 OR headings CONTAINS 'x' OR mtime > '2020-01-01' OR mtime > 5",
        "path = 'top.jsonl' AND path GLOB '*.jsonl' AND path > 'z'",
        {"$contains": "none"},
    ],
)
def test_filter_that_can_match_has_none(store: Store, where: Where) -> None:
    assert store.filter_notes(where) == []


def test_collection_notes_what_no_store_can_match(store: Store, tmp_path: Path, tiny_model: Path) -> None:
    other = make_store(tmp_path / "other", tiny_model)
    (tmp_path / "other" / "new.jsonl").write_text('{"text": "Wing.", "speed": 1, "topik": 2}\n')
    ragembed.index(tmp_path / "other", store=other)
    with Collection.open({"one": store.path, "other": other}) as both:
        assert both.filter_notes("speed = 1 AND topik = 2") == []
        [note] = both.filter_notes("zzz = 1 AND speed = 1")
        assert note.startswith("no chunk has the field 'zzz'")


ALL = ["docs/deep/more.jsonl", "docs/rows.jsonl", "top.jsonl"]


def paths(store: Store, where: Where) -> list[str]:
    return sorted(str(record.source) for record in store.chunks(where=where))


@pytest.mark.parametrize(
    ("written", "places", "folder"),
    [
        ("{root}/docs/rows.jsonl", ALL[1:2], ALL[1:2]),
        ("docs/./deep/../rows.jsonl", ALL[1:2], ALL[1:2]),
        ("{link}/top.jsonl", ALL[2:], ALL[2:]),
        ("./docs", [], ALL[:2]),
        ("{root}", [], ALL),
        ("doc", [], []),
    ],
)
def test_paths_are_understood_as_a_shell_completes_them(
    store: Store, tmp_path: Path, written: str, places: list[str], folder: list[str]
) -> None:
    (tmp_path / "link").symlink_to(store.path.parent)
    path = written.format(root=store.path.parent, link=tmp_path / "link")
    field = Field("path")
    assert paths(store, Comparison(field, "=", path)) == places
    assert paths(store, {"source": {"$in": [path, "none"]}}) == places
    assert paths(store, Not(Comparison(field, "=", path))) == sorted(set(ALL) - set(places))
    assert paths(store, Glob(field, path)) == places
    assert paths(store, Glob(field, path, or_below=True)) == folder
    assert (store.filter_notes(Glob(field, path, or_below=True)) == []) == bool(folder)


def test_globs_may_be_absolute(store: Store) -> None:
    root = store.path.parent
    assert paths(store, Glob(Field("path"), f"{root}/docs/*.jsonl")) == ALL[1:2]
    assert paths(store, Glob(Field("path"), "./*.jsonl")) == ALL[2:]
    assert paths(store, Glob(Field("path"), "./**/*.jsonl")) == ALL
    either = Or(tuple(Glob(Field("path"), name, or_below=True) for name in ("docs/deep", "*p.jsonl")))
    assert paths(store, And((either, Comparison(Field("year"), "=", 2020)))) == [ALL[0], ALL[2]]


def test_files_above_the_root_and_urls_keep_their_names() -> None:
    root = Path("/home/me/project")
    assert path_in_store("/home/me/other/a.md", root) == "../other/a.md"
    assert path_in_store("../other/./a.md", root) == "../other/a.md"
    assert path_in_store("s3://bucket/./a.md", root) == "s3://bucket/./a.md"
    assert path_in_store("/home/me/project/docs/*.md", None) == "/home/me/project/docs/*.md"

"""Stores search normalised text: they find what a reader sees, and show what the file contains."""

import pytest

from ragembed.documents import chunking
from ragembed.indexes import Store
from ragembed.indexes.indexing import scan

FILES = {
    "ligature.txt": "the uni\ufb01ed writer holds the lock\n",
    "hyphen.txt": "the store has inter-\nnational zebras; international ones\n",
    "soft.txt": "a Daten\u00adschutz lock in the folder\n",
    "width.md": "# \uff33tores\u00ad and \ufb01les\n\nthe \uff57riter of H\u2082O\n",
    "ascii.txt": "the reader is in a plain folder\n",
}


@pytest.fixture
def docs(in_folder):
    (in_folder / "docs").mkdir()
    for name, text in FILES.items():
        (in_folder / "docs" / name).write_text(text)
    return in_folder / "docs"


QUERIES = {
    "unified": "ligature.txt",
    "UNI\ufb01ed": "ligature.txt",
    "international": "hyphen.txt",
    "datenschutz": "soft.txt",
    "H2O": "width.md",
    "stores files": "width.md",
}


def test_words_are_found_however_they_are_written(docs, run, in_folder):
    run(docs)
    with Store.open(in_folder / ".ragembed") as store:
        for query, name in QUERIES.items():
            [hit], [explained] = store.search(query, 1, "lexical"), store.explain(query, 1, "lexical")
            assert hit.source == explained.hit.source == f"docs/{name}"
            assert store.why_not(query, f"docs/{name}", mode="lexical").ranks[0].rank == 1


def test_shown_text_and_lines_are_those_of_the_file(docs, run, in_folder):
    run(docs)
    with Store.open(in_folder / ".ragembed") as store:
        found = {record.source: record.chunk for record in store.chunks()}
        assert store.verify().problems == []
    assert {name: found[f"docs/{name}"].text for name in FILES} == {name: text.strip() for name, text in FILES.items()}
    hyphen, ascii_only = found["docs/hyphen.txt"], found["docs/ascii.txt"]
    assert (hyphen.start_line, hyphen.end_line) == (1, 2)
    assert hyphen.searched == "the store has international\n zebras; international ones"
    assert ascii_only.searched is None
    assert found["docs/width.md"].headings == ("Stores and files",)


def test_dense_search_embeds_the_normalised_text(docs, run, in_folder):
    (docs / "plain.txt").write_text("the unified writer holds the lock\n")
    run(docs)
    with Store.open(in_folder / ".ragembed") as store:
        first, second = store.search("the uni\ufb01ed writer holds the lock", 2, "dense")
        assert {first.source, second.source} == {"docs/ligature.txt", "docs/plain.txt"}
        assert first.score == second.score
        assert store.status()["vectors"] == len(FILES)


def test_old_stores_are_updated_by_the_next_run(docs, run, in_folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(chunking, "VERSION", 1)
        patch.setattr(scan, "normalised_file", list)
        run(docs)
    with Store.open(in_folder / ".ragembed") as store:
        assert store.search("unified", 1, "lexical") == []
    report = run()
    assert len(report.scan.changed) == len(FILES)
    assert report.encoded == len(FILES) - 1  # ASCII text keeps its vector
    again = run()
    assert (again.scan.changed, again.encoded) == ([], 0)
    with Store.open(in_folder / ".ragembed") as store:
        assert store.search("unified", 1, "lexical")[0].source == "docs/ligature.txt"


def test_added_texts_are_normalised(tmp_path, encoder, make_record):
    with Store.create(tmp_path / "store", encoder) as store:
        store.add(["the uni\ufb01ed lock"], ids=["text"])
        store.add([make_record("record", "a no\u00a0break zebra")])
        assert store.search("unified", 1, "lexical")[0].chunk.text == "the uni\ufb01ed lock"
        assert store.get(["record"])[0].chunk.searched == "a no break zebra"

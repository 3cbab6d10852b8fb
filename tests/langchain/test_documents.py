from __future__ import annotations

from pathlib import Path

from langchain_core.documents import Document

from ragembed.documents.model import Chunk
from ragembed.indexes import ChunkRecord, SourceRecord, Store
from ragembed.langchain import RagEmbeddings, RagVectorStore
from ragembed.langchain.documents import to_document, to_record


def test_document_is_returned_unchanged() -> None:
    document = Document(id="own", page_content="text", metadata={"source": "s", "page": "iv", "headings": "none"})
    record = to_record(document, "1")
    assert (record.source, record.chunk.page, record.chunk.headings) == (None, None, ())
    assert record.chunk.embedded_text == "text"
    assert to_document(record) == Document(id="1", page_content="text", metadata=document.metadata)
    assert record.chunk.metadata is not document.metadata


def test_chunk_of_file_has_its_place_in_metadata() -> None:
    chunk = Chunk("text", ("A", "B"), "Title", 3, 5, 2, metadata={"author": "x", "source": "theirs"})
    assert to_document(ChunkRecord("1", chunk, "docs/a.md")).metadata == {
        "author": "x",
        "source": "docs/a.md",
        "title": "Title",
        "headings": ["A", "B"],
        "start_line": 3,
        "end_line": 5,
        "page": 2,
    }


def test_missing_places_are_left_out() -> None:
    assert to_document(ChunkRecord("1", Chunk("text", start_line=1, end_line=1), "a.py")).metadata == {
        "source": "a.py",
        "start_line": 1,
        "end_line": 1,
    }
    assert to_document(ChunkRecord("1", Chunk("text"))).metadata == {}


def test_stores_are_shared_with_the_command_line(fitted: RagEmbeddings, tmp_path: Path) -> None:
    source = SourceRecord("notes/cats.md", 10, 0, "0" * 64, "pipeline_hash")
    chunk = Chunk("Cats sleep.", ("Cats",), "Animals", 4, 4, metadata={"lang": "en"})
    with Store.create(tmp_path, fitted.embedder) as made, made.writer() as writer:
        writer.stage([chunk.embedded_text])
        writer.commit(chunks=[ChunkRecord("c1", chunk, source.path)], sources=[source])

    with RagVectorStore(path=tmp_path) as store:
        expected = Document(
            id="c1",
            page_content="Cats sleep.",
            metadata={
                "lang": "en",
                "source": "notes/cats.md",
                "title": "Animals",
                "headings": ["Cats"],
                "start_line": 4,
                "end_line": 4,
            },
        )
        assert store.similarity_search("feline") == store.get_by_ids(["c1"]) == [expected]
        store.add_texts(["Dogs bark."], [{"n": 1}], ids=["d1"])

    with Store.open(tmp_path) as opened:
        assert opened.search("dogs")[0].chunk == Chunk("Dogs bark.", metadata={"n": 1})
        assert opened.get(["c1"]) == [ChunkRecord("c1", chunk, source.path)]

    with RagVectorStore(path=tmp_path) as store:
        store.delete()
    with Store.open(tmp_path) as opened:
        assert opened.status()["files"] == 0  # otherwise the next indexing run would skip the file

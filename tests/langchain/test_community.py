"""Reading folders of langchain-community's FAISS store as data."""

from __future__ import annotations

import math
import pickle  # noqa: TID251  files of old versions are made with it
import sys
import types
import uuid
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from langchain_core.documents import Document

from ragembed.errors import StoreDamagedError, StoreError, StoreNotFoundError
from ragembed.langchain.community import is_folder, read_docstore, read_folder

from .community_folders import IDS, METADATA, PLAIN, TEXTS, docstore, name, opcodes, save_all, whole, with_metadata
from .fakes import Angles

EXPECTED = [
    Document(id=key, page_content=text, metadata=metadata)
    for key, text, metadata in zip(IDS, TEXTS, METADATA, strict=True)
]
LATER = Document(id="d", page_content="45")
UNIT = np.array(Angles().embed_documents(TEXTS), dtype=np.float32)


def written(folder: Path, data: bytes) -> Path:
    file = folder / "index.pkl"
    file.write_bytes(data)
    return file


def metadata_of(folder: Path, value: Any) -> Any:
    """Return the metadata ``m`` of a document after it is read."""
    return read_docstore(written(folder, with_metadata(opcodes(value))))[0]["x"].metadata["m"]


# Folders written by langchain-community


@pytest.mark.parametrize(
    ("folder", "documents", "vectors", "dropped"),
    [
        ("l2", EXPECTED, UNIT, 0),
        ("inner", EXPECTED, 2 * UNIT, 0),
        ("ivf", EXPECTED, UNIT, 0),
        ("hnsw", EXPECTED, UNIT, 0),
        ("deleted", [EXPECTED[0], EXPECTED[2]], UNIT[[0, 2]], 0),
        ("refused", EXPECTED, UNIT, 1),
        ("shifted", [*EXPECTED, LATER], [*UNIT, [-1.0, 0.0]], 1),  # "45" has the vector of "180", whose addition failed
    ],
)
def test_golden_folders_are_read(
    golden: Path, folder: str, documents: list[Document], vectors: Any, dropped: int
) -> None:
    index_name = "other" if folder == "inner" else "index"
    assert is_folder(golden / folder, index_name)
    found = read_folder(golden / folder, index_name)
    assert found.documents == documents
    assert found.vectors.dtype == np.float32
    np.testing.assert_allclose(found.vectors, vectors, rtol=0, atol=1e-7)
    assert found.dropped == dropped


def test_metadata_are_converted_to_json_values(golden: Path) -> None:
    (document,) = read_folder(golden / "rich").documents
    assert document.metadata == PLAIN
    assert [type(value) for value in document.metadata.values()] == [type(value) for value in PLAIN.values()]


def test_ids_are_converted_to_text(golden: Path, tmp_path: Path) -> None:
    assert [document.id for document in read_folder(golden / "odd-ids").documents] == ["7", "-8"]
    key = uuid.UUID(int=9)
    documents, ids = read_docstore(written(tmp_path, docstore({key: Document("text")})))
    assert documents == {str(key): Document("text", id=str(key))}
    assert ids == {0: str(key)}


def test_golden_folders_are_up_to_date(golden: Path, tmp_path: Path) -> None:
    save_all(tmp_path / "now")
    names = sorted(folder.name for folder in golden.iterdir())
    assert names == sorted(folder.name for folder in (tmp_path / "now").iterdir())
    for folder in names:
        index_name = "other" if folder == "inner" else "index"
        then, now = read_folder(golden / folder, index_name), read_folder(tmp_path / "now" / folder, index_name)
        assert then.documents == now.documents
        assert then.vectors.tolist() == now.vectors.tolist()


class OldDocument:
    """An object that is pickled like documents of pydantic 1."""

    def __init__(self, fields: dict[str, Any], state: str) -> None:
        self.fields, self.state = fields, state

    def __getstate__(self) -> dict[str, Any]:
        added = {"__private_attribute_values__": {}} if self.state == "1.10" else {}
        return {"__dict__": self.fields, "__fields_set__": set(self.fields), **added}


class OldDocstore:
    def __init__(self, documents: dict[str, Any]) -> None:
        self._dict = documents


def renamed(monkeypatch: pytest.MonkeyPatch, kind: type, module: str, name: str) -> type:
    """Return a class like ``kind`` that pickle writes under this name."""
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        path = ".".join(parts[:end])
        if path not in sys.modules:
            monkeypatch.setitem(sys.modules, path, types.ModuleType(path))
    like = type(name, (kind,), {"__module__": module, "__qualname__": name})
    monkeypatch.setattr(sys.modules[module], name, like, raising=False)
    return like


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize(
    ("module", "document", "pydantic", "more"),
    [
        ("langchain.docstore.in_memory", "langchain.docstore.document", "1.6", {"lookup_str": "", "lookup_index": 0}),
        ("langchain.docstore.in_memory", "langchain.schema", "1.10", {"lookup_str": "", "lookup_index": 0}),
        ("langchain.docstore.in_memory", "langchain.schema.document", "1.10", {}),
        ("langchain.docstore.in_memory", "langchain_core.documents.base", "1.10", {"type": "Document"}),
        ("langchain_community.docstore.in_memory", "langchain_core.documents.base", "1.10", {"id": None}),
    ],
)
def test_files_of_old_versions_are_read(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    module: str,
    document: str,
    pydantic: str,
    more: dict[str, Any],
    protocol: int,
) -> None:
    kept = renamed(monkeypatch, OldDocstore, module, "InMemoryDocstore")
    old = renamed(monkeypatch, OldDocument, document, "Document")
    documents = {
        key: old({"page_content": text, **more, "metadata": metadata}, pydantic)
        for key, text, metadata in zip(IDS, TEXTS, METADATA, strict=True)
    }
    file = written(tmp_path, pickle.dumps((kept(documents), dict(enumerate(IDS))), protocol))
    assert read_docstore(file) == ({document.id: document for document in EXPECTED}, dict(enumerate(IDS)))


# Metadata and shapes


def test_other_dictionaries_and_sets_become_plain_ones(tmp_path: Path) -> None:
    value = {"m": defaultdict(list, {"a": [OrderedDict(b=1)], 3: [None]}), "s": [{"b", "a"}, frozenset({2})]}
    plain = {"m": {"a": [{"b": 1}], "3": [None]}, "s": [["a", "b"], [2]]}
    assert metadata_of(tmp_path, value) == plain
    file = written(tmp_path, docstore(opcodes({"x": Document("text", metadata=value)}, 4), {0: "x"}))
    assert read_docstore(file)[0]["x"].metadata == plain


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"bytes", "is of type bytes"),
        (math.inf, "is inf"),
        ({None: 1}, "has a key that is of type NoneType: expected text"),
        ({True: 1}, "has a key that is of type bool: expected text"),
        (np.datetime64("2020"), "is not a valid numpy.*scalar: its type is 'M8'"),
        (np.complex64(1), "is not a valid numpy.*scalar: its type is 'c8'"),
    ],
)
def test_error_names_invalid_metadata(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(StoreError, match=f"index.pkl: the metadata 'm' of document 'x' {message}"):
        metadata_of(tmp_path, value)


def test_metadata_can_be_nested_a_hundred_deep(tmp_path: Path) -> None:
    value: list[Any] = []
    for _ in range(100):
        value = [value]
    assert metadata_of(tmp_path, value) == value
    with pytest.raises(StoreError, match="'m' of document 'x' is nested more than 100 deep"):
        metadata_of(tmp_path, [value])


GOOD = Document("text")


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (whole(opcodes([])), "a list"),
        (whole(opcodes((1, 2))), "a tuple"),
        (whole(opcodes((GOOD, {}))), "a tuple"),
        (docstore([]), "no documents, or no positions"),
        (docstore({}, []), "no documents, or no positions"),
        (whole(name("langchain.docstore.in_memory.InMemoryDocstore"), b")\x81}\x86"), "no documents, or no positions"),
        (docstore({"x": "text"}), "a str under the id 'x'"),
        (docstore({"x": Document.model_construct(page_content=None, metadata={})}), "a document 'x' without text"),
        (docstore({"x": Document.model_construct(page_content="", metadata=[])}), "a document 'x' without text"),
        (
            docstore({"x": Document.model_construct(page_content="\ud800", metadata={})}),
            "whose text is not valid Unicode",
        ),
        (docstore({None: GOOD}), "a document's id that is of type NoneType"),
        (docstore({"1": GOOD, 1: GOOD}), "two documents whose id is '1' as text"),
        (docstore({"x": GOOD}, {-1: "x"}), "a position of type int or below 0"),
        (docstore({"x": GOOD}, {"0": "x"}), "a position of type str or below 0"),
        (docstore({"x": GOOD}, {0: 1.5}), "a document's id that is of type float"),
    ],
)
def test_files_of_another_structure_are_errors(tmp_path: Path, data: bytes, found: str) -> None:
    file = written(tmp_path, data)
    with pytest.raises(StoreDamagedError) as raised:
        read_docstore(file)
    assert str(raised.value).startswith(f"{file} contains ")
    assert found in str(raised.value)


# Folders


@pytest.mark.parametrize("missing", ["index.faiss", "index.pkl"])
def test_missing_file_is_named(golden: Path, missing: str) -> None:
    (golden / "l2" / missing).unlink()
    assert is_folder(golden / "l2")
    with pytest.raises(StoreNotFoundError, match=f"no {missing} in .*expected both files"):
        read_folder(golden / "l2")


def test_unknown_index_name_lists_existing_names(golden: Path) -> None:
    assert not is_folder(golden / "inner")
    assert not is_folder(golden / "none")
    with pytest.raises(StoreNotFoundError, match=r"no index.faiss in .*found 'other'"):
        read_folder(golden / "inner")


def test_files_of_two_saves_are_an_error(golden: Path) -> None:
    folder = golden / "l2"
    faiss.write_index(faiss.IndexFlatL2(2), str(folder / "index.faiss"))
    with pytest.raises(
        StoreDamagedError, match=r"a document at position 0, .* 0 vectors: the files do not belong together"
    ):
        read_folder(folder)


def test_vectors_without_documents_and_documents_without_vectors_are_dropped(golden: Path) -> None:
    documents = {document.id: document for document in EXPECTED}
    written(golden / "l2", docstore(documents, {2: "c", 0: "no such document", 1: "c"}))
    found = read_folder(golden / "l2")
    assert found.documents == EXPECTED[2:]
    assert found.vectors.tolist() == UNIT[[1]].tolist()
    assert found.dropped == 2 + 2

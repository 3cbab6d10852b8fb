from __future__ import annotations

import io
import json
import math
import pickle  # noqa: TID251  files of old versions are made with it, and those that are written read
import sys
import types
import zipfile
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.errors import ConfigError, StoreDamagedError, StoreError, StoreNotFoundError
from ragembed.indexes.ann import foreign
from ragembed.indexes.ann.foreign import Metric, read_vectors, write_flat
from ragembed.langchain.community.documents import PickledDocument
from ragembed.langchain.community.folder import is_folder, read_folder, write_folder
from ragembed.langchain.community.machine import load
from ragembed.langchain.community.opcodes import Global, Made
from ragembed.langchain.community.pickling import dumps, write_docstore
from ragembed.langchain.community.unpickling import read_docstore
from ragembed.langchain.community.values import ALLOWED, JsonValues

from .community_folders import GOLDEN, IDS, METADATA, PLAIN, TEXTS, community, save_all
from .fakes import Angles

EXPECTED = [PickledDocument(*fields) for fields in zip(IDS, TEXTS, METADATA, strict=True)]
UNIT = np.array(Angles().embed_documents(TEXTS), dtype=np.float32)
DOCSTORE = Global("langchain_community.docstore.in_memory", "InMemoryDocstore")
DOCUMENT = Global("langchain_core.documents.base", "Document")


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    with zipfile.ZipFile(GOLDEN) as archive:
        archive.extractall(folder)
    return folder


def made(metadata: Any, text: Any = "text") -> Made:
    return Made(DOCUMENT, state={"__dict__": {"page_content": text, "metadata": metadata}})


def saved(documents: Any, ids: Any = None) -> tuple[Made, Any]:
    return Made(DOCSTORE, state={"_dict": documents}), dict(enumerate(documents)) if ids is None else ids


def written(folder: Path, value: Any) -> Path:
    file = folder / "index.pkl"
    file.write_bytes(value if isinstance(value, bytes) else dumps(value))
    return file


# What langchain-community wrote


@pytest.mark.guarantee(40)
@pytest.mark.parametrize(
    ("name", "index_name", "metric", "vectors"),
    [
        ("l2", "index", "l2", UNIT),
        ("inner", "other", "inner_product", 2 * UNIT),
        ("ivf", "index", "l2", UNIT),
        ("hnsw", "index", "l2", UNIT),
    ],
)
def test_golden_folders_are_read(golden: Path, name: str, index_name: str, metric: str, vectors: np.ndarray) -> None:
    assert is_folder(golden / name, index_name)
    store = read_folder(golden / name, index_name)
    assert store.documents == EXPECTED
    assert store.ids == IDS
    assert store.metric == metric
    assert store.vectors.dtype == np.float32
    assert store.vectors.tolist() == vectors.tolist()
    assert store.dropped == 0


def test_what_was_deleted_is_not_there(golden: Path) -> None:
    store = read_folder(golden / "deleted")
    assert store.documents == [EXPECTED[0], EXPECTED[2]]
    assert store.vectors.tolist() == UNIT[[0, 2]].tolist()
    assert store.dropped == 0


def test_a_refused_addition_leaves_a_vector_that_is_dropped(golden: Path) -> None:
    assert len(read_vectors(golden / "refused" / "index.faiss")[0]) == 4
    store = read_folder(golden / "refused")
    assert store.documents == EXPECTED
    assert store.vectors.tolist() == UNIT.tolist()
    assert store.dropped == 1


def test_an_addition_after_a_refused_one_has_the_vectors_of_that(golden: Path) -> None:
    store = read_folder(golden / "shifted")
    assert store.documents == [*EXPECTED, PickledDocument("d", "45")]
    assert store.vectors[3].tolist() == pytest.approx([-1.0, 0.0], abs=1e-7)
    assert store.dropped == 1


def test_metadata_become_json_values(golden: Path) -> None:
    (document,) = read_folder(golden / "rich").documents
    assert document.metadata == PLAIN
    assert [type(value) for value in document.metadata.values()] == [type(value) for value in PLAIN.values()]


def test_ids_that_are_no_text_become_text(golden: Path, tmp_path: Path) -> None:
    assert read_folder(golden / "odd-ids").ids == ["7", "-8"]
    key = Made(Global("uuid", "UUID"), state={"int": 9})
    same = Made(Global("uuid", "UUID"), state={"int": 9, "is_safe": None})
    documents, ids = read_docstore(written(tmp_path, saved({key: made({})}, {0: same})))
    text = "00000000-0000-0000-0000-000000000009"
    assert documents == {text: PickledDocument(text, "text")}
    assert ids == {0: text}


def test_the_golden_folders_are_what_langchain_community_writes_today(golden: Path, tmp_path: Path) -> None:
    save_all(tmp_path)
    names = sorted(folder.name for folder in golden.iterdir())
    assert names == sorted(folder.name for folder in tmp_path.iterdir())
    for name in names:
        index_name = "other" if name == "inner" else "index"
        then, now = read_folder(golden / name, index_name), read_folder(tmp_path / name, index_name)
        assert then.documents == now.documents
        assert then.vectors.tolist() == now.vectors.tolist()


class OldDocument:
    """Pickled as documents of pydantic 1 are."""

    def __init__(self, fields: dict[str, Any], state: str) -> None:
        self.fields, self.state = fields, state

    def __getstate__(self) -> dict[str, Any]:
        added = {"__private_attribute_values__": {}} if self.state == "1.10" else {}
        return {"__dict__": self.fields, "__fields_set__": set(self.fields), **added}


class OldDocstore:
    def __init__(self, documents: dict[str, Any]) -> None:
        self._dict = documents


def named(monkeypatch: pytest.MonkeyPatch, kind: type, module: str, name: str) -> type:
    """A class like ``kind`` that pickle takes for the one of this name."""
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        path = ".".join(parts[:end])
        if path not in sys.modules:
            monkeypatch.setitem(sys.modules, path, types.ModuleType(path))
    like = type(name, (kind,), {"__module__": module, "__qualname__": name})
    monkeypatch.setattr(sys.modules[module], name, like, raising=False)
    return like


@pytest.mark.guarantee(40)
@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize(
    ("docstore", "document", "pydantic", "more"),
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
    docstore: str,
    document: str,
    pydantic: str,
    more: dict[str, Any],
    protocol: int,
) -> None:
    kept, old = (
        named(monkeypatch, OldDocstore, docstore, "InMemoryDocstore"),
        named(monkeypatch, OldDocument, document, "Document"),
    )
    documents = {
        key: old({"page_content": text, **more, "metadata": metadata}, pydantic)
        for key, text, metadata in zip(IDS, TEXTS, METADATA, strict=True)
    }
    file = written(tmp_path, pickle.dumps((kept(documents), dict(enumerate(IDS))), protocol))
    assert read_docstore(file) == ({document.id: document for document in EXPECTED}, dict(enumerate(IDS)))


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_dictionaries_and_sets_of_other_kinds_are_read(protocol: int) -> None:
    value = {"m": defaultdict(list, {"a": [OrderedDict(b=1)], 3: [None]}), "s": [{1}, frozenset({2})]}
    found = JsonValues().of(load(pickle.dumps(value, protocol), ALLOWED))
    assert found == {"m": {"a": [{"b": 1}], "3": [None]}, "s": [[1], [2]]}


def opcodes(value: Any) -> bytes:
    """What pickle writes of ``value``, without the first and the last opcode and without references."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, 3)
    pickler.fast = True
    pickler.dump(value)
    return buffer.getvalue()[2:-1]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"bytes", "is of type bytes"),
        ([{"a": (b"",)}], "is of type bytes"),
        (math.inf, "is inf"),
        ({None: 1}, "has a key that is of type NoneType: expected text"),
        ({True: 1}, "has a key that is of type bool: expected text"),
        (np.datetime64("2020"), "is no numpy.*scalar that can be read: its type is 'M8'"),
        (np.complex64(1), "is no numpy.*scalar that can be read: its type is 'c8'"),
    ],
)
def test_metadata_that_are_no_json_are_named(tmp_path: Path, value: Any, message: str) -> None:
    before, after = dumps(saved({"x": made({"good": 1, "bad": "VALUE"})})).split(b"\x8c\x05VALUE\x94")
    file = written(tmp_path, before + opcodes(value) + after)
    with pytest.raises(StoreError, match=f"the metadata 'bad' of document 'x' {message}") as raised:
        read_docstore(file)
    assert str(file) in str(raised.value)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_metadata_may_be_nested_a_hundred_deep(tmp_path: Path) -> None:
    file = written(tmp_path, saved({"x": made({"deep": nested(100)})}))
    assert read_docstore(file)[0]["x"].metadata == {"deep": nested(100)}
    file = written(tmp_path, saved({"x": made({"deep": nested(101)})}))
    with pytest.raises(StoreError, match="'deep' of document 'x' is nested more than 100 deep"):
        read_docstore(file)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ([], "a list"),
        ((1, 2), "a int"),
        ((made({}), {}), "a langchain_core.documents.base.Document"),
        ((Made(DOCSTORE, state={}), {}), "no documents, or no positions"),
        ((Made(DOCSTORE), {}), "no documents, or no positions"),
        ((Made(DOCSTORE, state={"_dict": {}}), []), "no documents, or no positions"),
        ((*saved({}), 3), "a tuple"),
        (saved({"x": "text"}), "under the id 'x' what is no document"),
        (saved({"x": Made(DOCUMENT)}), "a document 'x' without text or without metadata"),
        (saved({"x": made({}, text=None)}), "a document 'x' without text or without metadata"),
        (saved({"x": made([])}), "a document 'x' without text or without metadata"),
        (saved({None: made({})}), "a document's id that is of type NoneType"),
        (saved({"1": made({}), 1: made({})}), "two documents whose id is '1' as text"),
        (saved({"x": made({})}, {-1: "x"}), "a position of type int or below 0"),
        (saved({"x": made({})}, {"0": "x"}), "a position of type str or below 0"),
        (saved({"x": made({})}, {0: 1.5}), "a document's id that is of type float"),
    ],
)
def test_files_of_another_shape_are_told(tmp_path: Path, value: Any, found: str) -> None:
    file = written(tmp_path, value)
    with pytest.raises(StoreDamagedError) as raised:
        read_docstore(file)
    assert f"{file} holds {found}" in str(raised.value)


# Folders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "Übung" / "проба"
    write_folder(folder, "index", EXPECTED, UNIT)
    return folder


@pytest.mark.guarantee(40)
def test_what_is_written_is_read_again(folder: Path) -> None:
    assert sorted(file.name for file in folder.iterdir()) == ["index.faiss", "index.pkl"]
    store = read_folder(folder)
    assert store.documents == EXPECTED
    assert store.vectors.tolist() == UNIT.tolist()
    assert (store.metric, store.dropped) == ("l2", 0)


def test_a_folder_without_documents(tmp_path: Path) -> None:
    write_folder(tmp_path, "index", [], np.zeros((0, 5), dtype=np.float32))
    store = read_folder(tmp_path)
    assert (store.documents, store.vectors.shape, store.dropped) == ([], (0, 5), 0)


def test_an_earlier_store_of_the_name_is_replaced_and_others_stay(folder: Path) -> None:
    write_folder(folder, "other", EXPECTED, UNIT)
    write_folder(folder, "index", EXPECTED[:1], UNIT[:1])
    assert read_folder(folder).ids == IDS[:1]
    assert read_folder(folder, "other").ids == IDS


@pytest.mark.parametrize("missing", ["index.faiss", "index.pkl"])
def test_a_missing_file_is_told(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    assert is_folder(folder)
    with pytest.raises(StoreNotFoundError, match=f"there is no {missing} in .*expected both files"):
        read_folder(folder)


def test_another_name_is_told_with_those_that_there_are(folder: Path) -> None:
    write_folder(folder, "more", EXPECTED, UNIT)
    assert not is_folder(folder, "none")
    assert not is_folder(folder / "none")
    with pytest.raises(StoreNotFoundError, match=r"there is no none.faiss in .*it has 'index', 'more'"):
        read_folder(folder, "none")


def test_files_of_two_saves_are_told(folder: Path) -> None:
    write_flat(UNIT[:1], folder / "index.faiss", "l2")
    with pytest.raises(StoreDamagedError, match=r"a document at position 1, .* 1 vectors: they are not from one save"):
        read_folder(folder)


def test_vectors_without_documents_and_documents_without_vectors_are_dropped(folder: Path) -> None:
    documents = {document.id: made(dict(document.metadata), document.text) for document in EXPECTED}
    (folder / "index.pkl").write_bytes(dumps(saved(documents, {2: "c", 0: "no such document", 1: "c"})))
    store = read_folder(folder)
    assert store.documents == EXPECTED[2:]
    assert store.vectors.tolist() == UNIT[[1]].tolist()
    assert store.dropped == 2 + 2


@pytest.mark.parametrize("shape", [(2, 2), (4, 2), (3,), (3, 0)])
def test_vectors_that_do_not_fit_the_documents_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="for 3 documents: expected one vector for each"):
        write_folder(tmp_path / "new", "index", EXPECTED, np.zeros(shape, dtype=np.float32))
    assert not (tmp_path / "new").exists()


def test_an_id_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the id 'a' is there twice"):
        write_folder(tmp_path, "index", [EXPECTED[0], EXPECTED[0]], UNIT[:2])


def test_metadata_that_are_no_json_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the metadata 'when' of document 'x' is of type object; expected text"):
        write_docstore(tmp_path / "index.pkl", [PickledDocument("x", "", {"when": object()})])
    assert list(tmp_path.iterdir()) == []


# Index files


def index_of(kind: str, metric: int = faiss.METRIC_L2, rows: int = 200, dim: int = 8) -> tuple[Any, np.ndarray]:
    vectors = np.random.default_rng(0).normal(size=(rows, dim)).astype(np.float32)
    index = faiss.index_factory(dim, kind, metric)
    index.train(vectors)
    index.add(vectors)
    return index, vectors


def stored(index: Any, folder: Path) -> Path:
    file = folder / "índice.faiss"
    file.write_bytes(faiss.serialize_index(index).tobytes())
    return file


@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [
        ("Flat", 0.0),
        ("HNSW8,Flat", 0.0),
        ("IVF4,Flat", 0.0),
        ("SQfp16", 0.005),
        ("SQ8", 0.05),
        ("IVF4,SQ8", 0.05),
        ("PCA8,IVF2,Flat", 1e-5),
        ("IVF2,SQ4", 0.3),
        ("Flat,RFlat", 0.0),
    ],
)
@pytest.mark.parametrize(("number", "metric"), [(faiss.METRIC_L2, "l2"), (faiss.METRIC_INNER_PRODUCT, "inner_product")])
def test_vectors_of_many_kinds_are_read(tmp_path: Path, kind: str, tolerance: float, number: int, metric: str) -> None:
    index, vectors = index_of(kind, number)
    found, compares_by = read_vectors(stored(index, tmp_path))
    assert compares_by == metric
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, vectors, rtol=0, atol=tolerance)


def test_an_empty_index_has_no_vectors(tmp_path: Path) -> None:
    for index in (faiss.IndexFlatL2(3), faiss.IndexHNSWFlat(3, 4)):
        found, metric = read_vectors(stored(index, tmp_path))
        assert (found.shape, metric) == ((0, 3), "l2")


def test_what_has_no_order_of_position_is_told(tmp_path: Path) -> None:
    index, _ = index_of("IVF4,Flat")
    index.remove_ids(np.array([3]))
    with pytest.raises(ConfigError, match=r"is an IndexIVFFlat, .* cannot be had in order of position"):
        read_vectors(stored(index, tmp_path))


def test_another_metric_is_told(tmp_path: Path) -> None:
    index, _ = index_of("Flat", faiss.METRIC_L1)
    with pytest.raises(ConfigError, match="compares by FAISS's metric number 2: expected"):
        read_vectors(stored(index, tmp_path))


@pytest.mark.parametrize("kind", ["Flat", "SQ8"])
def test_an_index_that_is_broken_off_is_told(tmp_path: Path, kind: str) -> None:
    file = stored(index_of(kind, rows=3, dim=2)[0], tmp_path)
    data = file.read_bytes()
    for size in range(len(data)):
        file.write_bytes(data[:size])
        with pytest.raises(StoreDamagedError, match=file.name):
            read_vectors(file)


@pytest.mark.parametrize("data", [b"", b"text", b"a text that is longer than the header of an index, by far"])
def test_what_is_no_index_is_told(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "index.faiss"
    file.write_bytes(data)
    with pytest.raises(StoreDamagedError, match="cannot be read as a FAISS index"):
        read_vectors(file)


@pytest.mark.parametrize(("dim", "count"), [(2, 2**40), (2, 4), (2, -3), (0, 3), (-2, -3), (2**31 - 1, 2**62)])
def test_an_index_that_lies_about_its_size_is_told(tmp_path: Path, dim: int, count: int) -> None:
    file = tmp_path / "index.faiss"
    write_flat(np.zeros((3, 2), dtype=np.float32), file, "l2")
    values = (dim * count) % 2**64
    header = foreign._HEADER.pack(b"IxF2", dim, count, 0, 0, True, 1, values)
    file.write_bytes(header + file.read_bytes()[len(header) :])
    with pytest.raises(StoreDamagedError, match="which do not make that: expected a whole FAISS index"):
        read_vectors(file)


@pytest.mark.parametrize("metric", ["l2", "inner_product"])
def test_a_flat_index_is_written_as_faiss_does(tmp_path: Path, metric: Metric) -> None:
    number = faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT
    index, vectors = index_of("Flat", number)
    write_flat(np.asfortranarray(vectors), tmp_path / "index.faiss", metric)
    assert (tmp_path / "index.faiss").read_bytes() == faiss.serialize_index(index).tobytes()


def test_a_failed_write_leaves_the_earlier_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(foreign, "sync", full)
    with pytest.raises(OSError, match="no space left"):
        write_flat(UNIT[:1], folder / "index.faiss", "l2")
    assert len(read_vectors(folder / "index.faiss")[0]) == 3
    assert len(list(folder.iterdir())) == 2


# Pickles that are written

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(json_values)
def test_what_is_written_is_pickle_and_read_as_data(value: Any) -> None:
    data = dumps((value, {"set"}, [value]))
    assert pickle.loads(data) == (value, {"set"}, [value])
    assert load(data, ()) == (value, ["set"], [value])


@pytest.mark.parametrize("size", [255, 256, 257, 65_536])
def test_texts_and_numbers_of_all_sizes(size: int) -> None:
    value = ["x" * size, "x" * size, "x" * size, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1)), 2 ** (8 * size)]
    assert pickle.loads(dumps(value)) == value
    assert load(dumps(value), ()) == value


def test_what_pickle_cannot_be_is_not_written() -> None:
    with pytest.raises(TypeError, match="a bytes is not written"):
        dumps([b""])


# With langchain-community itself


@pytest.mark.guarantee(40)
def test_langchain_community_reads_what_is_written_and_goes_on_with_it(tmp_path: Path) -> None:
    store_class, angles = community().FAISS, Angles()
    texts = [str(angle) for angle in range(0, 180, 7)]
    documents = [
        PickledDocument(f"id {text}", text, {"angle": int(text), "nested": {"a": [None, 1.5, True]}, "ü": "ñ"})
        for text in texts
    ]
    vectors = np.array(angles.embed_documents(texts), dtype=np.float32)
    write_folder(tmp_path / "ñ", "index", documents, vectors)
    store = store_class.load_local(str(tmp_path / "ñ"), angles, allow_dangerous_deserialization=True)
    best = np.argsort(-(vectors @ np.array(angles.embed_query("61"))), kind="stable")[:10]
    found = store.similarity_search("61", k=10)
    assert [document.page_content for document in found] == [texts[i] for i in best]
    assert [document.id for document in found] == [documents[i].id for i in best]
    assert [document.metadata for document in found] == [documents[i].metadata for i in best]
    assert found[0] == type(found[0])(id="id 63", page_content="63", metadata=documents[9].metadata)
    assert json.loads(found[0].model_dump_json(exclude_unset=True))["id"] == "id 63"
    store.delete(["id 63"])
    store.add_texts(["63"], [{"back": True}], ids=["new"])
    store.save_local(str(tmp_path / "again"))
    again = read_folder(tmp_path / "again")
    assert again.ids == [*(document.id for document in documents if document.id != "id 63"), "new"]
    assert again.documents[-1] == PickledDocument("new", "63", {"back": True})
    np.testing.assert_array_equal(again.vectors[-1], vectors[9])

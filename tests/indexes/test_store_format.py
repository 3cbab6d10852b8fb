"""A reader that follows the documentation of the store format alone reads what the store holds."""

import hashlib
import json
import re
import shutil
import sqlite3
import struct
from contextlib import closing
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from ragembed.config.specs import POSTPROCESSORS
from ragembed.errors import StoreLockedError
from ragembed.indexes import Store
from ragembed.indexes.faiss_index.building import build_index
from ragembed.indexes.faiss_index.records import NAMES, Budget, IndexConfig, parse_spec
from ragembed.indexes.faiss_index.vectors import ArrayVectors
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingOptions, IndexingRequest
from ragembed.indexes.storage.catalog import PartRecord
from tests.conftest import WORDS, record

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES = ("store-format.md", "store-database.md", "store-metadata.md", "store-files.md")
PAGE = "\n".join((REFERENCE / name).read_text(encoding="utf-8") for name in PAGES)


# The reader: it uses nothing of ragembed, only what the pages say.


class Reader:
    """One generation of a store, read with SQLite and NumPy."""

    def __init__(self, folder):
        self.folder = folder
        self.database = sqlite3.connect(f"{(folder / 'store.db').resolve().as_uri()}?mode=ro", uri=True)
        self.database.row_factory = sqlite3.Row
        assert self.database.execute("PRAGMA application_id").fetchone()[0] == 0x52474531
        assert self.database.execute("PRAGMA user_version").fetchone()[0] == 2
        self.database.execute("BEGIN")
        self.segments = {row["key"]: row for row in self.database.execute("SELECT * FROM segments")}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.database.close()

    def meta(self, key, missing=None):
        row = self.database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return missing if row is None else json.loads(row["value"])

    def chunks(self):
        """Return the chunks by key, in order of insertion, as dictionaries."""
        rows = self.database.execute(
            "SELECT c.*, s.path FROM chunks c LEFT JOIN sources s ON s.id = c.source ORDER BY c.key"
        )
        chunks = {}
        for row in rows:
            chunk = dict(row)
            chunk["headings"], chunk["metadata"] = json.loads(row["headings"]), json.loads(row["metadata"])
            chunks[row["key"]] = chunk
        return chunks

    def rows(self, segment):
        """Return the rows of a segment by position."""
        found = self.database.execute("SELECT row FROM vectors WHERE segment = ? ORDER BY position", (segment,))
        return [row["row"] for row in found]

    def raw(self, segment):
        about = self.segments[segment]
        numbers = np.fromfile(self.folder / "segments" / about["folder"] / "raw.f16", "<f2")
        assert numbers.size == about["rows"] * self.meta("dim")
        return numbers.reshape(about["rows"], -1)

    def vectors(self):
        """Return the vector of each row."""
        made = {}
        for key in self.segments:
            raw = self.raw(key).astype(np.float32)
            made.update(zip(self.rows(key), unit(self.postprocess(raw, "documents")), strict=True))
        return made

    def postprocess(self, vectors, side):
        about = self.meta("embedder")
        if about["kind"] == "external":
            return vectors
        arrays = safetensors(self.folder / "embedders" / about["fingerprint"] / "state.safetensors")
        if side == "queries" and not any(name.startswith("chain.queries.") for name in arrays):
            side = "documents"
        for position, step in enumerate(about["config"]["postprocess"]):
            prefix = f"chain.{side}.{position}."
            fitted = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            vectors = STEPS[step.split(":")[0]](vectors, **fitted).astype(np.float32)
        return vectors


def unit(vectors):
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)


STEPS = {"center": lambda x, mean: x - mean, "normalize": unit}
"""The post-processors of the store below; ``mean`` is a fitted array."""


def embedded_text(chunk):
    context = list(chunk["headings"])
    if chunk["title"] and chunk["title"] not in context:
        context.insert(0, chunk["title"])
    text = chunk["text"] if chunk["searched"] is None else chunk["searched"]
    if context and context[-1] in text.split("\n")[0]:
        del context[-1]
    return " > ".join(context) + "\n" + text if context else text


def safetensors(file):
    data = file.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    types = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "U8": "u1", "U16": "<u2", "U32": "<u4"}
    arrays = {}
    for name, about in json.loads(data[8 : 8 + length]).items():
        start, end = (8 + length + offset for offset in about["data_offsets"])
        arrays[name] = np.frombuffer(data[start:end], types[about["dtype"]]).reshape(about["shape"])
    return arrays


HEADER = struct.Struct("<4siqqq?i")


def sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


# Stores to read

GUIDE = """\
# Locks

The writer holds the lock of the store.

## Readers

A reader never waits: faiss.IndexFlat is mapped.

## Readers and writers

Two readers, one writer, "no lock" for readers.
"""


def sentence(number):
    return " ".join(WORDS[(7 * number + step * step) % len(WORDS)] for step in range(6))


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_config):
    """A store with files, a table, chunks of a program, several segments, tombstones and a skipped file."""
    base = tmp_path_factory.mktemp("format")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(base / "cache"))
        docs = base / "docs"
        docs.mkdir()
        (docs / "guide.md").write_text(GUIDE)
        (docs / "copy.MD").write_text(GUIDE)
        (docs / "Makefile").write_text("all the red wings\n")
        (docs / "empty.txt").write_text(" \n")
        rows = "\n".join(f"{sentence(i)},{1900 + i}" for i in range(60))
        (docs / "table.csv").write_text("text,year\n" + rows + "\n")
        options, wanted = IndexingOptions(text_columns=("text",)), IndexConfig(budget=Budget(max_memory=10**9))
        index_files(IndexingRequest(base / "store", (docs,), options, tiny_config, wanted))
        (docs / "table.csv").write_text("text,year\n" + "\n".join(rows.split("\n")[:50]) + "\nthe cat sleeps,2000\n")
        index_files(IndexingRequest(base / "store", (docs,)))
        with Store.open(base / "store") as store:
            store.add(
                [
                    record("plain", "a bird flies"),
                    record("with all", "body of it", title="Title \ud800", headings=("One", "Two"), page=3),
                    record("no title", "Two wings", title="", headings=("Two",), metadata={"é": [None, {"a": 1.5}]}),
                ]
            )
            with store.writer() as writer:
                writer.set_meta(
                    {"fusion": {"method": "zscore", "alpha": 0.5, "feedback": 1.5, "rrf_k": 60.0, "hubness": 0.5}}
                )
    return base / "store"


@pytest.fixture
def reader(made):
    with Reader(made) as opened:
        yield opened


@pytest.fixture
def store(made):
    with Store.open(made) as opened:
        yield opened


# Tests of the reader


def test_chunks_with_their_files_and_metadata(reader, store):
    fields = ("id", "path", "text", "title", "start_line", "end_line", "page", "tokens", "metadata")
    read = [(*(each[name] for name in fields), tuple(each["headings"])) for each in reader.chunks().values()]
    assert read == [
        (kept.id, kept.source, *(getattr(kept.chunk, name) for name in fields[2:]), kept.chunk.headings)
        for kept in store.chunks()
    ]
    assert {each["path"] for each in reader.chunks().values()} >= {"docs/guide.md", "docs/table.csv", None}
    assert {"year": "1907"} in [each["metadata"] for each in reader.chunks().values()]


def test_sources_and_their_hashes(reader, store):
    sources = reader.database.execute("SELECT * FROM sources").fetchall()
    assert {row["path"]: row["ext"] for row in sources} == {
        "docs/guide.md": "md",
        "docs/copy.MD": "md",
        "docs/table.csv": "csv",
        "docs/Makefile": "",
    }
    for row in sources:
        file = reader.folder.parent / row["path"]
        assert (row["size"], row["mtime_ns"], row["sha256"]) == (
            file.stat().st_size,
            file.stat().st_mtime_ns,
            sha256(file),
        )
    skipped = reader.database.execute("SELECT path, reason FROM skipped").fetchall()
    assert {row["path"]: row["reason"] for row in skipped} == store.status()["skipped"] != {}


def test_hashes_of_segments_and_embedders(reader):
    assert len(reader.segments) > 1
    for about in reader.segments.values():
        folder = reader.folder / "segments" / about["folder"]
        assert (about["raw_sha256"], about["index_sha256"]) == (
            sha256(folder / "raw.f16"),
            sha256(folder / "index.faiss"),
        )
    about = reader.meta("embedder")
    folder = reader.folder / "embedders" / about["fingerprint"]
    assert about["files"] == {file.name: sha256(file) for file in folder.iterdir()}
    [queries] = reader.database.execute("SELECT * FROM derived").fetchall()
    [file] = (reader.folder / "derived").iterdir()
    assert (queries["name"], queries["sha256"]) == ("queries", sha256(file))
    assert file.name == queries["file"] == f"queries-{queries['sha256'][:16]}.safetensors"
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["state_sha256"] == about["files"]["state.safetensors"]
    assert {name: config[name] for name in ("fingerprint", "config", "fitted_on")} == {
        name: about[name] for name in ("fingerprint", "config", "fitted_on")
    }
    assert (reader.folder.parent / about["model_beside"]).resolve() == Path(about["model"])


def test_hashes_of_texts(reader):
    hashes = dict(reader.database.execute("SELECT row, text_hash FROM vectors").fetchall())
    for each in reader.chunks().values():
        assert hashes[each["row"]] == hashlib.blake2b(embedded_text(each).encode(), digest_size=16).digest()


def test_ids_of_chunks_of_files(reader):
    seen = {}
    for each in reader.chunks().values():
        if each["path"] is None:
            continue
        copy = seen[each["path"], each["text"]] = seen.get((each["path"], each["text"]), -1) + 1
        key = f"{each['path']}\0{copy}\0{each['text']}".encode()
        assert each["id"] == hashlib.blake2b(key, digest_size=12).hexdigest()


def test_every_vector_is_used_or_a_tombstone(reader):
    used = {each["row"] for each in reader.chunks().values()}
    dead = {row[0] for row in reader.database.execute("SELECT row FROM tombstones")}
    assert dead
    assert used.isdisjoint(dead)
    assert used | dead == {row for key in reader.segments for row in reader.rows(key)}


def test_rows_of_a_segment_ascend(reader):
    for key, about in reader.segments.items():
        assert reader.rows(key) == sorted(reader.rows(key))
        positions = reader.database.execute("SELECT position FROM vectors WHERE segment = ? ORDER BY 1", (key,))
        assert [row[0] for row in positions] == list(range(about["rows"]))


def test_vectors(reader, store):
    vectors, chunks = reader.vectors(), list(reader.chunks().values())
    assert reader.meta("embedder")["config"]["postprocess"] == ["center", "normalize"]
    assert reader.meta("embedder")["fitted_on"]["documents"] > 0
    read = np.array([vectors[each["row"]] for each in chunks])
    np.testing.assert_allclose(read, store.vectors([each["id"] for each in chunks]), atol=1e-6)


def test_digests(reader):
    """A row's hash is that of its values, each with its type and length."""
    tables = {row["name"]: (row["rows"], row["sum"]) for row in reader.database.execute("SELECT * FROM digests")}
    assert len(tables) == 9
    for table, digest in tables.items():
        rows = [tuple(row) for row in reader.database.execute(f"SELECT * FROM {table}")]
        assert digest == (len(rows), sum(map(row_hash, rows)) % 2**60), table


def row_hash(row):
    encoded = b""
    for value in row:
        match value:
            case None:
                encoded += b"n"
            case int():
                encoded += f"i{value};".encode()
            case float():
                encoded += f"r{value!r};".encode()
            case str():
                encoded += f"t{len(value.encode())}:{value}".encode()
            case bytes():
                encoded += f"b{len(value)}:".encode() + value
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "big") >> 4


def test_commits_in_the_log_are_read_and_left_there(tmp_path, encoder):
    with Store.create(tmp_path / "store", encoder) as store:
        store.add([record("b", "bird")])
        with store.writer() as writer:
            writer.stage(["cat"])
            writer.commit(chunks=[record("c", "cat")])
            killed = shutil.copytree(tmp_path / "store", tmp_path / "killed")
    log = (killed / "store.db-wal").read_bytes()
    with Reader(killed) as reader:
        assert [each["id"] for each in reader.chunks().values()] == ["b", "c"]
    assert (killed / "store.db-wal").read_bytes() == log != b""
    with Store.open(killed, encoder) as store:
        assert store.verify().problems == []


def test_the_lock_is_one_that_others_can_take(tmp_path, encoder):
    fcntl = pytest.importorskip("fcntl")
    with Store.create(tmp_path / "store", encoder) as store, (tmp_path / "store" / "writer.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(StoreLockedError):
            store.add([record("b", "bird")])
        fcntl.flock(lock, fcntl.LOCK_UN)
        store.add([record("b", "bird")])


# The pages name everything that a store holds.


def section(heading):
    """Return a section of the pages, without its subsections."""
    return re.split(r"^#+ ", PAGE.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def test_every_table_and_column_is_described(reader):
    names = [row["name"] for row in reader.database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    tables = [name for name in names if not name.startswith(("sqlite_", "chunks_fts_"))]
    assert len(tables) == 13
    for table in tables:
        described = section(table)
        for column in reader.database.execute(f"PRAGMA table_info({table})"):
            assert f"`{column['name']}`" in described, (table, column["name"])
            if f"| `{column['name']}` |" in described:
                assert column["type"] in described, (table, column["name"])


def test_every_key_of_the_metadata_is_described(reader):
    described = section("meta")
    first, *rest = re.split(r"^The object `(\w+)`", described, flags=re.MULTILINE)
    keys_of = {
        name: set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
        for name, text in [("meta", first), *zip(rest[::2], rest[1::2], strict=True)]
    }
    kept = {row["key"]: json.loads(row["value"]) for row in reader.database.execute("SELECT key, value FROM meta")}
    assert set(kept) == keys_of["meta"] - {"part"}  # this store has none
    assert set(asdict(PartRecord("", 1, None))) == keys_of["part"]
    for name in ("embedder", "words", "index", "index_choice", "index_check"):
        assert set(kept[name]) == keys_of[name], name
    assert kept["index_choice"]["wanted"] == kept["index"]
    measurement = kept["index_check"]["measurement"]
    inside = [*kept["embedder"]["fitted_on"], *measurement, *measurement["recall"]]
    inside += chain.from_iterable(kept[name] for name in ("fusion", "indexing", "wanted"))
    assert [name for name in inside if f"`{name}`" not in described] == []


def test_every_file_is_described(made):
    described = section("Files")
    for file in made.rglob("*"):
        if file.is_file():
            assert re.sub(r"-[0-9a-f]{16}\.", "-<16 hex digits>.", file.name) in described, file


def test_every_field_and_array_of_an_embedder_is_described(reader):
    described = section("Embedder files")
    (folder,) = (reader.folder / "embedders").iterdir()
    for name in json.loads((folder / "config.json").read_text(encoding="utf-8")):
        assert f"`{name}`" in described, name
    arrays = safetensors(folder / "state.safetensors")
    assert len(arrays) == 5
    for name in arrays:
        general = re.sub(r"^chain\.(\w+)\.\d+\.\w+$", r"chain.\1.<position>.<name>", name)
        assert f"`{general}`" in described, name


def test_queries_of_a_fit_are_as_described(reader, store):
    [file] = (reader.folder / "derived").glob("queries-*")
    arrays = safetensors(file)
    described = section("Queries of the fit")
    assert all(f"`{name}`" in described for name in arrays)
    [(last_row, vectors)] = reader.database.execute("SELECT last, chunks FROM derived WHERE name = 'queries'")
    assert last_row >= vectors >= 32
    raw = np.concatenate([reader.raw(key) for key in reader.segments])
    texts = arrays["texts"].tobytes().decode("utf-8").split("\n")
    assert arrays["raw"].shape == (len(texts), raw.shape[1])
    words = " ".join(" ".join(record.chunk.embedded_text.split()) for record in store.chunks())
    # Pseudo-queries from chunks that were deleted later are not in the store.
    assert sum(text in words for text in texts) > len(texts) / 2


def test_every_step_of_a_chain_is_described():
    rows = re.findall(r"^\| (`.*?) \|", section("From raw vectors to embeddings"), re.MULTILINE)
    assert {re.split("[`:]", row)[1] for row in rows} == set(POSTPROCESSORS)


@pytest.mark.parametrize("kind", NAMES)
def test_every_kind_of_index_begins_as_described(tmp_path, kind):
    vectors = unit(np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32))
    build_index(parse_spec(kind), ArrayVectors(vectors), np.arange(300), tmp_path / "index.faiss")
    (described,) = re.findall(rf"^\| `{kind}` \|.*\|(.*)\|$", section("index.faiss"), re.MULTILINE)
    types = re.findall(r"`(\w+)`", described)
    data = (tmp_path / "index.faiss").read_bytes()
    headers = [HEADER.unpack_from(data, HEADER.size * i) for i in range(len(types))]
    assert [(header[0].decode(), *header[1:3], *header[5:]) for header in headers] == [
        (name, 8, 300, True, 0) for name in types
    ]


def test_the_version_that_is_described_is_the_one_that_is_made(made):
    with closing(sqlite3.connect(made / "store.db")) as database:
        version = database.execute("PRAGMA user_version").fetchone()[0]
    assert f"Format version {version}." in PAGE

"""Altered bytes: each is reported by ``verify``, or changes no result of the store."""

import random
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from ragembed import EmbedderConfig
from ragembed.errors import RagembedError
from ragembed.indexes import Store
from ragembed.indexes import integrity as files
from ragembed.indexes.indexing import fitting
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.storage import catalog, posting_files
from ragembed.indexes.types import VectorEncoder
from ragembed.indexes.verification import verify_store
from tests.conftest import WORDS, record

KINDS = {
    "database": "store.db",
    "log": "store.db-wal",
    "last commit": "store.db-generation",
    "raw vectors": "segments/*/raw.f16",
    "index": "segments/*/index.faiss",
    "postings": "derived/postings-*.safetensors",
    "embedder settings": "embedders/*/config.json",
    "embedder state": "embedders/*/state.safetensors",
    "queries": "derived/queries-*.safetensors",
}
"""The files of a store that hold something, by what they are."""

_QUERIES = ("the writer locks a segment", "heat of the shock wave", "cat")


def make_store(folder: Path, config: EmbedderConfig) -> Path:
    """Make a store that uses every table; return a copy as a process leaves it that is killed after a commit."""
    draw = random.Random(5)
    (folder / "docs").mkdir()
    for i in range(8):
        paragraphs = [" ".join(draw.choices(WORDS, k=30)) for _ in range(4)]
        text = "\n\n".join(["Copyright of the same body of writers", f"# File {i}", *paragraphs])
        (folder / "docs" / f"file{i}.md").write_text(text)
    (folder / "docs" / "broken.pdf").write_bytes(b"no PDF")
    store = folder / ".ragembed"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "MIN_FIT", 2)
        patch.setattr(posting_files, "LEAST_CHUNKS", 1)
        index_files(IndexingRequest(store, (folder / "docs",), embedder=config))
        with Store.open(store) as opened:
            opened.add(
                record(f"id{i}", " ".join(draw.choices(WORDS, k=20)), title=f"T{i}", metadata={"i": i})
                for i in range(20)
            )
            opened.run_records("notes").note([f"id{i}" for i in range(10)], [f"group{i}" for i in range(10)])
            opened.delete(["id3", "id4"], paths=["docs/file2.md"])
            assert opened.verify().problems == []
            with opened.writer() as writer:
                writer.stage(["the late bird"])
                writer.commit(chunks=[record("late", "the late bird")])
                writer.delete(["id5"])
                return shutil.copytree(store, folder / "killed" / ".ragembed")


def without_log(killed: Path, folder: Path) -> Path:
    """Return a copy of a store with all commits in the database file."""
    store = shutil.copytree(killed, folder / ".ragembed")
    with Store.open(store) as opened, opened.writer():
        pass
    assert (store / "store.db-wal").stat().st_size == 0
    return store


def assert_flips_are_noticed(template: Path, folder: Path, pattern: str, flips: int, seed: int) -> int:
    """Alter one byte of a file, each time in a fresh copy of the store; return how many ``verify`` reported."""
    draw = random.Random(seed)
    names = sorted(file.relative_to(template) for file in template.glob(pattern))
    with Store.open(template) as opened:
        embedder = opened.embedder  # Loaded once. Verify compares its files anyway.
    expected = _everything(template, embedder)
    reported = 0
    for flip in range(flips):
        store = shutil.copytree(template, folder / str(flip) / ".ragembed")
        file = store / draw.choice(names)
        data = bytearray(file.read_bytes())
        offset, mask = draw.randrange(len(data)), draw.randint(1, 255)
        data[offset] ^= mask
        file.write_bytes(data)
        if _is_reported(store, embedder):
            reported += 1
        else:
            assert _everything(store, embedder) == expected, (file.name, offset, mask)
        shutil.rmtree(store)
    return reported


def _is_reported(store: Path, embedder: VectorEncoder) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CANARIES", 1)  # Encoding takes longer than all other checks.
        try:
            return bool(verify_store(store, embedder).problems)
        except RagembedError:
            return True


def _everything(path: Path, embedder: VectorEncoder) -> object:
    """Return everything that a store can return: chunks, files, settings, and results in the three modes."""
    with Store.open(path, embedder) as store:
        hits = [
            asdict(hit)
            for query in _QUERIES
            for mode in ("dense", "lexical", "hybrid")
            for hit in store.search(query, 12, mode)
        ]
        status = {key: value for key, value in store.status().items() if key not in ("path", "bytes")}
        wanted = store.read_database(catalog.wanted_chain)
        records = store.all_run_records(), store.last_request(), wanted
        return list(store.chunks()), store.sources(), hits, status, records

"""Without FAISS: NumPy searches the same files with the same results, and other kinds raise and name the extra."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.documents.model import Chunk
from ragembed.errors import IndexWarning, MissingExtraError
from ragembed.indexes import ChunkRecord, IndexConfig, Store
from ragembed.indexes.faiss_index import index
from ragembed.indexes.faiss_index.building import build_index
from ragembed.indexes.faiss_index.index import FlatIndex, SegmentIndex
from ragembed.indexes.faiss_index.records import LazyFaiss, parse_spec
from ragembed.indexes.faiss_index.vectors import ArrayVectors
from ragembed.indexes.storage import upkeep
from ragembed.indexes.verification import verify_store
from ragembed.version import install_command
from tests.conftest import WORDS, KnownEncoder

DIM, SIZE = 12, 500
FLAT = parse_spec("flat")


def block_faiss(patch):
    missing = LazyFaiss(ImportError("blocked"))
    for name, module in list(sys.modules.items()):
        if name.startswith("ragembed.indexes") and isinstance(getattr(module, "faiss", None), LazyFaiss):
            patch.setattr(module, "faiss", missing)
    assert not index.faiss.is_installed()


@pytest.fixture
def no_faiss(monkeypatch):
    block_faiss(monkeypatch)


def unit(count, seed=0, dim=DIM):
    """Return unit vectors, with a duplicate in every four."""
    vectors = np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)
    vectors[3::4] = vectors[2::4][: len(vectors[3::4])]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A flat index with its rows and vectors."""
    path = tmp_path_factory.mktemp("flat") / "index.faiss"
    rows, vectors = np.arange(SIZE, dtype=np.int64) * 3 + 7, unit(SIZE)
    build_index(FLAT, ArrayVectors(vectors), rows, path)
    return path, rows, vectors


@given(
    st.integers(1, 30), st.integers(1, SIZE + 2), st.one_of(st.none(), st.floats(0, 1)), st.integers(0, 9), st.data()
)
def test_numpy_and_faiss_give_the_same_results(file, queries, k, share, seed, data):
    path, rows, _ = file
    draw = np.random.default_rng(seed)
    vectors = unit(queries, seed + 1)
    allowed = None if share is None else draw.random(data.draw(st.integers(1, rows[-1] + 50))) < share
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "_SEARCHED_BYTES", data.draw(st.sampled_from([1, 4 * DIM * 100, 4 * 1024**2])))
        ours, theirs = FlatIndex(path, SIZE, DIM), SegmentIndex(path, FLAT, SIZE, DIM)
        start = data.draw(st.integers(0, SIZE - 1))
        stop = data.draw(st.integers(start + 1, SIZE))
        for (scores, found), (expected, expected_rows) in (
            (ours.search(vectors, k, allowed), theirs.search(vectors, k, allowed)),
            (ours.search_part(vectors, k, start, stop, allowed), theirs.search_part(vectors, k, start, stop, allowed)),
        ):
            assert scores.shape == expected.shape
            np.testing.assert_allclose(scores, expected, atol=1e-6)
            for mine, its, score in zip(found.tolist(), expected_rows.tolist(), expected, strict=True):
                # NumPy returns equal vectors in the order of their rows; FAISS has another order.
                above = sum(score > score[-1] + 1e-6)
                assert set(mine[:above]) == set(its[:above])
                assert (np.array(mine) < 0).sum() == (np.array(its) < 0).sum()


# Stores


def fill(path):
    """Write a store of several segments with equal texts and deleted chunks."""
    with Store.create(path, KnownEncoder()) as store, store.writer() as writer:
        for start in range(0, 240, 80):
            records = [
                ChunkRecord(f"id{i}", Chunk(f"{WORDS[i % 50]} {WORDS[(7 * i) % 50]} {i % 60}", metadata={"i": i}))
                for i in range(start, start + 80)
            ]
            writer.stage(record.chunk.embedded_text for record in records)
            writer.commit(chunks=records)
        writer.delete([f"id{i}" for i in range(0, 240, 11)])
    return path


def answers(path):
    """Return ids and scores of many searches."""
    queries = [f"{word} {i}" for i, word in enumerate(WORDS[:30])]
    with Store.open(path, KnownEncoder()) as store:
        found = [
            *(
                store.search(query, 7, mode, where=where)
                for query in queries[:6]
                for mode in ("dense", "hybrid")
                for where in (None, "i < 100", "i > 230")
            ),
            *store.search_many(queries, 5, mode="dense"),
            *store.search_many(queries, 5, where="i >= 50"),
        ]
    return [[hit.id for hit in hits] for hits in found], [[hit.score for hit in hits] for hits in found]


def test_store_is_the_same_with_and_without_faiss(tmp_path, monkeypatch):
    with_faiss, without = tmp_path / "with", tmp_path / "without"
    ids, scores = answers(fill(with_faiss))
    with monkeypatch.context() as patch:
        block_faiss(patch)
        fill(without)
        found = [answers(with_faiss), answers(without)]
        assert not verify_store(without, KnownEncoder()).problems
    found.append(answers(without))
    for found_ids, found_scores in found:
        assert found_ids == ids
        for these, those in zip(found_scores, scores, strict=True):
            np.testing.assert_allclose(these, those, atol=1e-6)


def test_auto_stays_exact_in_a_large_store_and_warns(tmp_path, monkeypatch):
    monkeypatch.setattr(upkeep, "LEAST_APPROXIMATE", 100)
    monkeypatch.setattr(upkeep, "QUERIES_PER_CHECK", 20)
    with monkeypatch.context() as patch:
        block_faiss(patch)
        with Store.create(tmp_path, KnownEncoder()) as store:
            for start in (0, 150):
                with pytest.warns(IndexWarning, match=r"search is exact.*pip install .*\[cpu\]'") as caught:
                    store.add(ChunkRecord(f"{i}", Chunk(f"text {i}")) for i in range(start, start + 150))
                assert len(caught) == 1
            assert store.index_choice() is None
            assert store.search("text 7", mode="dense")[0].id == "7"
    with Store.open(tmp_path, KnownEncoder()) as store:  # once FAISS is installed, an index is picked
        store.add([ChunkRecord("more", Chunk("more"))])
        assert store.index_choice() is not None


@pytest.mark.parametrize("kind", ["hnsw", "IVF64,PQ4"])
def test_other_kind_raises_before_any_work(tmp_path, no_faiss, kind):
    with pytest.raises(MissingExtraError, match=f"{kind} needs .*" + re.escape(install_command("cpu"))):
        Store.create(tmp_path / "new", KnownEncoder(), index=kind)
    assert not (tmp_path / "new").exists()
    fill(tmp_path / "flat")
    with Store.open(tmp_path / "flat", KnownEncoder()) as store:
        with pytest.raises(MissingExtraError, match=kind):
            store.optimize(index=IndexConfig(kind))
        assert store.wanted_index == IndexConfig()


def test_store_with_approximate_index_raises_and_names_the_extra(tmp_path, monkeypatch):
    with Store.create(tmp_path, KnownEncoder(), index="hnsw") as store:
        store.add(ChunkRecord(f"{i}", Chunk(f"lock {i}")) for i in range(1200))
    block_faiss(monkeypatch)
    with Store.open(tmp_path, KnownEncoder()) as store:
        with pytest.raises(MissingExtraError, match="hnsw needs .*" + re.escape(install_command("cpu"))):
            store.search("lock 3", mode="dense")
        with pytest.raises(MissingExtraError, match="hnsw"):
            store.add([ChunkRecord("more", Chunk("more"))])
        assert len(store) == 1200
        assert store.search("lock 3", mode="lexical")[0].id == "3"


BLOCKED = """
import sys
sys.modules["faiss"] = None
from ragembed.cli import main
main(sys.argv[1:])
"""


def test_the_command_line_works_without_faiss(tmp_path, tiny_model, cli, monkeypatch):
    (tmp_path / "docs").mkdir()
    for number, text in enumerate(["the writer holds the lock", "a bird flies", "supersonic flow of air"]):
        (tmp_path / "docs" / f"{number}.md").write_text(text)
    store = ("--store", tmp_path / "store")
    index = ("index", tmp_path / "docs", *store, "--model", tiny_model, "-q")
    query = ("query", "who holds the lock?", *store, "--mode", "dense", "--json")
    with monkeypatch.context() as patch:
        block_faiss(patch)
        assert install_command("cpu") in cli(*index, "--index", "hnsw", exit_code=2).stderr
        cli(*index)
        ours = json.loads(cli(*query).stdout)["results"]
    theirs = json.loads(cli(*query).stdout)["results"]
    assert [hit["id"] for hit in ours] == [hit["id"] for hit in theirs]
    assert [hit["score"] for hit in ours] == pytest.approx([hit["score"] for hit in theirs], abs=1e-6)
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", BLOCKED, *map(str, query)]
    alone = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [hit["id"] for hit in json.loads(alone.stdout)["results"]] == [hit["id"] for hit in theirs]

"""Splitting and merging stores: the same results, nothing encoded, and no half-made state."""

import random
import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ragembed import Collection, Embedder, Fusion, Store
from ragembed.extractors.transformer import TransformerExtractor
from ragembed.indexes import merge_stores, split_store
from ragembed.indexes.indexing.refit import refit_store
from ragembed.indexes.storage import hubness
from ragembed.indexes.types import SourceRecord
from ragembed.indexes.writing import hubness_updates, posting_updates
from tests.conftest import WORDS, record

SAME = 2e-5
MODES = ("hybrid", "dense", "lexical")
DRAWN = 60


def queries(count):
    draw = random.Random(2)
    found = [" ".join(draw.sample(WORDS, draw.randint(1, 5))) for _ in range(count)]
    return [*found, '"supersonic flow" wing', "sto*", "zebra zebra", "unheard word"]


def source(path):
    return SourceRecord(path, 1, 2, "0" * 64, "1" * 32)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    for module in (hubness, hubness_updates):
        monkeypatch.setattr(module, "PSEUDO_QUERIES", DRAWN)


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_config):
    """A store of 60 files with 1 to 20 chunks, and of chunks without a file; some texts and files repeat."""
    path = tmp_path_factory.mktemp("whole") / ".ragembed"
    draw = random.Random(1)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(4, 30))) for _ in range(560)]
    texts += draw.choices(texts, k=30) + [f"{text} zebra" for text in draw.choices(texts, k=10)]
    names = [f"docs/f{i}.md" for i in range(60)] + [None]
    of_file = draw.choices(names, weights=[*range(1, 61), 30], k=len(texts))
    chunks = [
        record(f"id{i}", text, name, metadata={"year": 2000 + i % 7})
        for i, (text, name) in enumerate(zip(texts, of_file, strict=True))
    ]
    config = tiny_config.replace(query_fit="separate")
    with pytest.MonkeyPatch.context() as patched:
        for module in (hubness, hubness_updates):
            patched.setattr(module, "PSEUDO_QUERIES", DRAWN)
        patched.setattr(posting_updates, "LEAST_CHUNKS", 300)
        with Store.create(path, Embedder(config).fit(texts), index="flat") as store:
            with store.writer() as writer:
                writer.stage(chunk.chunk.embedded_text for chunk in chunks)
                writer.commit(chunks=chunks, sources=[source(name) for name in [*names[:-1], "docs/empty.md"]])
                writer.set_skipped({"docs/bad.pdf": "it is damaged"}, ["docs"])
                writer.set_meta({"indexing": {"paths": ["docs"], "options": {}}, "fusion": Fusion(alpha=0.5).to_dict()})
            store.run_records("pages").note(["id1", "id2"], ["x", "y"])
        refit_store(path)
        with Store.open(path) as store:
            store.optimize(token_vectors=True)
    return path


@pytest.fixture
def whole(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / ".ragembed"))


@contextmanager
def without_model():
    """Every use of a model is an error."""

    def refuse(*_):
        raise AssertionError("something was encoded")

    with pytest.MonkeyPatch.context() as patched:
        for name in ("raw_documents", "_raw_pseudo_queries", "encode_queries"):
            patched.setattr(Embedder, name, refuse)
        patched.setattr(TransformerExtractor, "token_bits", refuse)
        yield


def answers(opened, where=None, fusion=None):
    return [opened.search_many(queries(20), 10, mode, where=where, fusion=fusion) for mode in MODES]


def assert_same(expected, found):
    for of_mode, others in zip(expected, found, strict=True):
        for hits, other in zip(of_mode, others, strict=True):
            assert [hit.score for hit in other] == pytest.approx([hit.score for hit in hits], abs=SAME)
            last = hits[-1].score + SAME if hits else 0.0
            assert {hit.id for hit in hits if hit.score > last} == {hit.id for hit in other if hit.score > last}


def contents(path):
    """Chunks, files, raw vectors and records of a store, in an order that does not depend on the store."""
    with Store.open(path) as store:
        chunks = {each.id: each for each in store.chunks()}
        raw = store._reader.read(
            lambda snapshot: {
                chunk_id: snapshot.raw_vector(row).astype(np.float16).tobytes()
                for chunk_id, row in zip(
                    chunks, snapshot.rows_of_keys(snapshot.keys_of(list(chunks.values()))).values(), strict=True
                )
            }
        )
        status = store.status()
        kept = {name: status[name] for name in ("files", "skipped", "indexing", "fusion", "language", "dim")}
        return chunks, raw, store.sources(), store.boilerplate(), store._all_run_records(), kept


@pytest.mark.parametrize("count", [2, 5, 12])
def test_parts_searched_together_give_the_results_of_the_store_and_merge_to_it(whole, count):
    with Store.open(whole) as store:
        expected = [answers(store), answers(store, "year > 2003")]
        relevances = [hit.relevance for hit in store.search("writer of the store", 5)]
    names = [f"p{i}" for i in range(count)]
    with without_model():
        parts = split_store(whole, names)
    with Collection.open(parts) as together:
        assert_same(expected[0], answers(together))
        assert_same(expected[1], answers(together, "year > 2003"))
        assert [hit.relevance for hit in together.search("writer of the store", 5)] == pytest.approx(relevances)
        assert together.groups() == [names]
        assert together.problems == {}
    sizes = []
    for path in parts.values():
        with Store.open(path) as part:
            sizes.append(len(part))
            assert part.verify().problems == []
            assert part.status()["token_vectors"]
    assert max(sizes) - min(sizes) <= 30
    with without_model():
        merged = merge_stores(list(parts.values()), "all")
    with Store.open(merged) as store:
        assert_same(expected[0], answers(store))
        assert store.verify().problems == []
    one, other = contents(whole), contents(merged)
    assert one[:4] == other[:4]
    assert sorted(one[4]) == sorted(other[4])
    assert one[5] == other[5]

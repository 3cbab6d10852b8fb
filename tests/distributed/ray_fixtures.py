"""Fixtures for tests that start a Ray cluster in a network namespace."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.documents.model import Chunk
from ragembed.indexes import ChunkRecord, Store
from ragembed.indexes.ann import picking
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.indexing.run import index_files
from ragembed.indexes.storage import segments
from ragembed.indexes.writing import index_selection
from tests.conftest import WORDS
from tests.distributed import cluster

SCENARIOS = Path(__file__).parent
SIZE, LEAST = 240, 50
RANDOM = EmbedderConfig(extractor="re:dim=32")


@pytest.fixture(scope="session")
def run_in_namespace() -> Callable[..., Any]:
    """``run_in_namespace(script, *args, timeout=…)``: the JSON output of a script, with its `stdout` and `stderr`."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'ragembed[ray]'")
    reason = cluster.why_no_namespace()
    if reason is not None:
        pytest.skip(reason)
    return cluster.run_in_namespace


@pytest.fixture(scope="session")
def documents(tmp_path_factory):
    """A folder with documents in ``docs``, and the store ``alone`` that one process made from them."""
    folder = tmp_path_factory.mktemp("documents")
    (folder / "docs").mkdir()
    words, rng = [f"word{i}" for i in range(300)], random.Random(4)
    for i in range(16):
        text = "\n\n".join(" ".join(rng.choices(words, k=60)) for _ in range(40))
        (folder / "docs" / f"{i:02}.md").write_text(text)
    index_files(IndexingRequest(folder / "alone", (folder / "docs",), embedder=RANDOM))
    return folder


@pytest.fixture(scope="session")
def stores(tmp_path_factory, tiny_config):
    """Stores with three shards and some deleted chunks."""
    folder = tmp_path_factory.mktemp("ray") / "stores"
    folder.mkdir()
    texts = [" ".join(np.random.default_rng(i).choice(WORDS[8:], 12)) for i in range(SIZE)]
    config = tiny_config.replace(postprocess=("zscore", "normalize"), query_fit="separate")
    embedder = Embedder(config).fit(texts)
    records = [ChunkRecord(f"i{i}", Chunk(text, metadata={"i": i, "third": i % 3})) for i, text in enumerate(texts)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segments, "LEAST_APPROXIMATE", LEAST)
        patched.setattr(picking, "LEAST_ASKED", LEAST)
        patched.setattr(index_selection, "QUERIES", 20)
        patched.setattr(picking, "latency_ms", lambda *_: 1.0)
        for kind in ("flat", "hnsw-sq8"):
            with Store.create(folder / kind, embedder, index=kind, shards=3) as store:
                store.add(records)
                store.optimize()
                assert [segment["kind"] for segment in store.status()["segments"]] == [kind] * 3
                store.delete([f"i{i}" for i in range(0, SIZE, 15)])
    return folder


def contents(path):
    """All that a store holds."""
    with Store.open(path) as store:
        return list(store.chunks()), store.embedder.fingerprint, list(store.sources().values())


def answers(path):
    """What a store answers to some questions."""
    rng = random.Random(5)
    queries = [" ".join(f"word{rng.randrange(300)}" for _ in range(4)) for _ in range(50)]
    with Store.open(path) as store:
        return [[(hit.id, hit.score) for hit in hits] for hits in store.search_many(queries, 10)]

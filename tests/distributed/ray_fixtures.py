"""Fixtures for tests that start a Ray cluster in a network namespace."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragembed import EmbedderConfig
from ragembed.indexes import Store
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.indexing.run import index_files
from tests.distributed import cluster

SCENARIOS = Path(__file__).parent
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

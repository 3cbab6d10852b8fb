"""Fixtures for tests that start a Ray cluster in a network namespace."""

from __future__ import annotations

import importlib.util
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragembed import EmbedderConfig
from ragembed.distributed.members import create_members
from ragembed.distributed.workers import WorkerPool
from ragembed.indexes.indexing.request import IndexingRequest
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
def documents(made_once):
    """A folder with documents in ``docs``, and the stores that one process made from them, in ``alone``."""
    return made_once("ray-documents", make_documents)


@pytest.fixture(scope="session")
def results_once(run_in_namespace, made_once):
    """``results_once(script, *arguments)``: what a script of scenarios prints; it runs once for all test processes."""

    def results(script: str, *arguments: Path) -> Any:
        def make(folder: Path) -> None:
            found = run_in_namespace(SCENARIOS / script, *arguments, timeout=500)
            (folder / "found.json").write_text(json.dumps(found))

        return json.loads((made_once(script, make) / "found.json").read_text())

    return results


def make_documents(folder: Path) -> None:
    (folder / "docs").mkdir()
    words, rng = [f"word{i}" for i in range(300)], random.Random(4)
    for i in range(16):
        text = "\n\n".join(" ".join(rng.choices(words, k=60)) for _ in range(40))
        (folder / "docs" / f"{i:02}.md").write_text(text)
    create_members(IndexingRequest(folder / "alone", (folder / "docs",), embedder=RANDOM), 3, WorkerPool())

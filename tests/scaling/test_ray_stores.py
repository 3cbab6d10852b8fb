"""A store that a Ray cluster of two nodes has indexed is that of one process, whatever dies meanwhile."""

import random
from pathlib import Path

import pytest

from ragembed.config import EmbedderConfig
from ragembed.indexes import Store
from ragembed.indexes.asked import IndexingRequest
from ragembed.indexes.indexing import index_files

WORDS = [f"word{i}" for i in range(300)]
CONFIG = EmbedderConfig(extractor="re:dim=32")


@pytest.fixture(scope="module")
def found(tmp_path_factory, run_in_namespace):
    """What each scenario reports, and the folder with its store."""
    folder = tmp_path_factory.mktemp("stores")
    (folder / "docs").mkdir()
    rng = random.Random(4)
    for i in range(16):
        text = "\n\n".join(" ".join(rng.choices(WORDS, k=60)) for _ in range(40))
        (folder / "docs" / f"{i:02}.md").write_text(text)
    index_files(IndexingRequest(folder / "alone", (folder / "docs",), embedder=CONFIG))
    return {**run_in_namespace(Path(__file__).with_name("store_scenarios.py"), folder), "folder": folder}


def contents(path):
    with Store.open(path) as store:
        return list(store.chunks()), store.embedder.fingerprint, list(store.sources().values())


def answers(path):
    rng = random.Random(5)
    questions = [" ".join(rng.choices(WORDS, k=4)) for _ in range(200)]
    with Store.open(path) as store:
        return [[(hit.id, hit.score) for hit in hits] for hits in store.search_many(questions, 10)]


@pytest.mark.parametrize("store", ["undisturbed", "worker", "driver", "node"])
def test_the_store_is_that_of_one_process(found, store):
    assert contents(found["folder"] / store) == contents(found["folder"] / "alone")
    assert answers(found["folder"] / store) == answers(found["folder"] / "alone")
    assert not (found["folder"] / store / "work").exists()


def test_a_killed_driver_leaves_finished_shards(found):
    assert found["a_killed_driver"]["finished"] >= 2
    assert found["a_killed_driver"]["tasks"]["read"] <= 5 - found["a_killed_driver"]["finished"]


def test_a_file_that_kills_its_readers_is_skipped_and_listed_once(found):
    reason = "3 processes that read it died one after the other"
    assert found["a_poisoned_file"]["skipped"] == {"docs/05.md": reason}
    chunks, fingerprint, sources = contents(found["folder"] / "poisoned")
    assert "docs/05.md" not in {source.path for source in sources}
    assert len(sources) == 15
    assert fingerprint != contents(found["folder"] / "alone")[1]
    assert chunks == [chunk for chunk in contents(found["folder"] / "alone")[0] if chunk.source != "docs/05.md"]

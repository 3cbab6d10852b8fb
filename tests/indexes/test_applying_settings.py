"""Applying other settings to a store: vectors and searches change together, and a killed run changes nothing."""

import shutil

import numpy as np
import pytest

from ragembed import Embedder, embedder_files
from ragembed.documents.model import Chunk
from ragembed.errors import StoreDamagedError
from ragembed.indexes import Fusion, Store, apply_settings
from ragembed.indexes.indexing import fitting
from ragembed.indexes.storage import upkeep
from ragembed.indexes.verification import verify_store
from tests.conftest import record


def state(path):
    with Store.open(path) as opened:
        hits = opened.search("the writer of a store", 5, "dense")
        return opened.embedder.fingerprint, opened.fusion, [(hit.id, hit.score) for hit in hits]


@pytest.fixture(scope="module")
def template(tmp_path_factory, tiny_config):
    """A store with a tiny model and some unused vectors."""
    path = tmp_path_factory.mktemp("applying") / "store"
    texts = [f"the {word} of a {other} store" for word in ("writer", "reader", "wing") for other in "abcdefghijklmnop"]
    embedder = Embedder(tiny_config.replace(postprocess=("center", "normalize"))).fit(texts)
    with Store.create(path, embedder) as made:
        for start in range(0, len(texts), 10):
            made.add([record(f"id{n}", texts[n]) for n in range(start, min(start + 10, len(texts)))])
        made.delete(["id1", "id30"])
    return path


@pytest.fixture
def encoded(template, tmp_path):
    return shutil.copytree(template, tmp_path / "store")


def test_new_raw_vectors_equal_those_of_a_new_store(encoded, tmp_path, tiny_config):
    config = tiny_config.replace(layers="first+last", weighting="idf", postprocess=("zscore",), query_fit="separate")
    apply_settings(encoded, config, Fusion(alpha=0.3))
    with Store.open(encoded) as found:
        texts = [each.chunk.embedded_text for each in found.chunks()]
        with Store.create(tmp_path / "fresh", Embedder(config).fit(texts)) as fresh:
            fresh.add([record(f"id{n}", text) for n, text in enumerate(texts)])
            expected = fresh.vectors([f"id{n}" for n in range(len(texts))])
        np.testing.assert_allclose(found.vectors(found.ids()), expected, atol=2e-3)
        assert found.embedder.config.layers == "first+last"
        assert found.fusion == Fusion(alpha=0.3)
        assert (found.wanted_config().postprocess, found.wanted_config().query_fit) == (("zscore",), "separate")
        assert found.status()["unused_vectors"] == 0
        found.add([record("new", "a new text of the writer")])
        assert found.search("a new text of the writer", 1)[0].id == "new"
    assert verify_store(encoded).problems == []


def test_deleted_text_that_returns_is_encoded_with_the_new_model(encoded, tiny_config):
    apply_settings(encoded, tiny_config.replace(layers="first+last", postprocess=("normalize",)), Fusion())
    with Store.open(encoded) as opened:
        opened.add([record("back", "the writer of a b store")])
        raw = opened.embedder.raw_documents(["the writer of a b store"])
        np.testing.assert_allclose(opened.vectors(["back"])[0], raw[0] / np.linalg.norm(raw[0]), atol=2e-3)


@pytest.mark.parametrize("where", ["encoding", "writing", "committing"])
def test_killed_run_leaves_the_store_unchanged(encoded, tiny_config, monkeypatch, where):
    class Interrupted(BaseException):
        """Simulates the end of a process."""

    def interrupted(*_args, **_kwargs):
        raise Interrupted

    before = state(encoded)
    target = {
        "encoding": (fitting, "to_raw"),
        "writing": (upkeep, "write_segment"),
        "committing": (upkeep.compaction, "swap"),
    }[where]
    config = tiny_config.replace(layers="first+last", postprocess=("zscore",))
    with monkeypatch.context() as patched:
        patched.setattr(*target, interrupted)
        with pytest.raises(Interrupted):
            apply_settings(encoded, config, Fusion(alpha=0.1))
    assert state(encoded) == before
    apply_settings(encoded, config, Fusion(alpha=0.1))
    assert state(encoded) != before
    assert verify_store(encoded).problems == []
    assert len(list((encoded / "segments").iterdir())) == 1
    assert len(list((encoded / "embedders").iterdir())) == 1


def test_open_reader_sees_the_new_settings(encoded, tiny_config):
    with Store.open(encoded) as opened:
        opened.search("writer")
        apply_settings(encoded, tiny_config.replace(layers="first+last"), Fusion(alpha=0.2))
        assert opened.fusion == Fusion(alpha=0.2)
        [hit] = opened.search("the writer of a c store", 1)
        assert hit.chunk == Chunk("the writer of a c store")


# Fusion


def test_fusion_of_the_store_is_the_default_for_searches(encoded):
    with Store.open(encoded) as opened:
        config = opened.embedder.config
        asked = "the writer of a q store"
        expected = [hit.id for hit in opened.search(asked, 10, fusion=Fusion(alpha=0.0))]
        assert [hit.id for hit in opened.search(asked, 10)] != expected
        apply_settings(encoded, config, Fusion(alpha=0.0))
        assert opened.fusion == Fusion(alpha=0.0)
        assert [hit.id for hit in opened.search(asked, 10)] == expected
        again = opened.search(asked, 10, fusion=Fusion())
    assert [hit.id for hit in again] != expected


def test_damaged_fusion_raises_and_verify_reports_it(encoded):
    with Store.open(encoded) as opened, opened.writer() as writer:
        writer.set_meta({"fusion": {"alpha": 7}})
    with Store.open(encoded) as opened, pytest.raises(StoreDamagedError, match="fusion"):
        opened.search("word")
    assert any("fusion" in problem.message for problem in verify_store(encoded).problems)


def test_a_search_whose_embedder_is_removed_before_it_is_read_takes_the_new_one(encoded, tiny_config, monkeypatch):
    read, calls = embedder_files.read, []

    def late(folder):
        calls.append(folder)
        if len(calls) == 1:  # the writer removes the folder that this search has looked at
            apply_settings(encoded, tiny_config.replace(postprocess=("normalize",)), Fusion())
        return read(folder)

    with Store.open(encoded) as store:
        monkeypatch.setattr(embedder_files, "read", late)
        hits = store.search("the writer of a store", 5, "dense")
    assert not calls[0].exists()
    assert [(hit.id, hit.score) for hit in hits] == state(encoded)[2]

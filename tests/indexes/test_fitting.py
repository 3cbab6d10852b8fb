"""Refitting the post-processors of a store: from its raw vectors, atomic, and resumed after an interruption."""

import contextlib
import itertools
import shutil

import numpy as np
import pytest

from ragembed import Embedder
from ragembed.errors import ConfigError, RankError, StoreError
from ragembed.indexes import Store
from ragembed.indexes.indexing import fitting
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.refit import refit_store
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.integrity import Part
from ragembed.indexes.storage import upkeep, writer
from ragembed.indexes.verification import verify_store
from tests.conftest import WORDS, KnownEncoder, record

TEXTS = [" ".join(words) for words in itertools.islice(itertools.permutations(WORDS[8:20], 4), 0, 4000, 40)]
QUERIES = ("segment vector file", "writer of the store", "answer")
STEPS = ("center", "abtt:2", "normalize")


class Interrupted(BaseException):
    """Simulates the end of a process."""


@pytest.fixture(scope="module")
def template(tmp_path_factory, tiny_config):
    """A store of five segments with some unused vectors."""
    path = tmp_path_factory.mktemp("fitting") / "store"
    embedder = Embedder(tiny_config.replace(postprocess=("center", "normalize"), query_fit="separate")).fit(TEXTS[:60])
    with Store.create(path, embedder) as store:
        for start in range(0, 100, 20):
            store.add([record(f"id{i}", TEXTS[i]) for i in range(start, start + 20)])
        store.delete(["id1", "id30", "id99"])
        assert len(store.status()["segments"]) == 5
    return path


@pytest.fixture
def store(template, tmp_path):
    return shutil.copytree(template, tmp_path / "store")


@pytest.fixture
def written(monkeypatch):
    """The number of vectors of each written segment; set ``until`` to interrupt after this many segments."""

    class Written(list):
        until = 10**9

    sizes = Written()
    original = writer.write_segment

    def write_segment(*args):
        if len(sizes) == sizes.until:
            raise Interrupted
        files, rows = original(*args)
        sizes.append(files.rows)
        return files, rows

    monkeypatch.setattr(upkeep, "write_segment", write_segment)
    return sizes


def answers(path):
    with Store.open(path) as store:
        return [[(hit.id, hit.score) for hit in store.search(text, 10, "dense")] for text in QUERIES]


def assert_same(found, expected):
    for hits, wanted in zip(found, expected, strict=True):
        assert [name for name, _ in hits] == [name for name, _ in wanted]
        np.testing.assert_allclose([score for _, score in hits], [score for _, score in wanted], atol=1e-5)


def config_of(path):
    with Store.open(path) as store:
        config = store.status()["embedder"]["config"]
        assert store.wanted_config().postprocess == tuple(config["postprocess"])
        return tuple(config["postprocess"]), config["query_fit"]


def folders(path):
    return {folder.name for folder in (path / "segments").iterdir()}


def test_refit_without_options_fits_on_the_current_texts(store):
    before = answers(store)
    with Store.open(store) as opened:
        assert opened.embedder.fitted_on.documents == 60
    fitted = refit_store(store)
    assert (fitted.config.postprocess, fitted.config.query_fit) == (("center", "normalize"), "separate")
    assert fitted.fitted_on.documents == 97
    assert answers(store) != before
    again = refit_store(store)
    assert again.fingerprint == fitted.fingerprint


def test_omitted_options_keep_their_values(store):
    assert refit_store(store, query_fit="shared").config.postprocess == ("center", "normalize")
    assert config_of(store) == (("center", "normalize"), "shared")
    assert refit_store(store, ("abtt:1",)).config.query_fit == "shared"
    assert config_of(store) == (("abtt:1",), "shared")
    assert refit_store(store, (), "separate").config.postprocess == ()
    assert config_of(store) == ((), "separate")
    assert verify_store(store).problems == []


def test_a_refit_can_change_the_dimension(store):
    refit_store(store, ("whiten:7",), "shared")
    with Store.open(store) as opened:
        assert (opened.status()["dim"], opened.status()["raw_dim"]) == (7, 32)
        assert opened.vectors(["id0"]).shape == (1, 7)
        opened.add([record("new", "the zebra sleeps")])
        assert opened.search("the zebra sleeps", 1, "dense")[0].id == "new"
    assert verify_store(store).problems == []
    refit_store(store, ("normalize",))
    with Store.open(store) as opened:
        assert opened.status()["dim"] == 32


def test_interrupted_refit_keeps_the_old_fit_and_resumes(store, written):
    before, config, segments = answers(store), config_of(store), folders(store)
    written.until = 2
    with pytest.raises(Interrupted):
        refit_store(store, STEPS)
    assert_same(answers(store), before)
    assert config_of(store) == config
    assert len(folders(store) - segments) == 2
    report = verify_store(store)
    assert (report.problems, report.notes) == ([], [])
    written.until = 4
    with pytest.raises(Interrupted):
        refit_store(store, STEPS)
    assert len(written) == 4  # the first two are not written again
    assert_same(answers(store), before)
    written.until = 10**9
    fitted = refit_store(store, STEPS)
    assert len(written) == 5
    assert not folders(store) & segments
    assert len(folders(store)) == 5
    assert config_of(store) == (STEPS, "separate")
    assert fitted.config.postprocess == STEPS
    assert verify_store(store).problems == []


def test_texts_added_before_resuming_a_refit_are_included(store, written):
    written.until = 2
    with pytest.raises(Interrupted):
        refit_store(store, ("normalize",), "shared")
    written.until = 10**9
    with Store.open(store) as opened:
        opened.add([record("new", "supersonic flow")])
        opened.delete(["id0"])
    written.clear()
    refit_store(store, ("normalize",), "shared")
    assert sorted(written) == [1, 20, 20, 20]
    with Store.open(store) as opened:
        assert opened.search("supersonic flow", 1, "dense")[0].id == "new"
        assert len(opened.search("answer", 999, "dense")) == 97
    assert verify_store(store).problems == []


def test_other_refit_replaces_an_interrupted_one(store, written):
    written.until = 3
    with pytest.raises(Interrupted):
        refit_store(store, ("normalize",), "shared")
    written.until = 10**9
    written.clear()
    refit_store(store, STEPS)
    assert len(written) == 5
    assert len(folders(store)) == 5
    assert config_of(store) == (STEPS, "separate")
    assert verify_store(store).problems == []


def test_damaged_segment_of_an_interrupted_refit_is_dropped(store, written):
    before, segments = answers(store), folders(store)
    written.until = 2
    with pytest.raises(Interrupted):
        refit_store(store, STEPS)
    written.until = 10**9
    made = sorted(folders(store) - segments)
    (store / "segments" / made[0] / "index.faiss").unlink()
    (store / "segments" / made[1] / "raw.f16").write_bytes(b"x")
    found = {(problem.part, problem.file) for problem in verify_store(store).problems}
    assert found == {
        (Part.REWRITTEN, f"segments/{made[0]}/index.faiss"),
        (Part.REWRITTEN, f"segments/{made[1]}/raw.f16"),
    }
    report = verify_store(store, repair=True)
    assert (report.problems, len(report.repaired)) == ([], 2)
    assert folders(store) == segments
    assert_same(answers(store), before)
    refit_store(store, STEPS)
    assert verify_store(store).problems == []


def test_refit_interrupted_at_its_end_is_not_undone(store, monkeypatch):
    def interrupted(self, values):
        raise Interrupted

    refit_store(store, ("normalize",), "shared")
    with monkeypatch.context() as patch:
        patch.setattr(writer.StoreWriter, "set_meta", interrupted)
        with contextlib.suppress(Interrupted):
            refit_store(store, STEPS, "separate")
    with Store.open(store) as opened:
        config = opened.embedder.config
        assert config == opened.wanted_config()


def test_open_reader_works_before_during_and_after_a_refit(store, written, monkeypatch):
    reader = Store.open(store)
    original, seen = writer.write_segment, []

    def write_segment(*args):
        seen.append([hit.id for hit in reader.search(QUERIES[0], 5, "dense")])
        return original(*args)

    before = [hit.id for hit in reader.search(QUERIES[0], 5, "dense")]
    monkeypatch.setattr(upkeep, "write_segment", write_segment)
    fitted = refit_store(store, ("whiten:4",), "shared")
    assert seen == [before] * 5
    assert len(reader.search(QUERIES[0], 5, "dense")) == 5
    assert reader.embedder.fingerprint == fitted.fingerprint
    reader.close()


@pytest.mark.parametrize(
    ("steps", "error", "message"),
    [
        (("abtt:500",), ConfigError, "abtt:500 cannot be fitted on 97 chunks: expected 501 or more"),
        (("whiten:40",), RankError, "40"),
        (("nonsense",), ConfigError, "nonsense"),
    ],
)
def test_steps_that_cannot_be_fitted_raise_and_change_nothing(store, steps, error, message):
    before, config = answers(store), config_of(store)
    with pytest.raises(error, match=message):
        refit_store(store, steps)
    assert config_of(store) == config
    assert_same(answers(store), before)
    assert verify_store(store).problems == []


def test_too_few_chunks_raise(tmp_path, tiny_config):
    embedder = Embedder(tiny_config.replace(postprocess=("normalize",), query_fit="shared")).fit(TEXTS)
    with Store.create(tmp_path / "s", embedder) as opened:
        opened.add([record(f"id{i}", TEXTS[i]) for i in range(31)])
    with pytest.raises(ConfigError, match="center cannot be fitted on 31 chunks: expected 32 or more"):
        refit_store(tmp_path / "s", ("center",))
    assert refit_store(tmp_path / "s", ()).config.postprocess == ()  # nothing is fitted
    with Store.open(tmp_path / "s") as opened:
        opened.add([record("id31", TEXTS[31])])
    assert refit_store(tmp_path / "s", ("center",)).fitted_on.documents == 32


def test_refit_of_vectors_from_another_program_raises(tmp_path):
    Store.create(tmp_path / "s", KnownEncoder()).close()
    with pytest.raises(StoreError, match="no embedder was given: open the store with the embedder"):
        refit_store(tmp_path / "s", ("center",))


def test_next_indexing_run_keeps_the_post_processors(in_folder, tiny_config, monkeypatch, encoded):
    monkeypatch.setattr(fitting, "MIN_FIT", 2)
    docs = in_folder / "docs"
    docs.mkdir()
    for i in range(12):
        (docs / f"{i}.txt").write_text(TEXTS[i] + "\n")
    path = in_folder / ".ragembed"
    index_files(IndexingRequest(path, (docs,), embedder=tiny_config))
    fitted = refit_store(path, STEPS, "shared")
    encoded.clear()
    (docs / "new.txt").write_text("zebra alpha beta\n")
    assert index_files(IndexingRequest(path)).encoded == 1
    assert len(encoded.documents) == 1
    with Store.open(path) as opened:
        assert opened.embedder.fingerprint == fitted.fingerprint
    for i in range(12, 30):
        (docs / f"{i}.txt").write_text(TEXTS[i] + "\n")
    index_files(IndexingRequest(path))
    assert config_of(path) == (STEPS, "shared")
    with Store.open(path) as opened:
        assert opened.embedder.fitted_on.documents == 31
    assert verify_store(path).problems == []

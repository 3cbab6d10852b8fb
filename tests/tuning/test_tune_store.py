"""Tuning a store: better settings are found and applied, others are not, and a killed run changes nothing."""

import shutil

import numpy as np
import pytest

from ragembed import Embedder
from ragembed.documents.model import Chunk
from ragembed.errors import StoreDamagedError, StoreError
from ragembed.indexes import ChunkRecord, Fusion, Store, apply_settings
from ragembed.indexes.indexing import refit
from ragembed.indexes.indexing.drift import measure_drift
from ragembed.indexes.tuning import choosing, run, tune_store
from ragembed.indexes.tuning.sources import SOURCES
from ragembed.indexes.verify import verify_store
from ragembed.indexes.writing import upkeep
from tests.conftest import KnownEncoder, record
from tests.tuning.corpora import TOPICS, make_store, word


@pytest.fixture(scope="module", autouse=True)
def _fewer_trials():
    """Use fewer queries and fewer settings, because the time of tuning is their product."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "QUERIES", 30)
        patch.setattr(choosing, "_ALPHAS", (0.3, 0.9))
        for most in ("_RAWS_KEPT", "_CLOSER", "_FUSED_KEPT"):
            patch.setattr(choosing, most, 1)
        yield


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """A store in which one dominant direction hides all others."""
    return make_store(tmp_path_factory.mktemp("hidden"), common=20.0)


@pytest.fixture(scope="module")
def clear(tmp_path_factory):
    """A store that finds everything with its current settings."""
    return make_store(tmp_path_factory.mktemp("clear"), common=0.0)


@pytest.fixture
def store(hidden, tmp_path):
    shutil.copytree(hidden.parent, tmp_path / "copy")
    return tmp_path / "copy" / "store"


@pytest.fixture(scope="module")
def report(hidden):
    return tune_store(hidden)


def state(path):
    with Store.open(path) as opened:
        hits = opened.search(word(0), 5, "dense")
        return opened.embedder.fingerprint, opened.fusion, [(hit.id, hit.score) for hit in hits]


def right_first(path, mode="dense"):
    """Return the share of topics whose file ranks first for some of its words."""
    with Store.open(path) as opened:
        found = 0
        for topic in range(TOPICS):
            [hit] = opened.search(" ".join(word(12 * topic + i) for i in range(4)), 1, mode)
            found += hit.source == f"docs/{topic:03}.txt"
    return found / TOPICS


def test_single_source_gives_more_queries_and_keeps_raw_vectors(hidden, monkeypatch, tmp_path):
    compared = []

    def screened(pool, sources, seed, current, raws, prepare):
        compared.append(len(raws))
        return raws[:1]

    monkeypatch.setattr(run, "screen", screened)
    monkeypatch.setattr(run, "QUERIES_ALONE", 40)
    several = tune_store(hidden)
    assert {sum(several.queries[name]) for name in several.used} == {30}
    monkeypatch.setattr(run, "SOURCES", {"first sentence": SOURCES["first sentence"]})
    one = tune_store(hidden)
    assert sum(one.queries["first sentence"]) == 40
    assert "were not compared, because all queries have one source" in one.reason
    assert "were not compared" not in several.reason
    assert "were not compared" not in tune_store(hidden, encode=False).reason
    monkeypatch.setattr(run, "SOURCES", {})
    asked = [f"{word(12 * topic)} {word(12 * topic + 7)}\tdocs/{topic:03}.txt" for topic in range(TOPICS)]
    (tmp_path / "log.tsv").write_text("\n".join(asked) + "\n")
    assert "were not compared" not in tune_store(hidden, queries=tmp_path / "log.tsv").reason
    assert compared[0] > 1
    assert compared[1:3] == [1, 1]
    assert compared[3] == compared[0]


def test_queries_come_from_the_searchable_text(tmp_path, encoder):
    """The text of a chunk in the pool has no boilerplate: a removed query cannot remain in it."""
    chunks = {
        "part": Chunk("A wing lifts.\nAll rights reserved.", searched="A wing lifts."),
        "none": Chunk("All rights reserved.", searched=""),
        "all": Chunk("A lock holds."),
    }
    with Store.create(tmp_path / "s", encoder) as store:
        store.add(ChunkRecord(name, chunk) for name, chunk in chunks.items())
        found = {passage.id: passage.chunk for passage in run._passages(store)}
    assert {name: chunk.text for name, chunk in found.items()} == {"part": "A wing lifts.", "all": "A lock holds."}
    assert all(chunk.searched is None for chunk in found.values())


def test_clearly_better_settings_are_found(report):
    assert report.outcome == "better"
    assert not report.applied
    assert report.chosen.config.postprocess[0].startswith(("abtt", "whiten"))
    assert report.chosen.needs == "refit"
    assert set(report.used) == {"sentence", "first sentence"}
    mean = report.held_out["mean"]
    assert mean.low > 0
    assert mean.tuned > 90 > mean.now
    assert mean.difference == pytest.approx(mean.tuned - mean.now)


def test_candidates_have_scores_and_are_sorted(report):
    means = [candidate.hybrid["mean"] for candidate in report.candidates]
    assert means == sorted(means, reverse=True)
    [now] = [candidate for candidate in report.candidates if candidate.label == "now"]
    assert now.difference == {}
    best = report.candidates[0]
    assert best.difference["mean"].now == pytest.approx(now.hybrid["mean"])
    assert set(best.hybrid) == {*report.used, "mean"}


def test_nothing_changes_without_apply(hidden, report):
    assert right_first(hidden) < 0.8
    assert state(hidden)[1] == Fusion()


def test_same_input_gives_the_same_report(hidden, report):
    assert tune_store(hidden) == report


def test_other_seed_draws_other_queries(hidden, report):
    other = tune_store(hidden, seed=1, encode=False)
    first, second = ([each.hybrid for each in found.candidates if each.label == "now"] for found in (report, other))
    assert first != second


def test_apply_changes_the_settings_of_the_store(store):
    found = tune_store(store, apply=True)
    assert found.applied
    with Store.open(store) as opened:
        assert opened.embedder.config.postprocess == found.chosen.config.postprocess
        assert opened.fusion == found.chosen.fusion
        assert opened._wanted_chain() == (found.chosen.config.postprocess, found.chosen.config.query_fit)
        assert opened.status()["fusion"] == found.chosen.fusion.to_dict()
    assert right_first(store) > 0.95
    assert verify_store(store).problems == []


def test_nothing_is_chosen_if_the_store_already_finds_everything(clear):
    before = state(clear)
    report = tune_store(clear, encode=False, apply=True)
    assert report.outcome == "no significant difference"
    assert not report.applied
    assert state(clear) == before


def test_chance_improvements_are_rejected(tmp_path):
    """With random vectors, some of many candidates are better on the first half by chance."""
    report = tune_store(make_store(tmp_path, common=0.0, shuffled=True), encode=False)
    assert report.outcome == "no significant difference"


@pytest.mark.parametrize("topics", [3, 49])
def test_fewer_than_fifty_chunks_are_too_few(tmp_path, topics):
    path = make_store(tmp_path, common=20.0, topics=topics)
    before = state(path)
    report = tune_store(path, apply=True)
    assert report.outcome == "too little"
    assert f"the store has {topics} chunks: expected 50 or more" in report.reason
    assert report.candidates == ()
    assert state(path) == before


def test_very_short_documents_give_too_few_queries(tmp_path, tiny_config):
    with Store.create(tmp_path / "store", Embedder(tiny_config).fit(["one", "two"])) as made:
        made.add([record(str(n), f"Row {n}") for n in range(60)])
    report = tune_store(tmp_path / "store")
    assert report.outcome == "too little"
    assert "too few queries" in report.reason


def test_vectors_of_another_program_raise(tmp_path):
    with Store.create(tmp_path / "store", KnownEncoder()) as made:
        made.add([record("a", "text")])
    with pytest.raises(StoreError, match="were made by known"):
        tune_store(tmp_path / "store")


def test_query_log_is_a_source(hidden, tmp_path):
    lines = [f"{word(12 * topic)} {word(12 * topic + 7)}\tdocs/{topic:03}.txt" for topic in range(0, TOPICS, 4)]
    (tmp_path / "log.tsv").write_text("\n".join([*lines, "a question without an answer"]) + "\n")
    report = tune_store(hidden, queries=tmp_path / "log.tsv")
    assert "query log" in report.used
    assert sum(report.queries["query log"]) == TOPICS // 4
    assert "skipped 1 query of " in report.reason
    assert report.reason.endswith(": no answer given")


# Fusion


def test_fusion_of_the_store_is_the_default_for_searches(store):
    with Store.open(store) as opened:
        config = opened.embedder.config
        asked = " ".join(word(n) for n in (0, 13, 1, 26))
        expected = [hit.id for hit in opened.search(asked, 10, fusion=Fusion(alpha=0.0))]
        assert [hit.id for hit in opened.search(asked, 10)] != expected
        apply_settings(store, config, Fusion(alpha=0.0))
        assert opened.fusion == Fusion(alpha=0.0)
        assert [hit.id for hit in opened.search(asked, 10)] == expected
        again = opened.search(asked, 10, fusion=Fusion())
    assert [hit.id for hit in again] != expected


def test_damaged_fusion_raises_and_verify_reports_it(store):
    with Store.open(store) as opened, opened.writer() as writer:
        writer.set_meta({"fusion": {"alpha": 7}})
    with Store.open(store) as opened, pytest.raises(StoreDamagedError, match="fusion"):
        opened.search("word")
    assert any("fusion" in problem.message for problem in verify_store(store).problems)


# Applying what needs other raw vectors


@pytest.fixture
def encoded(tmp_path, tiny_config):
    """A store with a tiny model and some unused vectors."""
    texts = [f"the {word} of a {other} store" for word in ("writer", "reader", "wing") for other in "abcdefghijklmnop"]
    embedder = Embedder(tiny_config.replace(postprocess=("center", "normalize"))).fit(texts)
    with Store.create(tmp_path / "store", embedder) as made:
        for start in range(0, len(texts), 10):
            made.add([record(f"id{n}", texts[n]) for n in range(start, min(start + 10, len(texts)))])
        made.delete(["id1", "id30"])
    return tmp_path / "store"


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
        assert found._wanted_chain() == (("zscore",), "separate")
        assert found.status()["unused_vectors"] == 0
        found.add([record("new", "a new text of the writer")])
        assert found.search("a new text of the writer", 1)[0].id == "new"
    assert verify_store(encoded).problems == []


def test_drift_is_measured_from_the_new_vectors(encoded, tiny_config):
    config = tiny_config.replace(layers="first+last", postprocess=("zscore",), query_fit="separate")
    apply_settings(encoded, config, Fusion())
    with Store.open(encoded) as opened:
        before = measure_drift(opened)
        assert (before.notes, before.added, before.removed, before.mean_shift) == ((), 0, 0, 0.0)
        assert before.overlap == 1.0
        with opened.writer() as writer:
            baseline, embedder = writer.baseline(), opened.embedder
            raw = embedder.raw_documents([text for _, text in writer.texts_of_rows()])
        np.testing.assert_allclose(baseline.moments.mean, raw.mean(axis=0), atol=2e-3)
        assert len(baseline.pseudo_queries.texts) == embedder.fitted_on.pseudo_queries > 0
        opened.add([record("new", "a new text of the writer")])
        opened.delete(["id2", "id3"])
        after = measure_drift(opened)
        assert (after.added, after.removed) == (1, 2)
        assert after.mean_shift > 0
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
        "encoding": (refit, "to_raw"),
        "writing": (upkeep, "write_segments"),
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

"""The drift of unchanged and changed stores, and its measures. Measuring drift does not change the store."""

import random
import shutil
import stat

import numpy as np
import pytest

from ragembed import Embedder
from ragembed.errors import StoreError
from ragembed.extractors.weighting import TokenStatistics
from ragembed.indexes import Store
from ragembed.indexes.doctor import drift
from ragembed.indexes.doctor.drift import (
    chance_size,
    judge,
    overlap,
    unseen_share,
    weight_shift,
)
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.refit import refit_store
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.storage import derived
from tests.conftest import WORDS, KnownEncoder, record

STORES, FLIGHT = WORDS[8:19], WORDS[19:32]


def texts(words, count, seed):
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=draw.randint(8, 16))) for _ in range(count)]


def write(folder, contents):
    folder.mkdir(parents=True, exist_ok=True)
    for i, text in enumerate(contents):
        (folder / f"{i}.txt").write_text(text + "\n")


def add(path, contents, prefix="new"):
    with Store.open(path) as store:
        store.add([record(f"{prefix}{i}", text) for i, text in enumerate(contents)])


def contents(path):
    """Return the bytes of all files except those in which SQLite records readers."""
    files = (file for file in path.rglob("*") if file.is_file() and file.name not in ("store.db-shm", "store.db-wal"))
    return {file: file.read_bytes() for file in files}


def drift_of(path):
    with Store.open(path) as store:
        return drift.measure_drift(store)


@pytest.fixture(scope="module")
def template(tmp_path_factory, tiny_config):
    folder = tmp_path_factory.mktemp("drift")
    write(folder / "docs", texts(STORES, 80, 1))
    index_files(IndexingRequest(folder / "store", (folder / "docs",), embedder=tiny_config))
    return folder / "store"


@pytest.fixture
def store(template, tmp_path):
    return shutil.copytree(template, tmp_path / "store")


def test_new_fit_has_no_drift(store, encoded):
    report = drift_of(store)
    assert (report.verdict, report.reasons, report.notes) == ("keep", (), ())
    assert (report.vectors, report.added, report.removed) == (80, 0, 0)
    assert (report.overlap, report.chance) == (1.0, 1.0)
    assert (report.weight_shift, report.unseen) == (0.0, 0)
    assert encoded == []  # all pseudo-queries are known


def test_other_texts_cause_drift(store, encoded):
    add(store, texts(FLIGHT, 80, 2))
    encoded.clear()
    report = drift_of(store)
    assert (report.vectors, report.added, report.removed) == (160, 80, 0)
    assert report.unseen == pytest.approx(0.5, abs=0.1)
    assert report.overlap < report.chance < 1
    assert 0 < report.weight_shift < 0.5
    assert 0 < len(encoded) <= 80  # the new pseudo-queries, and no document


def one_draw(folder, config, seed, add_words, replaced, size=80):
    """Return the drift of a store of ``size`` texts after replacing ``replaced`` texts, or adding 8 texts if 0."""
    write(folder / "docs", texts(STORES, size, seed))
    index_files(IndexingRequest(folder / "store", (folder / "docs",), embedder=config))
    with Store.open(folder / "store") as store:
        store.delete(store.ids()[:replaced])
    add(folder / "store", texts(add_words, replaced or 8, seed + 1000))
    return drift_of(folder / "store")


@pytest.fixture
def static_config(tiny_config):
    return tiny_config.replace(extractor="re:dim=32", weighting="uniform", postprocess=("abtt:2", "normalize"))


@pytest.mark.parametrize(("draws", "kept"), [(2, 2), pytest.param(8, 7, marks=pytest.mark.slow)])
def test_ten_per_cent_more_of_the_same_kind_is_kept(tmp_path, static_config, draws, kept):
    verdicts = [one_draw(tmp_path / f"{seed}", static_config, seed, STORES, 0).verdict for seed in range(draws)]
    assert verdicts.count("keep") >= kept


def test_half_replaced_by_another_domain_needs_a_refit(tmp_path, static_config):
    report = one_draw(tmp_path, static_config, 0, FLIGHT, 150, 300)
    assert (report.verdict, report.added, report.removed) == ("refit", 150, 150)
    refit_store(tmp_path / "store")
    assert drift_of(tmp_path / "store").verdict == "keep"


def test_token_weights_of_another_corpus_need_a_rebuild(tmp_path, static_config):
    some_of_both = STORES[:4] + FLIGHT  # the only words of the old texts are rare in the new texts
    report = one_draw(tmp_path, static_config.replace(weighting="idf"), 0, some_of_both, 70)
    assert report.verdict == "rebuild"
    assert report.weight_shift > 0.08


def test_overlap_equals_the_overlap_with_a_refitted_store(store):
    add(store, texts(FLIGHT, 80, 2))
    report = drift_of(store)
    with Store.open(store) as opened:
        ids, former = sorted(opened.ids()), opened.embedder
        before = opened.vectors(ids)
    refitted = refit_store(store)
    with Store.open(store) as opened, opened.writer() as writer:
        queries, after = writer.fit_queries().raw[: drift.QUERIES], opened.vectors(ids)
    found = [
        np.argsort(-(embedder.postprocess_queries(queries) @ vectors.T), axis=1)[:, : drift.NEAREST]
        for embedder, vectors in ((former, before), (refitted, after))
    ]
    common = np.mean([len(set(a) & set(b)) / drift.NEAREST for a, b in zip(*found, strict=True)])
    assert report.overlap == pytest.approx(common, abs=0.005)  # the order of equal cosines may differ
    now = drift_of(store)
    assert (now.overlap, now.added, now.removed) == (1.0, 0, 0)
    assert now.weight_shift == pytest.approx(report.weight_shift)  # a refit does not change token weights


def test_large_stores_are_sampled(store, monkeypatch):
    monkeypatch.setattr(drift, "TEXTS", 40)
    monkeypatch.setattr(drift, "SEARCHED", 40)
    monkeypatch.setattr(drift, "QUERIES", 7)
    add(store, texts(FLIGHT, 80, 2))
    report = drift_of(store)
    assert report.vectors == 160
    assert report.unseen == pytest.approx(0.5, abs=0.1)
    assert drift_of(store) == report


def test_measuring_drift_writes_nothing(store, monkeypatch):
    add(store, texts(FLIGHT, 20, 2))
    before = contents(store)
    for path in (store, *store.rglob("*")):
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222)
    report = drift_of(store)
    for path in (store, *store.rglob("*")):
        path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o200)
    assert report.added == 20
    assert contents(store) == before


def test_additions_are_not_known_without_the_queries_of_the_fit(store):
    with Store.open(store) as opened, opened.writer() as writer, writer._database.transaction():
        derived.forget(writer._connection, derived.QUERIES)
    report = drift_of(store)
    assert (report.added, report.removed, report.overlap, report.verdict) == (None, None, 1.0, "keep")
    refit_store(store)
    assert drift_of(store).added == 0


def test_report_without_fitted_post_processors(tmp_path, tiny_config):
    config = tiny_config.replace(postprocess=("normalize",), weighting="uniform")
    write(tmp_path / "docs", texts(STORES, 40, 1))
    index_files(IndexingRequest(tmp_path / "store", (tmp_path / "docs",), embedder=config))
    add(tmp_path / "store", texts(FLIGHT, 80, 2))
    report = drift_of(tmp_path / "store")
    assert (report.verdict, report.overlap, report.weight_shift) == ("keep", None, None)
    assert "no post-processor is fitted on the store" in report.notes[0]
    assert report.unseen == pytest.approx(2 / 3, abs=0.1)


def test_unfitted_static_vectors_need_a_rebuild(tmp_path, tiny_config):
    config = tiny_config.replace(extractor="avg", postprocess=("zscore",))
    write(tmp_path / "docs", texts(STORES, 40, 1))
    index_files(IndexingRequest(tmp_path / "store", (tmp_path / "docs",), embedder=config))
    assert drift_of(tmp_path / "store").unseen == 0
    add(tmp_path / "store", texts(FLIGHT, 40, 2))
    report = drift_of(tmp_path / "store")
    assert report.unseen == pytest.approx(0.5, abs=0.1)
    assert report.verdict == "rebuild"
    refit_store(tmp_path / "store")
    assert drift_of(tmp_path / "store").verdict == "rebuild"


def test_texts_of_a_fit_before_the_store_are_no_drift(tmp_path, tiny_config, encoded):
    corpus = texts(STORES, 60, 1)
    embedder = Embedder(tiny_config).fit(corpus)
    Store.create(tmp_path / "s", embedder).close()
    add(tmp_path / "s", corpus)
    encoded.clear()
    report = drift_of(tmp_path / "s")
    assert (report.verdict, report.added, report.removed, report.notes) == ("keep", 60, 0, ())
    assert report.overlap > 0.99
    assert encoded == []


def test_empty_store_and_store_with_few_texts(tmp_path, tiny_config):
    embedder = Embedder(tiny_config).fit(texts(STORES, 40, 1))
    Store.create(tmp_path / "s", embedder).close()
    report = drift_of(tmp_path / "s")
    assert (report.verdict, report.vectors, report.unseen, report.overlap) == ("keep", 0, None, None)
    add(tmp_path / "s", texts(STORES, 5, 1))
    report = drift_of(tmp_path / "s")
    assert (report.verdict, report.vectors, report.overlap) == ("keep", 5, None)
    assert any(
        "needs 32 chunks or more, and the store has 5: the effect of a refit is not measured" in note
        for note in report.notes
    )


def test_vectors_of_another_program_raise(tmp_path):
    with (
        Store.create(tmp_path / "s", KnownEncoder()) as opened,
        pytest.raises(StoreError, match="its vectors were not made by ragembed"),
    ):
        drift.measure_drift(opened)


# Measures, compared with values computed by hand


def statistics(texts, frequency):
    frequency = np.array(frequency, dtype=np.int64)
    return TokenStatistics(texts, frequency, frequency)


def test_share_of_unseen_tokens():
    fitted, now = statistics(10, [10, 1, 8, 1, 2, 0]), statistics(4, [4, 1, 2, 0, 1, 4])
    assert unseen_share(fitted, now, special=[0]) == pytest.approx(4 / 8)  # heat is in four of the eight pairs
    assert unseen_share(fitted, statistics(0, [0] * 6), special=[0]) == 0


def test_weight_shift():
    fitted, now = np.array([1, 1, 0], dtype=np.float32), np.array([1, 3, 0], dtype=np.float32)
    texts = [np.array([0, 1]), np.array([1, 1]), np.array([], dtype=np.int64)]
    assert weight_shift(texts[:1], fitted, now, 1.0) == pytest.approx(0.25)  # from 1/2, 1/2 to 1/4, 3/4
    assert weight_shift(texts, fitted, now, 1.0) == pytest.approx(0.125)
    assert weight_shift(texts, fitted, now, 0.5) == pytest.approx(0.0625)
    assert weight_shift([], fitted, now, 1.0) == 0
    assert weight_shift([np.array([2, 1])], fitted, now, 1.0) == 0
    assert weight_shift([np.array([2, 2])], fitted, now, 1.0) == 0  # weights that are all 0 count as uniform


def test_overlap_is_the_share_of_common_results():
    assert overlap(np.array([[1, 2, 3], [4, 5, 6]]), np.array([[3, 2, 1], [4, 7, 8]])) == pytest.approx(4 / 6)
    assert overlap(np.empty((0, 3), dtype=np.int64), np.empty((0, 3), dtype=np.int64)) == 1


@pytest.mark.parametrize(
    ("before", "now", "kept", "size"),
    [
        (100, 100, 100, 100),  # nothing changed
        (100, 110, 100, 100),  # only added: the old vectors
        (80, 50, 50, 36),  # only removed: 1/m = 2/50 - 1/80
        (100, 100, 50, 50),  # half replaced
        (90, 90, 0, 30),  # all replaced
        (0, 10, 0, 10),
        (1, 1, 0, 1),
    ],
)
def test_chance_size(before, now, kept, size):
    assert chance_size(before, now, kept) == size


@pytest.mark.parametrize(
    ("overlap", "chance", "shift", "unfitted", "verdict"),
    [
        (None, 1.0, None, None, "keep"),
        (1.0, 1.0, 0.0, 0.0, "keep"),
        (drift.REFIT_BELOW, 1.0, drift.REBUILD_ABOVE, drift.UNSEEN_ABOVE, "keep"),
        (drift.REFIT_BELOW - 0.01, 1.0, 0.0, None, "refit"),
        (drift.REFIT_BELOW - 0.01, 0.95, 0.0, None, "keep"),
        (0.1, 1.0, drift.REBUILD_ABOVE + 0.01, None, "rebuild"),
        (1.0, 1.0, None, drift.UNSEEN_ABOVE + 0.01, "rebuild"),
    ],
)
def test_verdict(overlap, chance, shift, unfitted, verdict):
    found, reasons = judge(overlap, chance, shift, unfitted)
    assert found == verdict
    assert bool(reasons) == (verdict != "keep")
    assert all("more than" in reason or "less than" in reason for reason in reasons)

"""The drift of unchanged and changed stores. Measuring drift does not change the store."""

import random
import shutil
import stat

import numpy as np
import pytest

from ragembed import Collection, Embedder
from ragembed.errors import StoreError
from ragembed.extractors.transformer import TransformerExtractor
from ragembed.indexes import IndexingOptions, Store, refit_together
from ragembed.indexes.indexing import drift
from ragembed.indexes.indexing.refit import refit_store
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.indexing.run import index_files
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


@pytest.fixture
def no_encoder(monkeypatch):
    """An encoder that fails when it is called."""

    def encode(self, batch, side, *rest):
        raise AssertionError(f"{len(batch)} {side} are encoded")

    return lambda: monkeypatch.setattr(TransformerExtractor, "encode", encode)


def test_new_fit_has_no_drift(store, no_encoder):
    no_encoder()
    report = drift_of(store)
    assert (report.verdict, report.reasons, report.notes) == ("keep", (), ())
    assert (report.vectors, report.added) == (80, 0)
    assert (report.unseen, report.new_words, report.weight_shift, report.mean_shift) == (0, (), 0, 0)


def test_other_texts_cause_drift(store, no_encoder):
    add(store, texts(FLIGHT, 80, 2))
    no_encoder()
    report = drift_of(store)
    assert (report.verdict, report.vectors, report.added) == ("refit", 160, 80)
    assert report.unseen == pytest.approx(0.5, abs=0.1)
    assert report.expected == 0.0  # no word occurs in a single text
    assert set(report.new_words) < set(FLIGHT)
    assert len(report.new_words) == drift.NEW_WORDS
    assert report.mean_shift > drift.REFIT_ABOVE
    assert 0 < report.weight_shift < 0.5


def test_mean_shift_is_that_of_the_raw_vectors(store):
    add(store, texts(FLIGHT, 40, 2))
    with Store.open(store) as opened, opened.writer() as writer:
        raw = np.concatenate([block for _, block in writer.live_raw()]).astype(np.float64)
    before = raw[:80]
    spread = np.sqrt(np.square(before - before.mean(axis=0)).sum(axis=1).mean())
    expected = np.linalg.norm(raw.mean(axis=0) - before.mean(axis=0)) / spread
    assert drift_of(store).mean_shift == pytest.approx(expected, rel=1e-6)


def test_stores_with_a_common_fit_have_the_drift_of_one_store(store, no_encoder, tiny_config):
    with Store.open(store) as whole:
        assert drift.measure_drift(whole).verdict == "keep"
    write(store.parent / "docs", texts(STORES, 80, 1))
    parts = {name: store.parent / name for name in "abc"}
    for path, digits in zip(parts.values(), ("0-3", "4-6", "7-9"), strict=True):
        options = IndexingOptions(include=(f"*[{digits}].txt",))
        index_files(IndexingRequest(path, (store.parent / "docs",), options, tiny_config))
    refit_together(parts)
    with Collection.open(parts) as together:
        report = drift.measure_drift(together)
        assert (report.verdict, report.added, report.mean_shift) == ("keep", 0, 0)
    other = texts(FLIGHT, 80, 2)
    add(store, other)
    add(parts["b"], other[:70])
    add(parts["c"], other[70:])
    with Store.open(store) as whole:
        removed = whole.ids()[:9]
        whole.delete(removed)
    for path in parts.values():
        with Store.open(path) as part:
            part.delete(removed)
    no_encoder()
    after = drift_of(store)
    with Collection.open(parts) as together:
        report = drift.measure_drift(together)
    assert (report.verdict, report.vectors, report.added) == (after.verdict, 151, 80)
    assert (report.unseen, report.expected) == (after.unseen, after.expected)
    assert set(report.new_words) == set(after.new_words)
    assert report.weight_shift == pytest.approx(after.weight_shift, abs=1e-6)
    assert report.mean_shift == pytest.approx(after.mean_shift, abs=1e-3)


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


@pytest.mark.parametrize("replaced", [0, 40])
def test_more_texts_of_the_same_kind_are_kept(tmp_path, static_config, replaced):
    verdicts = [one_draw(tmp_path / f"{seed}", static_config, seed, STORES, replaced).verdict for seed in range(4)]
    assert verdicts == ["keep"] * 4


@pytest.mark.parametrize("replaced", [150, 300])
def test_half_or_all_replaced_by_another_domain_needs_a_refit(tmp_path, static_config, replaced):
    report = one_draw(tmp_path, static_config, 0, FLIGHT, replaced, 300)
    assert (report.verdict, report.vectors, report.added) == ("refit", 300, replaced)
    assert (report.mean_shift is None) == (replaced == 300)
    refit_store(tmp_path / "store")
    after = drift_of(tmp_path / "store")
    assert (after.verdict, after.added, after.mean_shift) == ("keep", 0, 0)


def test_token_weights_of_another_corpus_need_a_rebuild(tmp_path, static_config):
    some_of_both = STORES[:4] + FLIGHT  # the only words of the old texts are rare in the new texts
    report = one_draw(tmp_path, static_config.replace(weighting="idf"), 0, some_of_both, 70)
    assert report.verdict == "rebuild"
    assert report.weight_shift > 0.08


def test_deleted_texts_do_not_count(store):
    with Store.open(store) as opened:
        opened.delete(opened.ids()[:30])
    report = drift_of(store)
    assert (report.verdict, report.vectors, report.added, report.mean_shift) == ("keep", 50, 0, 0)


def test_large_stores_are_sampled(store, monkeypatch):
    monkeypatch.setattr(drift, "SAMPLE", 30)
    add(store, texts(FLIGHT, 80, 2))
    report = drift_of(store)
    assert (report.vectors, report.notes) == (160, ("tokens were counted in a random sample of 30 of 160 chunks",))
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


def test_report_without_fitted_post_processors(tmp_path, tiny_config):
    config = tiny_config.replace(postprocess=("normalize",), weighting="uniform")
    write(tmp_path / "docs", texts(STORES, 40, 1))
    index_files(IndexingRequest(tmp_path / "store", (tmp_path / "docs",), embedder=config))
    add(tmp_path / "store", texts(FLIGHT, 80, 2))
    report = drift_of(tmp_path / "store")
    assert (report.verdict, report.added, report.weight_shift) == ("keep", 80, None)
    assert "no post-processor is fitted on the store" in report.notes[0]
    assert report.unseen > 0.5


def test_runs_without_fitted_post_processors_count_what_is_added_later(tmp_path, tiny_config):
    config = tiny_config.replace(postprocess=("normalize",))
    write(tmp_path / "docs", texts(STORES, 40, 1))
    request = IndexingRequest(tmp_path / "store", (tmp_path / "docs",), embedder=config)
    index_files(request)
    before = contents(tmp_path / "store")
    index_files(request)
    assert contents(tmp_path / "store").keys() == before.keys()
    write(tmp_path / "docs" / "more", texts(FLIGHT, 80, 2))
    index_files(request)
    report = drift_of(tmp_path / "store")
    assert report.added == 80
    assert report.mean_shift > 0.1


def test_unfitted_static_vectors_need_a_rebuild(tmp_path, tiny_config):
    config = tiny_config.replace(extractor="avg", postprocess=("zscore",))
    write(tmp_path / "docs", texts(STORES, 40, 1))
    index_files(IndexingRequest(tmp_path / "store", (tmp_path / "docs",), embedder=config))
    assert drift_of(tmp_path / "store").verdict == "keep"
    add(tmp_path / "store", texts(FLIGHT, 40, 2))
    report = drift_of(tmp_path / "store")
    assert report.unseen == pytest.approx(0.5, abs=0.1)
    assert report.verdict == "rebuild"
    refit_store(tmp_path / "store")
    assert drift_of(tmp_path / "store").verdict == "rebuild"


def test_fit_before_the_store_has_no_mean_to_compare(tmp_path, tiny_config):
    corpus = texts(STORES, 60, 1)
    Store.create(tmp_path / "s", Embedder(tiny_config).fit(corpus)).close()
    report = drift_of(tmp_path / "s")
    assert (report.verdict, report.vectors, report.unseen) == ("keep", 0, None)
    add(tmp_path / "s", corpus[:5])
    assert "needs 32 chunks or more, and the store has 5" in drift_of(tmp_path / "s").notes[0]
    add(tmp_path / "s", corpus[5:], "more")
    report = drift_of(tmp_path / "s")
    assert (report.verdict, report.added, report.mean_shift, report.unseen) == ("keep", None, None, 0)
    refit_store(tmp_path / "s")
    assert drift_of(tmp_path / "s").added == 0


def test_unfinished_first_run_has_nothing_to_compare(tmp_path, tiny_config):
    embedder = Embedder(tiny_config.replace(postprocess=("normalize",), query_fit="shared")).fit(texts(STORES, 40, 1))
    wanted = {"wanted": {"postprocess": ["center", "normalize"], "query_fit": "separate"}}
    Store.create(tmp_path / "s", embedder, wanted).close()
    add(tmp_path / "s", texts(STORES, 40, 1))
    report = drift_of(tmp_path / "s")
    assert report.verdict == "keep"
    assert any("the post-processors center, normalize are not fitted yet" in note for note in report.notes)


def test_vectors_of_another_program_raise(tmp_path):
    with (
        Store.create(tmp_path / "s", KnownEncoder()) as opened,
        pytest.raises(StoreError, match="its vectors were not made by ragembed"),
    ):
        drift.measure_drift(opened)


def test_a_report_is_json(store):
    import json

    found = json.loads(json.dumps(drift_of(store).to_dict()))
    assert found["verdict"] == "keep"
    assert found["new_words"] == []

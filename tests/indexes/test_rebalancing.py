"""Splitting and merging stores: the same results, nothing encoded, and no half-made state."""

import random
import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed import Collection, Embedder, Fusion, Store
from ragembed.errors import ConfigError, StoreError
from ragembed.indexes import measure_drift, merge_stores, split_store
from ragembed.indexes.indexing import rebalancing
from ragembed.indexes.indexing.refit import refit_store
from ragembed.indexes.storage import hubness
from ragembed.indexes.storage.lock import watcher_lock
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
                    chunks,
                    snapshot.rows_of_keys(np.array(snapshot.keys_of(list(chunks.values())))).tolist(),
                    strict=True,
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


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_random_splits_and_merges_keep_the_results(whole, seed):
    draw = random.Random(seed)
    with Store.open(whole) as store:
        expected = answers(store, "year > 2003")
        kept = contents(whole)
    members = {"s": whole}
    for number in range(4):
        if len(members) > 1 and draw.random() < 0.5:
            chosen = draw.sample(sorted(members), draw.randint(2, len(members)))
            members[f"m{number}"] = merge_stores([members.pop(name) for name in chosen], f"m{number}")
        else:
            name = draw.choice(sorted(members))
            count = draw.randint(2, 4)
            members |= split_store(members.pop(name), [f"{name}-{i}" for i in range(count)], remove=True)
        with Collection.open(members) as together:
            assert_same(expected, answers(together, "year > 2003"))
    if len(members) > 1:
        members = {"all": merge_stores(list(members.values()), "all", remove=True)}
    [path] = members.values()
    assert contents(path)[:4] == kept[:4]
    assert contents(path)[5] == kept[5]


def test_the_same_store_is_always_divided_in_the_same_way(whole, tmp_path):
    copy = shutil.copytree(whole, tmp_path / "copy" / ".ragembed")
    one, other = (split_store(path, ["a", "b", "c"]) for path in (whole, copy))
    assert [contents(path)[0] for path in one.values()] == [contents(path)[0] for path in other.values()]


@given(st.lists(st.integers(1, 40), min_size=2, max_size=30), st.integers(2, 6))
def test_parts_differ_by_at_most_one_file(sizes, count):
    units = np.repeat(np.arange(len(sizes)), sizes)
    if len(sizes) < count:
        return
    parts = rebalancing.divided(np.array(sizes), count)
    loads = np.bincount(parts[units], minlength=count)
    assert loads.min() > 0
    assert loads.max() - loads.min() <= max(sizes)
    assert (parts == rebalancing.divided(np.array(sizes), count)).all()


@pytest.fixture
def two(tmp_path, encoder):
    """Two stores beside each other, with given vectors; each has a text of its own, and one text has two vectors."""
    paths = []
    for number, words in enumerate((["red lock", "tea"], ["blue lock", "bird"])):
        paths.append(tmp_path / f"store{number}")
        with Store.create(paths[-1], encoder) as store, store.writer() as writer:
            records = [record(f"{number}{i}", text) for i, text in enumerate([*words, "same"])]
            vectors = encoder.raw_documents([each.chunk.text for each in records])
            vectors[2] = np.eye(8, dtype=np.float32)[number]
            keys = writer.stage_vectors([each.chunk.text for each in records], vectors)
            writer.commit(chunks=records, keys=dict(zip([each.id for each in records], keys, strict=True)))
    return paths


def test_a_text_keeps_the_vector_that_it_has_in_each_store(two, encoder, tmp_path):
    encoded = encoder.encoded
    merged = merge_stores(two, "both", embedder=encoder)
    assert merged == tmp_path / ".ragembed-both"
    with Store.open(merged, encoder) as store:
        np.testing.assert_array_equal(store.vectors(["02", "12"]), np.eye(8)[:2])
    parts = split_store(merged, ["x", "y"], embedder=encoder)
    found = {}
    for path in parts.values():
        with Store.open(path, encoder) as store:
            found |= {chunk_id: store.vectors([chunk_id])[0] for chunk_id in store.ids()}
    np.testing.assert_array_equal([found["02"], found["12"]], np.eye(8)[:2])
    assert encoder.encoded == encoded


def change(path, encoder, how):
    with Store.open(path, encoder) as store, store.writer() as writer:
        if how == "unfinished":
            writer.set_meta({"unfinished": True})
        elif how == "same id":
            writer.stage(["tea"])
            writer.commit(chunks=[record("00", "tea")])
        elif how == "same file":
            writer.stage(["tea"])
            writer.commit(chunks=[record("new", "tea", "a.md")], sources=[source("a.md")])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("unfinished", "was interrupted: continue it with 'ragembed index' first"),
        ("same id", "both have the chunk with the id '00'"),
        ("same file", "both have the file 'a.md'"),
        ("embedder", "different embedders: fit one with 'ragembed collection refit'"),
        ("language", "different languages"),
        ("folder", "different folders around them: expected stores beside each other"),
        ("space", "MB free: expected"),
        ("twice", "expected two stores or more"),
        ("damaged", "is damaged: .*; see 'ragembed verify"),
    ],
)
def test_stores_that_cannot_be_merged_are_refused(two, encoder, make_encoder, how, message, tmp_path, monkeypatch):
    if how == "same file":
        change(two[0], encoder, how)
    change(two[1], encoder, how)
    given = encoder
    if how == "folder":
        two[1] = shutil.move(two[1], tmp_path / "elsewhere" / "store")
    elif how == "space":
        monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
    elif how == "damaged":
        [segment] = (two[1] / "segments").iterdir()
        (segment / "raw.f16").write_bytes(b"\0" * (segment / "raw.f16").stat().st_size)
    elif how == "twice":
        two[1] = two[0]
    elif how in ("embedder", "language"):
        shutil.rmtree(two[1])
        other = make_encoder(name="other") if how == "embedder" else encoder
        Store.create(two[1], other, language="none" if how == "language" else "english").close()
        given = None if how == "embedder" else encoder
    before = sorted(tmp_path.iterdir())
    with pytest.raises((ConfigError, StoreError), match=message):
        merge_stores(two, "both", embedder=given)
    assert sorted(tmp_path.iterdir()) == before


def test_a_store_with_foreign_files_or_a_writer_is_not_replaced(two, encoder, tmp_path):
    (two[1] / "mine.txt").write_text("x")
    with pytest.raises(StoreError, match=r"holds 'mine.txt', .* it can stay"):
        merge_stores(two, "both", embedder=encoder, remove=True)
    (tmp_path / "..ragembed-both.tmp").mkdir()
    (tmp_path / "..ragembed-both.tmp" / "mine.txt").write_text("x")
    with pytest.raises(StoreError, match=r"holds 'mine.txt', .* move it away"):
        merge_stores(two, "both", embedder=encoder)
    with Store.open(two[0], encoder) as store, store.writer(), pytest.raises(StoreError, match="is writing"):
        split_store(two[0], ["a", "b"], embedder=encoder)
    with watcher_lock(two[0]), pytest.raises(StoreError, match="already watches"):
        split_store(two[0], ["a", "b"], embedder=encoder, remove=True)
    assert split_store(two[0], ["a", "b"], embedder=encoder).keys() == {"a", "b"}


def test_a_failed_switch_keeps_everything_and_the_next_run_uses_the_stores_that_are_there(two, encoder, monkeypatch):
    def refuse(_):
        raise ConfigError("changed")

    with pytest.raises(ConfigError, match="changed"):
        merge_stores(two, "both", refuse, embedder=encoder, remove=True)
    assert all(path.exists() for path in two)
    with monkeypatch.context() as patched:
        patched.setattr(rebalancing, "_Copy", None)
        merged = merge_stores(two, "both", embedder=encoder)
    with Store.open(merged, encoder) as store:
        store.delete(["00"])
    again = merge_stores(two, "both", embedder=encoder)
    assert again.name == ".ragembed-both.2"
    with Store.open(again, encoder) as store:
        assert len(store) == 6


def test_drift_of_a_part_counts_what_was_added_since_the_fit(whole):
    with Store.open(whole) as store:
        store.add([record(f"new{i}", f"a zebra of the kind {i}") for i in range(9)])
        before = measure_drift(store)
    parts = split_store(whole, ["a", "b"])
    found = []
    for path in parts.values():
        with Store.open(path) as store:
            found.append(measure_drift(store))
    assert (before.added, sum(report.added for report in found)) == (9, 9)
    with Collection.open(parts) as together:
        whole_again = measure_drift(together)
    assert (whole_again.added, whole_again.removed, whole_again.texts) == (9, 0, whole_again.vectors)
    assert whole_again.overlap == pytest.approx(before.overlap, abs=0.02)
    assert whole_again.mean_shift == pytest.approx(before.mean_shift, abs=5e-3)
    assert whole_again.weight_shift == pytest.approx(before.weight_shift, abs=5e-3)
    merged = merge_stores(list(parts.values()), "all")
    with Store.open(merged) as store:
        after = measure_drift(store)
    assert (after.added, after.removed) == (9, 0)
    assert after.mean_shift == pytest.approx(before.mean_shift, abs=1e-3)

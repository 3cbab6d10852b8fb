"""Hubness: measured as its formula says, kept up to date, and subtracted from the cosines of hybrid search."""

import itertools
import json
import shutil

import numpy as np
import pytest

from ragembed import Embedder, Fusion, Store
from ragembed.corpus import PseudoQueries, draw_spans
from ragembed.errors import ConfigError, StoreDamagedError
from ragembed.indexes import IndexConfig
from ragembed.indexes.faiss_index import choose
from ragembed.indexes.indexing.refit import refit_store
from ragembed.indexes.integrity import Part
from ragembed.indexes.search.hybrid import ChunkVectors
from ragembed.indexes.storage import catalog, hubness, segments
from ragembed.indexes.storage.copying import copy_store
from ragembed.indexes.storage.derived import read_derived, records
from ragembed.indexes.storage.hubness import HUBNESS, NEAREST, DrawnQueries
from ragembed.indexes.types import text_hash
from ragembed.indexes.verification import verify_store
from tests.conftest import WORDS, record

TEXTS = [" ".join(words) for words in itertools.islice(itertools.permutations(WORDS[8:20], 6), 0, 40_000, 200)]
QUERIES = ("segment vector file", "writer of the store", "answer wing flow", "folder")
DRAWN = 60
PLAIN = Fusion(hubness=0)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(hubness, "PSEUDO_QUERIES", DRAWN)


@pytest.fixture(scope="module")
def template(tmp_path_factory, tiny_config):
    """A store of three segments with the hubness of its 151 chunks."""
    path = tmp_path_factory.mktemp("hubness") / "store"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hubness, "PSEUDO_QUERIES", DRAWN)
        with Store.create(path, Embedder(tiny_config).fit(TEXTS[:60]), index="flat") as store:
            for start in range(0, 150, 50):
                store.add([record(f"id{i}", TEXTS[i]) for i in range(start, start + 50)])
            store.add([record("copy", TEXTS[7])])
        refit_store(path)
    return path


@pytest.fixture
def path(template, tmp_path):
    return shutil.copytree(template, tmp_path / "store")


def measured(path):
    """Return the hubness of each chunk by id, as search reads it."""
    with Store.open(path) as store:
        ids = store.ids()
        with store.snapshot() as snapshot:
            values = ChunkVectors(snapshot).correction(np.array(snapshot.keys_of_ids(ids)), 1.0)
            values = None if snapshot.hubness() is None else values
    return None if values is None else dict(zip(ids, values.tolist(), strict=True))


def expected(path):
    """Return the hubness of each chunk by id, one chunk and pseudo-query at a time."""
    with Store.open(path) as store:
        texts = {chunk.id: chunk.chunk.embedded_text for chunk in store.chunks()}
        drawn = draw_spans(texts.values(), DRAWN, 0)
        queries = store.embedder.encode_queries([span for span, _ in drawn])
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
        found = {}
        for (each, text), vector in zip(texts.items(), store.vectors(list(texts)), strict=True):
            cosines = [float(vector @ q) for q, (_, origin) in zip(queries, drawn, strict=True) if origin != text]
            found[each] = float(np.mean(sorted(cosines)[-NEAREST:]))
    return found


def file_of(path):
    with Store.open(path) as store:
        [rec] = store.read_database(records, HUBNESS.name)
    return path / "derived" / rec.file, rec


def results(path, fusion=None, k=20, **options):
    with Store.open(path, **options) as store:
        return [[(hit.id, hit.score, hit.dense) for hit in store.search(query, k, fusion=fusion)] for query in QUERIES]


def ids(found):
    return [[each for each, *_ in hits] for hits in found]


def test_the_hubness_is_the_mean_cosine_of_the_nearest_pseudo_queries_from_other_texts(path):
    found = measured(path)
    assert found.keys() == expected(path).keys()
    np.testing.assert_allclose(list(found.values()), list(expected(path).values()), atol=1e-6)
    assert found["copy"] == found["id7"]


@pytest.mark.parametrize("kind", ["flat", "ivf-sq8"])
def test_hybrid_search_subtracts_it_from_the_cosines_in_every_kind_of_index(path, kind, monkeypatch):
    monkeypatch.setattr(segments, "LEAST_APPROXIMATE", 40)
    monkeypatch.setattr(choose, "LEAST_ASKED", 40)
    with Store.open(path) as store, store.writer() as writer:
        writer.refresh_index(IndexConfig(kind))
    hubness, fusion = expected(path), Fusion("minmax", alpha=1.0, feedback=0.0)
    with Store.open(path) as store:
        for query in QUERIES:
            hits = store.search(query, 151, fusion=fusion)
            corrected = np.array([hit.dense - 0.5 * hubness[hit.id] for hit in hits])
            np.testing.assert_allclose(
                [hit.score for hit in hits], (corrected - corrected.min()) / np.ptp(corrected), atol=1e-4
            )
            [vector] = store.embedder.encode_queries([query])
            cosines = store.vectors([hit.id for hit in hits]) @ vector
            np.testing.assert_allclose([hit.dense for hit in hits], cosines / np.linalg.norm(vector), atol=1e-5)


def test_other_searches_and_weight_zero_do_not_use_it(path, monkeypatch):
    found = results(path, PLAIN)
    with Store.open(path) as store:
        dense = [[(hit.id, hit.score) for hit in store.search(query, 9, mode="dense")] for query in QUERIES]
    assert found != results(path)
    monkeypatch.setattr(hubness, "LEAST_CHUNKS", 1000)
    refit_store(path)
    assert measured(path) is None
    assert results(path) == results(path, PLAIN) == found
    with Store.open(path) as store:
        assert [[(hit.id, hit.score) for hit in store.search(query, 9, mode="dense")] for query in QUERIES] == dense


def test_new_chunks_are_measured_at_once_and_their_results_are_those_of_a_refit(path, monkeypatch):
    file, rec = file_of(path)
    with Store.open(path) as store:
        store.add([record(f"new{i}", TEXTS[150 + i]) for i in range(7)])
        store.delete(["id3"])
    assert file_of(path) == (file, rec)  # So few are measured by the queries.
    few = measured(path)
    with Store.open(path) as store:
        store.add([record(f"more{i}", TEXTS[160 + i]) for i in range(30)])
    kept = read_derived(path, HUBNESS, file_of(path)[1])
    assert len(kept.rows) == 150 + 7 - 1 + 30  # The copy has the row of its original.
    assert not file.exists()
    many = measured(path)
    assert {each: many[each] for each in few} == pytest.approx(few, abs=1e-6)
    with Store.open(path) as store:
        hashes = [text_hash(chunk.chunk.embedded_text) for chunk in store.chunks()]
        again = dict(zip(store.ids(), kept.queries.hubness(store.vectors(store.ids()), hashes).tolist(), strict=True))
    assert many == pytest.approx(again, abs=1e-6)
    refit_store(path)
    assert measured(path) == pytest.approx(expected(path), abs=1e-6)


def test_a_chunk_whose_text_changes_has_the_hubness_of_its_new_text_at_once(path):
    kept, former = read_derived(path, HUBNESS, file_of(path)[1]), measured(path)
    with Store.open(path) as store:
        store.add([record("id9", "zebra " + TEXTS[199])])
    with Store.open(path) as store:
        [vector] = store.vectors(["id9"])
    found = float(kept.queries.hubness(vector[None, :], [b""])[0])
    assert abs(found - former["id9"]) > 1e-3
    assert measured(path) == former | {"id9": pytest.approx(found, abs=1e-6)}


def test_small_changes_do_not_read_the_file(path, monkeypatch):
    def refused(*_):
        raise AssertionError("the file is read")

    with monkeypatch.context() as patched, Store.open(path) as store:
        patched.setattr(hubness.Hubness, "read", refused)
        patched.setattr(catalog, "live_rows", refused)
        store.add([record(f"new{i}", TEXTS[150 + i]) for i in range(7)])
        store.delete(["id3"])
        with pytest.raises(AssertionError, match="the file is read"):
            store.add([record("new7", TEXTS[157])])


def test_the_pseudo_queries_are_drawn_again_when_the_store_has_doubled(path):
    with Store.open(path) as store:
        store.add([record(f"x{i}", f"{TEXTS[i]} zebra {i}") for i in range(160)])
    assert file_of(path)[1].chunks == 311
    assert measured(path) == pytest.approx(expected(path), abs=1e-6)


def test_a_small_store_has_none(path):
    with pytest.raises(ConfigError, match="hubness is -1"):
        Fusion(hubness=-1)
    with Store.open(path) as store:
        store.delete([f"id{i}" for i in range(60)])
    assert measured(path) is None
    assert results(path) == results(path, PLAIN)


@pytest.mark.parametrize(("others", "mean"), [(2, 0.55), (0, 0.0), (60, (0.6 + 12 * 0.5) / NEAREST)])
def test_the_own_span_does_not_count_if_there_are_few_pseudo_queries(others, mean):
    """The own span has the cosine 1; one other span has the cosine 0.6, the rest 0.5."""
    cosines = np.array([1.0, *[0.6, *[0.5] * others][:others]], dtype=np.float32)
    vectors = np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1)
    origins = np.frombuffer(b"x" * 16 + b"".join(bytes([i]) * 16 for i in range(others)), dtype=np.uint8).reshape(
        -1, 16
    )
    queries = DrawnQueries(PseudoQueries(("w",) * len(vectors), vectors), origins, vectors)
    chunk = np.array([[1.0, 0.0]], dtype=np.float32)
    assert queries.hubness(chunk, [b"x" * 16]) == pytest.approx([mean])


def test_it_survives_copies_rewriting_and_post_processors(path, tmp_path):
    found = results(path)
    copy_store(path, tmp_path / "copy")
    assert results(tmp_path / "copy") == found
    with Store.open(path) as store:
        store.optimize(index=IndexConfig("fp16"))
    assert ids(results(path)) == ids(found)
    refit_store(path, ["normalize"], "shared")
    assert measured(path) == pytest.approx(expected(path), abs=1e-6)


def test_damage_is_found_and_repaired(path):
    found, (file, _) = measured(path), file_of(path)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(StoreDamagedError, match="does not match its committed hash"):
        results(path)
    assert verify_store(path).parts() == {Part.HUBNESS}
    assert verify_store(path, repair=True).problems == []
    assert measured(path) is None
    with Store.open(path) as store, store.writer() as writer:
        writer.refresh_index()
    assert measured(path) == found
    file_of(path)[0].unlink()
    assert verify_store(path).parts() == {Part.HUBNESS}
    with Store.open(path) as store:
        store.add([record(f"new{i}", TEXTS[150 + i]) for i in range(20)])
    assert verify_store(path).problems == []
    assert len(measured(path)) == 151 + 20
    file_of(path)[0].unlink()
    refit_store(path, ["normalize"], "shared")
    assert len(measured(path)) == 151 + 20


@pytest.mark.parametrize("fusion", [Fusion(), Fusion("rrf", feedback=0)])
def test_an_explanation_has_its_term_and_sums_to_the_score(path, fusion):
    hubness = measured(path)
    with Store.open(path) as store:
        for each in store.explain(QUERIES[0], 10, fusion=fusion):
            assert sum(term.value for term in each.terms) == pytest.approx(each.hit.score, abs=1e-6)
            terms = [term.value for term in each.terms if term.kind == "hubness"]
            assert terms == (
                [] if each.dense.rank else [pytest.approx(-each.dense.factor * 0.5 * hubness[each.hit.id])]
            )
            [rounding] = [term.value for term in each.terms if term.kind == "rounding"]
            assert abs(rounding) < 1e-4


def test_the_commands_show_it_and_compare(path, cli, tmp_path):
    assert "hubness 0.5" in cli("status", "--store", path).stdout
    shown = cli("query", QUERIES[0], "--store", path, "--explain", "-v").stdout
    assert "(cosine less hubness " in shown
    assert "near many queries -" in shown
    judged = [{"query": "segment vector file", "relevant": ["id7"]}, {"query": "wing flow", "relevant": ["id9"]}]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, judged)))
    options = ("--store", path, "--compare", "hybrid", "hybrid:hubness=0")
    assert "hubness=0" in cli("eval", "retrieval", tmp_path / "q.jsonl", *options).stdout

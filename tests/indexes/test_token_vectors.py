"""Token vectors: kept with the chunks, and compared with those of the query to order the results of hybrid search."""

import itertools
import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed import Embedder, EmbedderConfig, Fusion, Store
from ragembed.errors import ConfigError, StoreDamagedError
from ragembed.indexes import IndexConfig, apply_settings
from ragembed.indexes.indexing.refit import refit_store
from ragembed.indexes.search.search import search
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.copying import copy_store
from ragembed.indexes.storage.token_vectors import open_tokens, token_files
from ragembed.indexes.verify import Part, verify_store
from ragembed.indexes.writing import token_updates
from ragembed.late_interaction import QueryTokens, sign_bits
from tests.conftest import WORDS, record

TEXTS = [" ".join(words) for words in itertools.islice(itertools.permutations(WORDS[8:20], 6), 0, 40_000, 200)]
QUERIES = ("segment vector file", "writer of the store, answer", "wing flow", "folder")
LATE = ("hybrid:late_interaction=0", "hybrid:late_interaction=3")
WITHOUT = Fusion(late_interaction=0)


@pytest.fixture(autouse=True)
def _small_files(monkeypatch):
    monkeypatch.setattr(token_updates, "_BATCH", 20)
    monkeypatch.setattr(token_updates, "_MERGED_ROWS", 60)
    monkeypatch.setattr(token_updates, "_MERGED_TOGETHER", 2)


@pytest.fixture(scope="module")
def template(tmp_path_factory, tiny_config):
    """A store of 90 chunks without token vectors."""
    path = tmp_path_factory.mktemp("tokens") / "store"
    with Store.create(path, Embedder(tiny_config).fit(TEXTS[:60]), index="flat") as store:
        store.add([record(f"id{i}", TEXTS[i], metadata={"even": i % 2 == 0}) for i in range(90)])
    return path


@pytest.fixture
def path(template, tmp_path):
    path = shutil.copytree(template, tmp_path / "store")
    with Store.open(path) as store:
        store.optimize(token_vectors=True)
    return path


def files_of(path):
    with Store.open(path) as store:
        return store._reader.read(lambda snapshot: token_files(snapshot.connection))


def kept(path):
    """Return the sign bits of the tokens of each chunk by id, as the files hold them."""
    with Store.open(path) as store:
        rows = store._reader.read(lambda snapshot: catalog.rows_of_ids(snapshot.connection, store.ids()))
    blocks = [open_tokens(path, file) for file in files_of(path)]
    by_row = {row: block.of(at) for block in blocks for at, row in enumerate(block.rows.tolist())}
    assert sum(len(block.rows) for block in blocks) == len(by_row)
    return {each: by_row[row].tolist() for each, row in rows.items()}


def expected(path):
    """Return the sign bits of the tokens of each chunk by id, one chunk at a time."""
    with Store.open(path) as store:
        extractor = store.embedder.extractor
        return {chunk.id: extractor.token_bits([chunk.chunk.embedded_text]).bits.tolist() for chunk in store.chunks()}


def results(path, fusion=None, k=20, where=None):
    with Store.open(path) as store:
        return [
            [(hit.id, pytest.approx(hit.score, abs=1e-6)) for hit in store.search(query, k, fusion=fusion, where=where)]
            for query in QUERIES
        ]


vectors = st.integers(1, 5).flatmap(
    lambda n: st.lists(st.lists(st.floats(-1, 1, width=32), min_size=11, max_size=11), min_size=n, max_size=n)
)


@given(vectors, st.lists(vectors, min_size=1, max_size=4), st.lists(st.floats(0.1, 2), min_size=5, max_size=5))
def test_the_score_is_the_weighted_mean_of_the_highest_similarities(query, texts, weights):
    query, weights = np.array(query, dtype=np.float32), np.array(weights[: len(query)], dtype=np.float32)
    bits = [sign_bits(np.array(text, dtype=np.float32)) for text in texts]
    found = QueryTokens(weights, query).scores([*bits, np.zeros((0, 2), dtype=np.uint8)])
    assert np.isnan(found[-1])
    for text, score in zip(texts, found, strict=False):
        best = [
            max(float(np.dot(token, np.where(np.array(other) > 0, 1, -1))) for other in text) / np.sqrt(11)
            for token in query
        ]
        assert score == pytest.approx(np.average(best, weights=weights), abs=1e-4)


def test_a_query_without_words_has_no_score():
    assert (
        QueryTokens(np.zeros(0, np.float32), np.zeros((0, 8), np.float32)).scores([np.zeros((1, 1), np.uint8)]) is None
    )


def test_the_bits_are_the_signs_of_the_word_tokens_in_all_windows(tiny_config):
    embedder = Embedder(tiny_config.replace(max_tokens=12)).fit(TEXTS[:20])
    extractor = embedder.extractor
    long = " , ".join(TEXTS[:4])
    found = extractor.token_bits([long, "wing", ", !"])
    assert found.counts.tolist() == [24, 1, 0]
    signs = np.unpackbits(found.bits, axis=1, count=extractor.model.dim).astype(bool)
    query = extractor.query_tokens("wing")
    assert (signs[24] == (query.vectors[0] > 0)).all()
    [[wing]] = extractor.model.tokenizer.ids(["wing"]).tolist()
    assert query.weights.tolist() == [pytest.approx(float(extractor.weights.table[wing]))]


def test_every_change_keeps_the_token_vectors_of_the_chunks(path):
    assert kept(path) == expected(path)
    with Store.open(path) as store:
        store.add([record(f"new{i}", TEXTS[100 + i]) for i in range(45)] + [record("id3", TEXTS[160])])
        assert kept(path) == expected(path)
        store.delete([f"id{i}" for i in range(70)])
        store.add([record("id5", TEXTS[5])])
    assert kept(path) == expected(path)
    assert len(files_of(path)) <= 3
    with Store.open(path) as store:
        store.delete(store.ids())
        assert files_of(path) == []
        assert list((path / "tokens").iterdir()) == []


def test_the_best_candidates_are_ordered_by_late_interaction(path):
    """Compare with the fused scores without late interaction, plus its standardised scores."""
    with Store.open(path) as store:
        for query in QUERIES:
            trace = []
            hits = store._reader.read(
                lambda snapshot, query=query, trace=trace: search(
                    snapshot, [query], 20, "hybrid", None, Fusion(), trace=trace
                )[0]
            )
            ids = {
                key: each
                for each, key in store._reader.read(
                    lambda snapshot: catalog.keys_of_ids(snapshot.connection, store.ids())
                ).items()
            }
            before = {hit.id: hit.score for hit in store.search(query, 100, fusion=WITHOUT)}
            names = [ids[key] for key in trace[-1].keys]
            assert len(names) == 90
            base = np.array([before[name] for name in names])
            tokens = store.embedder.extractor.query_tokens(query)
            bits = expected(path)
            late = tokens.scores([np.array(bits[name], dtype=np.uint8) for name in names])
            scores = base + 0.2 * base.std() * (late - late.mean()) / late.std()
            best = np.argsort(-scores, kind="stable")[:20]
            assert [hit.score for hit in hits] == pytest.approx(scores[best].tolist(), abs=1e-5)
            assert {hit.id for hit in hits[:10]} == {names[i] for i in best[:10]}


def test_without_it_nothing_changes(path, template):
    assert results(path, WITHOUT) == results(template) == results(template, WITHOUT)
    assert results(path) != results(template)
    with Store.open(path) as store:
        dense = [(hit.id, hit.score) for hit in store.search(QUERIES[0], 5, mode="dense")]
        store.optimize(token_vectors=False)
        assert [(hit.id, hit.score) for hit in store.search(QUERIES[0], 5, mode="dense")] == dense
    assert files_of(path) is None
    assert list((path / "tokens").iterdir()) == []
    assert results(path) == results(template)


def test_a_chunk_without_token_vectors_gets_the_mean(path, monkeypatch):
    with Store.open(path) as store, store.writer() as writer:
        writer.stage(["wing flow wing"])
        writer.commit(chunks=[record("late", "wing flow wing")])
    with Store.open(path) as store:
        [explained] = [each for each in store.explain("wing flow", 20) if each.hit.id == "late"]
    assert explained.late.value == pytest.approx(0.0, abs=1e-9)


def test_it_survives_copies_shards_filters_and_post_processors(path, tmp_path):
    found = results(path)
    copy_store(path, tmp_path / "copy")
    assert results(tmp_path / "copy") == found
    with Store.open(path) as store:
        store.optimize(index=IndexConfig("flat", shards=3))
    assert results(path) == found
    assert all(int(each[0].removeprefix("id")) % 2 == 0 for hits in results(path, where="even = true") for each in hits)
    folders = [file.folder for file in files_of(path)]
    refit_store(path, ["center", "normalize"], "shared")
    assert [file.folder for file in files_of(path)] == folders


def test_another_model_makes_them_again(path, tiny_config):
    before = [file.folder for file in files_of(path)]
    with Store.open(path) as store:
        config = store.embedder.config
    apply_settings(path, config.replace(layers="1"), Fusion())
    assert not set(before) & {file.folder for file in files_of(path)}
    assert kept(path) == expected(path)


def test_an_interrupted_run_keeps_the_finished_batches(template, tmp_path):
    path = shutil.copytree(template, tmp_path / "store")

    class Interrupts:
        def start(self, phase, unit, total):
            self.phase = phase

        def advance(self, count):
            done[0] += count * (self.phase == "embedding tokens")
            if done[0] > 50:
                raise KeyboardInterrupt

        def finish(self):
            pass

    done = [0]
    with Store.open(path) as store:
        with pytest.raises(KeyboardInterrupt):
            store.optimize(Interrupts(), token_vectors=True)
        assert len(files_of(path)) == 2
        assert store.search(QUERIES[0], 5)
        store.optimize()
    assert kept(path) == expected(path)
    assert verify_store(path).problems == []


def test_damage_is_found_and_repaired(path):
    found, [file, *others] = kept(path), files_of(path)
    data = bytearray(file.path(path).read_bytes())
    data[-1] ^= 1
    file.path(path).write_bytes(data)
    with pytest.raises(StoreDamagedError, match="does not match its committed hash"):
        results(path)
    [problem] = verify_store(path).problems
    assert (problem.part, problem.file) == (Part.TOKENS, f"tokens/{file.folder}/signs.safetensors")
    assert verify_store(path, repair=True).problems == []
    assert files_of(path) == others
    assert all(results(path))
    with Store.open(path) as store, store.writer() as writer:
        writer.refresh_index()
    assert kept(path) == found


@pytest.mark.parametrize("fusion", [Fusion(), Fusion("rrf", feedback=0), Fusion("minmax", late_interaction=1.5)])
def test_an_explanation_has_its_term_and_sums_to_the_score(path, fusion):
    with Store.open(path) as store:
        explained = store.explain(QUERIES[0], 10, fusion=fusion)
    for each in explained:
        assert sum(term.value for term in each.terms) == pytest.approx(each.hit.score, abs=1e-6)
        assert sum(term.value for term in each.terms if term.kind == "late") == pytest.approx(each.late.value)
        [rounding] = [term.value for term in each.terms if term.kind == "rounding"]
        assert abs(rounding) < 1e-4
        assert each.to_dict()["late"]["score"] == each.late.score
    assert len({each.late.score for each in explained}) > 1


def test_why_not_gives_a_chunk_outside_the_candidates_its_score(tmp_path, tiny_config, cli):
    for i, text in enumerate(TEXTS[:150]):
        (tmp_path / f"{i:03}.txt").write_text(text)
    (tmp_path / "c.json").write_text(tiny_config.to_json())
    store = ("--store", tmp_path / "s")
    cli("index", tmp_path, *store, "--config", tmp_path / "c.json", "--token-vectors")
    ranked = [hit["path"] for hit in json.loads(cli("query", "wing", *store, "-k", "100", "--json").stdout)["results"]]
    [missing, *_] = [f"{i:03}.txt" for i in range(150) if not any(name.endswith(f"{i:03}.txt") for name in ranked)]
    shown = cli("why-not", "wing", tmp_path / missing, *store).stdout
    assert "hybrid" in shown


def test_the_commands_keep_and_show_it(tmp_path, cli, tiny_config):
    (tmp_path / "docs").mkdir()
    for i in range(30):
        (tmp_path / "docs" / f"{i}.txt").write_text(TEXTS[i])
    (tmp_path / "c.json").write_text(tiny_config.to_json())
    store = ("--store", tmp_path / "s")
    static = EmbedderConfig.from_preset("re", model=tiny_config.model)
    (tmp_path / "static.json").write_text(static.to_json())
    refused = cli(
        "index", tmp_path / "docs", *store, "--config", tmp_path / "static.json", "--token-vectors", exit_code=2
    )
    assert "no token vectors with" in refused.stderr
    assert not (tmp_path / "s").exists()
    cli("index", tmp_path / "docs", *store, "--config", tmp_path / "c.json", "--token-vectors")
    shown = cli("status", *store).stdout
    assert "token vectors  1 bit a dimension" in shown
    assert "hubness 0.5, late interaction 0.2\n" in shown
    assert "late interaction" in cli("query", "wing flow", *store, "--explain").stdout
    (tmp_path / "docs" / "new.txt").write_text("wing boundary flow")
    cli("index", *store)
    assert kept(tmp_path / "s") == expected(tmp_path / "s")
    cli("optimize", *store, "--no-token-vectors")
    assert "token vectors" not in cli("status", *store).stdout
    cli("optimize", *store, "--token-vectors")
    assert kept(tmp_path / "s") == expected(tmp_path / "s")


def test_evaluation_compares_with_and_without(tmp_path, cli, tiny_config):
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    documents = [json.dumps({"_id": f"d{i}", "text": text}) for i, text in enumerate(TEXTS[:60])]
    (folder / "corpus.jsonl").write_text("\n".join(documents))
    queries = [json.dumps({"_id": f"q{i}", "text": query}) for i, query in enumerate(QUERIES)]
    (folder / "queries.jsonl").write_text("\n".join(queries))
    judged = [f"q{i}\td{7 * i}\t1\n" for i in range(len(QUERIES))]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged))
    (tmp_path / "c.json").write_text(tiny_config.to_json())
    options = ("--config", tmp_path / "c.json", "--json", "--compare")
    same, other = [json.loads(cli("eval", "retrieval", folder, *options, "hybrid", each).stdout) for each in LATE]
    assert same["a"]["fusion"] == same["b"]["fusion"]
    assert same["a"]["map"] == same["b"]["map"] == other["a"]["map"] != other["b"]["map"]


def test_settings_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="late_interaction is -1"):
        Fusion(late_interaction=-1)

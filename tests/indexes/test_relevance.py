"""Relevance: fitted on each store, comparable between queries, and shown wherever hits are."""

import json
import shutil

import numpy as np
import pytest

import ragembed
from ragembed import Collection, Embedder, Fusion, Store
from ragembed.documents.model import Chunk
from ragembed.errors import ConfigError
from ragembed.indexes import ChunkRecord
from ragembed.indexes.indexing.refit import refit_store
from ragembed.indexes.lexical.bm25 import counted_terms, frequencies, highest_score
from ragembed.indexes.search import fusion, relevance
from ragembed.indexes.search.pipeline import query_expression
from ragembed.indexes.search.relevance import LEAST_CHUNKS, Logistic, RelevanceModel, collected_notes
from ragembed.indexes.storage import posting_files
from tests.conftest import WORDS, record

pytestmark = pytest.mark.usefixtures("all_queries")

BEES = """Worker bees gather nectar and pollen from flowers and carry them home to the hive.
The queen lays up to two thousand eggs a day in early summer.
Drones leave the hive only to mate with young queens from other colonies.
A colony swarms when the hive is crowded and a new queen is about to hatch.
Smoke calms bees because they fill themselves with honey and sting less.
Varroa mites weaken larvae and spread viruses between colonies.
Oxalic acid in winter kills mites while there is no brood.
Honey is ripe when the bees have sealed most cells of a comb with wax.
The extractor spins frames so that honey runs out of the open combs.
Cold honey crystallises; warm it slowly in a water bath to make it liquid again.
Beekeepers feed sugar syrup in autumn so that the colony survives the winter.
In winter the bees form a cluster around the queen and keep her warm.
Wax foundations help bees to build straight combs in wooden frames.
A queen excluder keeps the queen out of the upper boxes where honey is stored.
Bees tell each other where flowers are with a dance on the comb.
Foulbrood is a bacterial disease of larvae and must be reported to the authorities.
A weak colony can be robbed by bees from stronger hives nearby.
Propolis is resin from buds that bees use to close gaps in the hive.
New queens are marked with a coloured dot that shows the year of their birth.
Insulated hives lose less heat, but damp air must escape at the top.
Lindens and robinias give much nectar if the weather in June is warm.
A swarm can be caught in a box and moved to an empty hive in the evening.
Royal jelly is fed to larvae that will become queens.
Bumblebees pollinate tomatoes in greenhouses by shaking the flowers.
Pesticides on flowering rape can poison foraging bees within hours.""".splitlines()
ANSWERABLE = [
    "how many eggs does a queen lay",
    "treat hives against mites",
    "why do beekeepers use smoke",
    "honey became solid, what can I do",
    "when does a colony swarm",
    "food for bees before winter",
    "how do bees show the way to flowers",
    "mark a queen with colour",
]
FOREIGN = [
    "chocolate cake recipe",
    "boundary layer on a flat plate",
    "how do I merge two branches in git",
    "tariffs on imported steel",
    "how are writers of a database locked",
    "who composed this symphony",
    "ticket machine at the station is broken",
    "resistance of a transistor amplifier",
]


@pytest.fixture(scope="module")
def bees(tmp_path_factory, needs_minilm):
    path = tmp_path_factory.mktemp("bees") / "store"
    with Store.create(path, Embedder().fit(BEES)) as store:
        store.add([ChunkRecord(f"bee{i}", Chunk(text, metadata={"number": i})) for i, text in enumerate(BEES)])
        assert store.search("honey")[0].relevance is None
    refit_store(path)
    return path


@pytest.fixture(scope="module")
def template(tmp_path_factory, tiny_config):
    """A store with a tiny model, without a fit of relevance."""
    draw = np.random.default_rng(3)
    texts = [" ".join(draw.choice(WORDS[8:], 9)) for _ in range(60)]
    path = tmp_path_factory.mktemp("relevance") / "store"
    with Store.create(path, Embedder(tiny_config).fit(texts)) as store:
        store.add([record(f"id{i}", text) for i, text in enumerate(texts)])
    return path


@pytest.fixture
def path(template, tmp_path):
    return shutil.copytree(template, tmp_path / "store")


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_answerable_queries_are_more_relevant_than_others(bees, mode):
    with Store.open(bees) as store:
        best = {
            query: max((hit.relevance for hit in store.search(query, mode=mode)), default=0.0)
            for query in (*ANSWERABLE, *FOREIGN)
        }
    assert all(0.0 <= value <= 1.0 for value in best.values())
    own, others = [best[query] for query in ANSWERABLE], [best[query] for query in FOREIGN]
    assert np.mean([[high > low for low in others] for high in own]) >= (0.8 if mode == "lexical" else 0.9)
    if mode == "hybrid":
        assert best["chocolate cake recipe"] < relevance.WEAK < best["mark a queen with colour"]


def test_rows_of_a_table_do_not_make_matches_in_other_files_weak(tmp_path, needs_minilm):
    for i in range(0, len(BEES), 3):
        (tmp_path / f"{i}.md").write_text("\n\n".join(f"# Note {j}\n\n{BEES[j]}" for j in range(i, min(i + 3, 25))))
    rows = [
        f"{1000 + i},Customer {i % 9},2026-0{1 + i % 9}-11,Delivery of {3 + i} hives,{100 + 7 * i} EUR,paid\n"
        for i in range(90)
    ]
    (tmp_path / "invoices.csv").write_text("invoice,customer,date,subject,amount,state\n" + "".join(rows))
    ragembed.index(tmp_path, store=tmp_path / "store", progress=False)
    with Store.open(tmp_path / "store") as store:
        best = {query: store.search(query, 1)[0] for query in (*ANSWERABLE, *FOREIGN)}
    assert all(hit.source.endswith(".md") for query, hit in best.items() if query in ANSWERABLE)
    assert sum(best[query].relevance >= relevance.WEAK for query in ANSWERABLE) >= 7
    assert sum(best[query].relevance >= relevance.WEAK for query in FOREIGN) == 0


def test_results_below_the_least_relevance_are_left_out(bees):
    with Store.open(bees) as store:
        every = store.search("honey became solid", 10)
        kept = store.search("honey became solid", 10, min_relevance=0.5)
        assert kept == [hit for hit in every if hit.relevance >= 0.5]
        assert 0 < len(kept) < len(every)
        assert store.search("chocolate cake recipe", min_relevance=0.5) == []
        assert store.search("chocolate cake recipe", 3, min_relevance=0.0) == store.search("chocolate cake recipe", 3)
        context = store.context("honey became solid", min_relevance=0.5)
        assert {block.ids[0] for block in context.blocks} <= {hit.id for hit in kept}
        assert not context.is_weak
        assert store.context("chocolate cake recipe").is_weak


def test_a_filter_and_the_number_of_results_do_not_change_it(bees):
    with Store.open(bees) as store:
        [first, *_] = store.search("honey became solid", 10, fusion=Fusion(feedback=0))
        where = {"number": first.chunk.metadata["number"]}
        [alone] = store.search("honey became solid", 1, where=where, fusion=Fusion(feedback=0))
        assert alone.relevance == first.relevance


@pytest.mark.parametrize("query", ["queen and honey", "queen and honey мёд"])
@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_the_explanation_adds_up_to_it(bees, mode, query):
    is_read = query.isascii() or mode == "lexical"
    with Store.open(bees) as store:
        lexical = RelevanceModel.from_dict(store.status()["relevance"]).lexical
        for each in store.explain(query, 5, mode):
            parts = each.relevance
            assert (parts.read == 1) is is_read
            value = Logistic(parts.origin + parts.of_cosine + parts.of_matched, 0, 0)(0, 0)
            if mode == "hybrid" and not is_read:
                value = parts.read * value + (1 - parts.read) * lexical(0, parts.matched)
            assert parts.value == pytest.approx(value)
            assert parts.value == each.hit.relevance
            assert each.to_dict()["relevance"]["value"] == parts.value


def test_the_highest_score_is_above_every_score_and_reached_by_repetition(path, monkeypatch):
    with Store.open(path) as store:

        def measured(query):
            with store.snapshot() as snapshot:
                return snapshot.highest_score(query_expression(snapshot, query))

        for query in ("lock writer store", '"lock writer" zebra', "unheard words", "wing-flow"):
            best = store.search(query, 1, "lexical")
            assert measured(query) >= (best[0].lexical if best else 0.0)
        assert measured("unheard lock") > measured("lock") > 0
        store.add([record("repeated", "zebra " * 5000)])
        by_words = measured("zebra")
        [hit] = store.search("zebra", 1, "lexical")
        assert hit.lexical / by_words > 0.5
        monkeypatch.setattr(posting_files, "LEAST_CHUNKS", 10)
        store.add([record("another", "zebra unheard")])
        counted = measured("zebra unheard lock")
        with store.snapshot() as snapshot:
            assert snapshot.stores[0].postings() is not None
            terms = counted_terms("english", query_expression(snapshot, "zebra unheard lock"))
            by_fulltext = highest_score(snapshot.count(), frequencies(snapshot.connection, None, terms))
        assert counted == pytest.approx(by_fulltext)


def test_the_fit_is_deterministic_stored_and_replaced_with_the_embedder(path):
    refit_store(path)
    with Store.open(path) as store:
        first, language = store.status()["relevance"], store.status()["detected_language"]
        found = [hit.relevance for hit in store.search("lock writer")]
    assert (first["chunks"], language["chunks"]) == (60, 60)
    assert RelevanceModel.from_dict(json.loads(json.dumps(first))).to_dict() == first
    refit_store(path)
    with Store.open(path) as store:
        assert store.status()["relevance"] == first
        assert [hit.relevance for hit in store.search("lock writer")] == found
    refit_store(path, ["normalize"])
    with Store.open(path) as store:
        assert store.status()["relevance"]["fingerprint"] != first["fingerprint"]
        with store.writer() as writer:
            writer.set_meta({relevance.KEY: first})
        assert {hit.relevance for hit in store.search("lock writer")} == {None}


def test_a_small_store_has_none(path):
    refit_store(path)
    with Store.open(path) as store:
        assert store.status()["relevance"] is not None
        store.delete(store.ids()[LEAST_CHUNKS - 1 :])
    refit_store(path, ["normalize"])
    with Store.open(path) as store:
        assert {hit.relevance for hit in store.search("lock writer")} == {None}


FEW = "the threshold 0.5 was not applied: it is fitted for 20 chunks or more, and the store has 19$"


MISSING = "the threshold 0.5 was not applied: .*'ragembed refit' makes one"


@pytest.mark.parametrize(
    ("chunks", "message", "mode"), [(19, FEW, "hybrid"), (60, MISSING, "dense"), (60, MISSING, "lexical")]
)
def test_unknown_relevance_is_not_0(path, chunks, message, mode):
    with Store.open(path) as store, Collection.open({"one": path}) as collection:
        store.delete(store.ids()[chunks:])
        for opened in (store, collection):
            best = opened.search("lock writer", 5, mode)
            for search in (
                lambda least, opened=opened: opened.search("lock writer", 5, mode, min_relevance=least),
                lambda least, opened=opened: opened.search_many(["lock writer"], 5, mode, min_relevance=least)[0],
                lambda least, opened=opened: [
                    each.hit for each in opened.explain("lock writer", 5, mode, min_relevance=least)
                ],
            ):
                with pytest.warns(UserWarning, match=message) as warned:
                    assert search(0.5) == best
                assert len(warned) == 1
                with pytest.raises(ConfigError, match="expected a number from 0"):
                    search(1.5)
            with pytest.warns(UserWarning, match=message):
                assert opened.context("lock writer", mode=mode, min_relevance=0.5).blocks
            with collected_notes() as notes:
                opened.search_many(["lock writer", "wing"], 5, mode, min_relevance=0.5)
            assert len(notes) == 1
    with pytest.warns(UserWarning, match=message):
        assert ragembed.search("lock writer", path, min_relevance=0.5)


def test_among_stores_with_different_embedders_only_unknown_relevance_stays(path, tmp_path):
    shutil.copytree(path, tmp_path / "small")
    refit_store(path, ["normalize"])
    with Store.open(tmp_path / "small") as small:
        small.delete(small.ids()[1:])
    with Collection.open({"fitted": path, "small": tmp_path / "small"}) as both:
        assert len(both.groups()) == 2
        with pytest.warns(UserWarning, match="and the store has 1$") as warned:
            hits = both.search("lock writer", 20, min_relevance=1.0)
        assert [hit.store for hit in hits] == ["small"]
        assert len(warned) == 1


LANGUAGES = {
    "chinese": {
        "写入者持有存储的锁": "怎么锁定存储",
        "机翼上的气流产生升力": "升力从哪里来",
        "蜂王每天产很多卵": "蜂王产卵的数量",
        "蜂蜜在寒冷时结晶": "为什么蜂蜜会结晶",
    },
    "russian": {
        "Писатель держит блокировку хранилища": "блокировка хранилища",
        "Поток воздуха над крылом создаёт подъёмную силу": "откуда подъёмную силу получает самолёт",
        "Матка откладывает много яиц каждый день": "сколько яиц откладывает пчела",
        "Мёд кристаллизуется на холоде": "почему мёд стал твёрдым",
    },
    "german": {
        "Der Schreiber hält die Sperre des Speichers": "Sperre des Speichers",
        "Die Strömung am Flügel erzeugt Auftrieb": "woher kommt der Auftrieb",
        "Die Königin legt jeden Tag viele Eier": "wie viele Eier legt die Biene",
        "Honig kristallisiert bei Kälte": "warum wird Honig fest",
    },
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.usefixtures("needs_minilm")
def test_a_query_that_the_model_cannot_read_is_answered_by_words(language, tmp_path, monkeypatch):
    pairs = LANGUAGES[language]
    english = "\n".join(BEES[:8])
    with Store.create(tmp_path / "store", Embedder().fit([english, *pairs])) as store:
        store.add([record(text, text) for text in (*pairs, *english.split("\n"))])
        for text, query in pairs.items():
            hits = store.search(query, 3)
            [explanation, *_] = store.explain(query, 3)
            assert sum(term.value for term in explanation.terms) == pytest.approx(explanation.score, abs=1e-6)
            assert hits[0].id == text
            assert explanation.dense.weight == (pytest.approx(0.6) if language == "german" else 0.0)
            if language == "german":
                monkeypatch.setattr(fusion, "_MOST_UNREAD", 0.5)
                assert store.search(query, 3) == hits


def test_the_weight_of_the_vector_falls_with_the_share_that_is_not_read():
    weights = [Fusion(alpha=0.6).for_unread(share).alpha for share in (0.0, 0.3, 0.6, 0.9, 1.0)]
    assert weights == pytest.approx([0.6, 0.4, 0.2, 0.0, 0.0])
    assert Fusion().for_unread(0.0) == Fusion()

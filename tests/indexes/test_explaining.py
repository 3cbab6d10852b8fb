"""Explanations: in every mode and fusion, the terms sum to the score, and each term has the right value."""

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.indexes import Fusion, Store
from ragembed.indexes.search.explain import explain_hits
from ragembed.indexes.search.feedback import shares
from ragembed.indexes.search.fusion import METHODS
from ragembed.indexes.types import Hit
from ragembed.postprocess import unit_rows

TEXTS = {
    "locks/a": "The writer holds the lock of the store.",
    "locks/b": "A reader never waits for the writer; locked is the store.",
    "wings/a": "Shock wave and boundary layer: supersonic air flow on a wing.",
    "wings/b": "Pressure in the boundary layer of a body at subsonic speed.",
    "animals/a": "The cat sleeps and the dog runs.",
    "animals/b": "The bird flies, the fish swims.",
    "numbers/a": "one two three four five six seven eight nine ten",
}
QUERY = "who holds the lock of the writer?"
FUSIONS = [
    Fusion(),
    Fusion(feedback=0.0),
    *(Fusion(method, 0.3) for method in METHODS),
    *(Fusion(alpha=alpha) for alpha in (0.0, 1.0)),
]


@pytest.fixture(scope="module")
def embedder(tiny_model):
    # Windows of 16 tokens hold the query, and some texts have several.
    settings = {"model": str(tiny_model), "dtype": "float32", "max_tokens": 16, "postprocess": ("abtt:1", "normalize")}
    return Embedder(EmbedderConfig(**settings)).fit(TEXTS.values())


@pytest.fixture
def store(tmp_path, embedder, make_record):
    with Store.create(tmp_path / "s", embedder) as made:
        made.add([make_record(name, text, title="Notes") for name, text in TEXTS.items()])
        yield made


def by_kind(explanation, kind):
    return [term for term in explanation.terms if term.kind == kind]


def check_sums(explanation):
    assert explanation.score == pytest.approx(explanation.hit.score, abs=1e-5)
    assert sum(term.value for term in explanation.terms) == pytest.approx(explanation.score, abs=1e-9)
    [rounding] = by_kind(explanation, "rounding")
    assert abs(rounding.value) < 1e-5


@pytest.mark.parametrize("fusion", FUSIONS, ids=str)
def test_hybrid_terms_sum_to_the_score(store, fusion):
    hits = store.search(QUERY, 5, fusion=fusion)
    explanations = store.explain(QUERY, 5, fusion=fusion)
    assert [each.hit for each in explanations] == hits
    for each in explanations:
        check_sums(each)
        parts = [part.value for part in (each.dense, each.lexical, each.shared) if part is not None]
        assert sum(parts) == pytest.approx(each.hit.score)
        assert (each.shared is None) == (fusion.feedback == 0 or fusion.alpha == 1)
        found = each.contributions
        [question] = by_kind(each, "query") or [None]
        expected = each.hit.dense if each.unit == "cosine" else question.value
        assert found.pairs.sum() + found.residual == pytest.approx(expected, abs=1e-5)
        assert found.residual == pytest.approx(0.0, abs=1e-5)
        assert (each.unit == "cosine") == (fusion.method == "rrf" or fusion.alpha == 0.0)


def test_feedback_has_one_term_per_chunk(store, embedder):
    fusion = Fusion(feedback=0.5)
    explanation = store.explain(QUERY, 4, fusion=fusion)[3]
    [query] = unit_rows(embedder.encode_queries([QUERY]))
    names = [record.id for record in explanation.towards]
    first = store.search(QUERY, len(TEXTS), fusion=Fusion(feedback=0.0))
    assert names == [hit.id for hit in first[:3]]
    best, [vector] = store.vectors(names), store.vectors([explanation.hit.id])
    weights = 0.5 * shares(np.array([hit.score for hit in first]), 3)
    moved = query + weights @ best
    length = np.linalg.norm(moved)
    assert explanation.dense.score == pytest.approx(moved @ vector / length, abs=1e-5)
    factor = 0.6 / explanation.dense.line.unit / length
    terms = {term.name: term.value for term in by_kind(explanation, "feedback")}
    expected = {name: factor * weight * (row @ vector) for name, weight, row in zip(names, weights, best, strict=True)}
    assert terms == pytest.approx(expected, abs=1e-5)
    assert by_kind(explanation, "query")[0].value == pytest.approx(factor * (query @ vector), abs=1e-5)


def test_scale_comes_from_all_candidates(store):
    every = store.explain(QUERY, len(TEXTS))
    for kind in ("dense", "lexical"):
        parts = [getattr(each, kind) for each in every]
        scores = np.array([part.score for part in parts])
        for part in parts:
            assert (part.line.origin, part.line.unit) == pytest.approx((scores.mean(), scores.std()))
            assert part.value == pytest.approx(part.weight * (part.score - scores.mean()) / scores.std())
    assert every[0].candidates == len(TEXTS)
    ranks = [each.dense.rank for each in store.explain(QUERY, 7, fusion=Fusion("rrf", 1.0))]
    assert ranks == list(range(1, len(TEXTS) + 1))


@pytest.mark.parametrize("question", [QUERY, '"lock of" the writer', "Notes cat.sleeps", "the the dog"])
def test_bm25_is_the_sum_over_phrases(store, question):
    for each in store.explain(question, 7, "lexical"):
        assert each.phrases == pytest.approx({term.name: term.value for term in by_kind(each, "phrase")})
        assert sum(each.phrases.values()) == pytest.approx(each.hit.score)
        assert all(score > 0 for score in each.phrases.values())
        check_sums(each)


def test_token_pairs_sum_to_the_cosine(store):
    for each in store.explain(QUERY, 7, "dense"):
        check_sums(each)
        assert each.contributions.pairs.sum() == pytest.approx(each.hit.score, abs=1e-5)
        text = each.hit.chunk.embedded_text
        assert text[each.text_start :] == each.hit.chunk.text
        for token in each.contributions.document:
            if token.start is not None:
                assert text[token.start : token.end] == token.text


def test_query_without_words_is_explained_by_its_vector(store):
    for each in store.explain("?!", 3):
        check_sums(each)
        assert (each.mode, each.dense, dict(each.phrases)) == ("dense", None, {})


def test_other_embedders_have_no_tokens(tmp_path, encoder, make_record):
    with Store.create(tmp_path / "s", encoder) as store:
        store.add([make_record(name, text) for name, text in TEXTS.items()])
        for mode in ("hybrid", "dense"):
            for each in store.explain(QUERY, 3, mode):
                check_sums(each)
                assert each.contributions is None
                assert "known: ragembed does not know their tokens" in each.note
                assert by_kind(each, "query")
        assert store.explain(QUERY, 3, "lexical")[0].note is None


def test_note_reports_a_score_changed_by_a_later_step(store):
    found = store.search(QUERY, 2, "dense")
    hits = [Hit(hit.id, hit.chunk, hit.source, 9.0, hit.dense, hit.lexical) for hit in found]
    with store.snapshot() as snapshot:
        explained = explain_hits(snapshot, QUERY, hits, "dense", Fusion(), [])
    for hit, each in zip(found, explained, strict=True):
        assert each.score == pytest.approx(hit.score)
        assert "a later step set the score to 9.000" in each.note


def test_explain_applies_filters_and_accepts_no_hits(store):
    assert [each.hit.id for each in store.explain("lock", 5, where={"title": "nothing"})] == []
    assert store.explain("zebra", 5, "lexical") == []


def test_origins_of_unchanged_text_and_of_another_searched_text(store, make_record):
    text = "All rights reserved\nthe lock\nagain"
    store.add([make_record("a", text, title="Notes"), make_record("b", text, searched="the lock\nagain")])
    same, other = [each for each in store.explain("lock", 9, "dense") if each.hit.id in ("a", "b")]
    same, other = (same, other) if same.hit.id == "a" else (other, same)
    embedded = same.hit.chunk.embedded_text
    placed = [(letter, origin) for letter, origin in zip(embedded, same.origins, strict=True) if origin]
    assert [text[start:end] for _, (start, end) in placed] == [letter for letter, _ in placed]
    assert "".join(letter for letter, _ in placed) == text.replace("\n", "")
    assert same.text_start == same.to_dict()["tokens"]["text_start"] == len("Notes\n")
    assert (other.text_start, set(other.origins)) == (None, {None})


def test_origins_of_normalised_text(store, make_record):
    text = "A Uni\ufb01ed inter-\n  national lo\u00adck\nAll rights"
    store.add([make_record("part", text, searched="A Unified international\n lock\nAll rights")])
    [explanation] = [each for each in store.explain("lock", 8, "dense") if each.hit.id == "part"]
    embedded = explanation.hit.chunk.embedded_text

    def origin(word):
        start = embedded.index(word)
        first, last = explanation.origins[start], explanation.origins[start + len(word) - 1]
        return text[first[0] : last[1]]

    assert origin("Unified") == "Uni\ufb01ed"
    assert origin("international") == "inter-\n  national"
    assert origin("lock") == "lo\u00adck"


def test_to_dict_returns_json_values(store):
    import json

    [explanation] = store.explain(QUERY, 1)
    whole = json.loads(json.dumps(explanation.to_dict()))
    assert sum(term["value"] for term in whole["terms"]) == pytest.approx(whole["score"])
    tokens = whole["tokens"]
    assert np.shape(tokens["pairs"]) == (len(tokens["query"]), len(tokens["document"]))
    assert np.sum(tokens["pairs"]) + tokens["residual"] == pytest.approx(tokens["sum"])
    assert sum(word["value"] for word in tokens["words"]) == pytest.approx(np.sum(tokens["pairs"]))

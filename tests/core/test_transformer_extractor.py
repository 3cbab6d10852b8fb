"""Contextual vectors against the equations, computed with transformers and NumPy."""

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.config.specs import SbertWk
from ragembed.errors import ConfigError
from tests.core.raw_vectors import LONG, TEXTS, config, raw
from tests.core.test_sbert_wk import by_the_paper


def windows(model, text, room):
    """Return the windows of a long text, with special tokens."""
    framed = model.ids("")
    ids = model.ids(text, special=False)
    return [[framed[0], *ids[at : at + room], framed[1]] for at in range(0, len(ids), room)]


LAYERS = {
    "last": (6,),
    "-1": (-1,),
    "0": (0,),
    "1": (1,),
    "first+last": (1, 6),
    "1+2": (1, 2),
    "2+1+6+0": (0, 1, 2, 6),
    "-1+0+3": (-1, 0, 3),
}


@pytest.mark.parametrize("layers", LAYERS)
def test_layers(bert_model, reference, layers):
    model = reference(bert_model)
    expected = [model.mean(model.ids(text), LAYERS[layers]).mean(axis=0) for text in TEXTS]
    np.testing.assert_allclose(raw(bert_model, TEXTS, layers=layers), expected, atol=1e-4)


def test_power_means_over_windows(bert_model, reference):
    """The smallest, mean and largest value of each dimension; a long text has several windows."""
    model = reference(bert_model)
    for text in (*TEXTS, LONG):
        vectors = np.concatenate([model.mean(ids, (6,)) for ids in windows(model, text, 18)])
        expected = np.concatenate([vectors.min(axis=0), vectors.mean(axis=0), vectors.max(axis=0)])
        found = raw(bert_model, [text], pooling="min+mean+max", max_tokens=20)
        np.testing.assert_allclose(found[0], expected, atol=1e-4)


@pytest.mark.parametrize("weighting", ["uniform", "idf", "-biases"])
def test_text_longer_than_the_window(bert_model, reference, weighting):
    model = reference(bert_model)
    cut = windows(model, LONG, room=18)
    assert len(cut) > 3
    tokens = np.concatenate(cut)
    weight_of = table(model, TEXTS, weighting)
    weights = np.array([weight_of(token) for token in tokens])
    hidden = np.concatenate([model.states(ids)[6] for ids in cut])
    expected = weights / weights.sum() @ hidden
    np.testing.assert_allclose(raw(bert_model, [LONG], max_tokens=20, weighting=weighting)[0], expected, atol=1e-4)


# Weightings


def table(model, corpus, weighting, a=1e-3, special=True):
    """Return a function from token id to weight, from the definitions."""
    rows = [model.ids(text) for text in corpus]
    counted = [model.ids(text, special=special) for text in corpus]
    occurrences = np.bincount(np.concatenate(counted), minlength=model.tokenizer.get_vocab_size())
    share = occurrences / occurrences.sum()
    distinct = np.count_nonzero(occurrences)
    threshold = 1 - (1 - 1 / distinct) ** np.mean([len(row) for row in counted])
    alpha = max(np.count_nonzero(share > threshold), 1) / distinct
    usif = (1 - alpha) / (alpha * distinct / 2)
    biases = {".", "a", "the", "in", ",", "is", "to", "of", "and", "'", "on", "-", "s", "with", "for", '"', "at", "##s"}
    biases |= {"are", "it", "two", "that", "you", "said", "playing", "i", "an", "as", "was", "from", ":", "by", "white"}
    biases |= {*"?!;[]", "\u201c", "\u201d"}

    def dropped(token):
        word = model.tokenizer.id_to_token(token)
        return word in biases or word.startswith("##")

    return {
        "uniform": lambda token: 1.0,
        "idf": lambda token: np.log(len(rows) / max(sum(token in row for row in rows), 1)),
        "sif": lambda token: a / (a + share[token]),
        "usif": lambda token: usif / (usif / 2 + share[token]),
        "-biases": lambda token: float(not dropped(token)),
    }[weighting]


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("weighting", ["idf", "sif", "sif:0.05", "usif", "-biases"])
def test_weightings(bert_model, reference, weighting, special):
    model = reference(bert_model)
    corpus = [*TEXTS, "the dog", "a cat, \u201ca bird\u201d", "fish; fish!"]
    name, _, number = weighting.partition(":")
    weight_of = table(model, corpus, name, float(number or 1e-3), special)
    expected = []
    for text in corpus:
        ids = model.ids(text)
        takes_part = np.array([special or token > 4 for token in ids])
        weights = np.array([weight_of(token) for token in ids]) * takes_part
        scale = takes_part.sum() if name in ("sif", "usif") else weights.sum()
        expected.append(weights / scale @ model.states(ids)[6])
    found = raw(bert_model, corpus, corpus, weighting=weighting, special_tokens=special)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_sif_is_the_method_of_its_authors(bert_model, reference):
    """Algorithm 1 of Arora et al. 2017: weighted sums over the length, less their first singular vector."""
    model = reference(bert_model)
    corpus = [*TEXTS, "the dog", "a cat flies"]
    weight_of = table(model, corpus, "sif", special=False)
    rows = [model.ids(text) for text in corpus]
    sums = np.array(
        [
            np.mean([weight_of(token) * state for token, state in own], axis=0)
            for own in (list(zip(ids, model.states(ids)[6], strict=True))[1:-1] for ids in rows)
        ]
    )
    component = np.linalg.svd(sums, full_matrices=False)[2][:1]
    expected = sums - sums @ component.T @ component
    config = EmbedderConfig(
        model=str(bert_model),
        weighting="sif",
        special_tokens=False,
        postprocess=("common:1",),
        query_fit="shared",
        dtype="float32",
    )
    found = Embedder(config).fit(corpus).encode_documents(corpus)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_all_weights_zero_give_the_plain_mean(bert_model, reference):
    model = reference(bert_model)
    text = "the . a , of"
    expected = model.states(model.ids(text))[6][1:-1].mean(axis=0)
    np.testing.assert_allclose(
        raw(bert_model, [text], weighting="-biases", special_tokens=False)[0], expected, atol=1e-4
    )
    kept = model.states(model.ids(text))[6][[0, -1]].mean(axis=0)
    np.testing.assert_allclose(raw(bert_model, [text], weighting="-biases")[0], kept, atol=1e-4)


def test_biases_keep_mask_tokens(bert_model, reference):
    model = reference(bert_model)
    ids = model.ids("the cat [MASK].")
    keep = [0, 2, 3, 5]
    found = raw(bert_model, ["cat"], template="the [X] [M].", weighting="-biases")[0]
    np.testing.assert_allclose(found, model.states(ids)[6][keep].mean(axis=0), atol=1e-4)


def test_custom_biases(bert_model, reference):
    model = reference(bert_model)
    found = raw(bert_model, ["the cat runs."], weighting="-biases", biases=("cat",), special_tokens=False)[0]
    expected = model.states(model.ids("the cat runs."))[6][[1, 3]].mean(axis=0)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_byte_level_typographic_quotes_are_punctuation(roberta_model, reference):
    model = reference(roberta_model)
    text = "runs \u201cinto\u201d"
    words = [model.tokenizer.decode([number]).strip() for number in model.ids(text)]
    keep = [word not in ("\u201c", "\u201d") for word in words]
    assert keep.count(False) == 2
    found = raw(roberta_model, [text], weighting="-biases")[0]
    np.testing.assert_allclose(found, model.states(model.ids(text))[2][keep].mean(axis=0), atol=1e-4)


@pytest.mark.parametrize("share", ["idf", "idf:0.5"])
def test_zero_idf_gives_uniform_weights(bert_model, reference, share):
    model = reference(bert_model)
    expected = model.states(model.ids("the cat"))[6].mean(axis=0)
    found = raw(bert_model, ["the cat"], ["the cat", "cat the dog"], weighting=share)[0]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_unseen_tokens_have_the_idf_of_one_text(bert_model, reference):
    model = reference(bert_model)
    corpus = ["cat", "cat dog", "dog", "bird"]
    ids = model.ids("cat bird zebra")
    idf = np.array([0.0, np.log(4 / 2), np.log(4), *[np.log(4)] * (len(ids) - 4), 0.0])
    expected = idf / idf.sum() @ model.states(ids)[6]
    np.testing.assert_allclose(raw(bert_model, ["cat bird zebra"], corpus, weighting="idf")[0], expected, atol=1e-4)


def test_weights_from_a_corpus_file(bert_model, tmp_path):
    file = tmp_path / "corpus.txt"
    file.write_text("cat dog\n\n  cat  \n   \nbird flies\n", encoding="utf-8")
    lines = ["cat dog", "cat", "bird flies"]
    found = raw(bert_model, TEXTS, weighting="idf", weighting_corpus=str(file))
    np.testing.assert_allclose(found, raw(bert_model, TEXTS, lines, weighting="idf"), atol=1e-6)
    for texts, message in ((b"\n \n", "is empty"), (b"\xff\xfe", "line 1: not UTF-8")):
        file.write_bytes(texts)
        with pytest.raises(ConfigError, match=message):
            raw(bert_model, TEXTS, weighting="idf", weighting_corpus=str(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        raw(bert_model, TEXTS, weighting="idf", weighting_corpus=str(tmp_path / "none"))


# SBERT-WK, one token at a time, as in the paper


def word_knowledge(model, rows, settings, weight_of=lambda token: 1.0):
    """Return the vector of a text from the token ids of its windows; importances sum to 1 over all windows."""
    vectors, weights = [], []
    for ids in rows:
        states = model.states(ids)
        for place, token in enumerate(ids):
            vector, variance = by_the_paper(np.array([states[layer][place] for layer in range(7)]), settings)
            vectors.append(vector)
            weights.append(weight_of(token) * variance)
    return np.array(weights) / sum(weights) @ np.array(vectors)


@pytest.mark.parametrize(
    ("options", "settings"),
    [("", SbertWk()), (":window=1,start_layer=2", SbertWk(window=1, start_layer=2))],
)
def test_sbert_wk(bert_model, reference, options, settings):
    model = reference(bert_model)
    expected = [word_knowledge(model, [model.ids(text)], settings) for text in TEXTS]
    np.testing.assert_allclose(raw(bert_model, TEXTS, extractor="sbert-wk" + options), expected, atol=2e-4)


def test_sbert_wk_importances_are_scaled_over_all_windows(bert_model, reference):
    model = reference(bert_model)
    cut = windows(model, LONG, room=18)
    found = raw(bert_model, [LONG, "fox"], extractor="sbert-wk", max_tokens=20)
    np.testing.assert_allclose(found[0], word_knowledge(model, cut, SbertWk()), atol=2e-4)


def test_sbert_wk_with_idf_uses_both_weights(bert_model, reference):
    model = reference(bert_model)
    expected = word_knowledge(model, [model.ids(TEXTS[0])], SbertWk(), table(model, TEXTS, "idf"))
    found = raw(bert_model, TEXTS, extractor="sbert-wk", weighting="idf")[0]
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_sbert_wk_with_too_few_layers(tiny_model):
    with pytest.raises(ConfigError, match="start_layer is 4: expected a layer of the model, from 0 to 2"):
        Embedder(config(tiny_model, extractor="sbert-wk")).fit(TEXTS)
    with pytest.raises(ConfigError, match="too few layers for a window"):
        Embedder(config(tiny_model, extractor="sbert-wk:start_layer=1")).fit(TEXTS)

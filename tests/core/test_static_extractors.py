"""The extractors ``avg``, ``bert+avg``, ``re`` and ``words`` against their definitions."""

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.errors import ConfigError, ModelError
from ragembed.extractors.token_tables import RandomTable
from tests.core.raw_vectors import LONG, TEXTS, config, raw

UNSEEN = ["pressure zebra", "the bird flies", "synonym"]
# Avg.


def token_means(model, rows, layers):
    """Return the mean contextual vector of each token id over windows of ids."""
    seen = {}
    for ids in rows:
        for token, vector in zip(ids, model.mean(ids, layers), strict=True):
            seen.setdefault(token, []).append(vector)
    return {token: np.mean(vectors, axis=0) for token, vectors in seen.items()}


def mapped(model, means):
    """Return the vectors of all tokens; unseen ones by affine ridge regression from layer -1, as least squares."""
    words = model.table
    tokens = sorted(means)
    inputs, outputs = words[tokens], np.array([means[token] for token in tokens])
    centre, middle = inputs.mean(axis=0), outputs.mean(axis=0)
    ridge = 1e-3 * ((inputs - centre) ** 2).sum() / inputs.shape[1]
    rows = np.concatenate([inputs - centre, np.sqrt(ridge) * np.eye(inputs.shape[1])])
    targets = np.concatenate([outputs - middle, np.zeros((inputs.shape[1], outputs.shape[1]))])
    slope = np.linalg.lstsq(rows, targets, rcond=None)[0]
    return {token: means.get(token, (words[token] - centre) @ slope + middle) for token in range(len(words))}


def plain_mean(model, vectors, text, special=False):
    found = [vectors[token] for token in model.ids(text, special=special) if token in vectors]
    return np.mean(found, axis=0) if found else np.zeros(32)


@pytest.mark.parametrize(("layers", "numbers"), [("last", (6,)), ("first+last", (1, 6)), ("-1+0", (-1, 0))])
@pytest.mark.parametrize("special", [None, True])
def test_avg_is_the_mean_of_contextual_vectors(bert_model, reference, layers, numbers, special):
    model = reference(bert_model)
    means = token_means(model, [model.ids(text) for text in TEXTS], numbers)
    expected = [plain_mean(model, means, text, special=bool(special)) for text in [*TEXTS, "the the cat of"]]
    found = raw(bert_model, [*TEXTS, "the the cat of"], extractor="avg", layers=layers, special_tokens=special)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_unseen_tokens_are_mapped_word_embeddings(bert_model, reference):
    model = reference(bert_model)
    vectors = mapped(model, token_means(model, [model.ids(text) for text in TEXTS], (6,)))
    expected = [plain_mean(model, vectors, text) for text in UNSEEN]
    np.testing.assert_allclose(raw(bert_model, UNSEEN, extractor="avg"), expected, atol=1e-3)


def test_unseen_tokens_are_skipped(bert_model, reference):
    model = reference(bert_model)
    means = token_means(model, [model.ids(text) for text in TEXTS], (6,))
    expected = [plain_mean(model, means, text) for text in UNSEEN]
    found = raw(bert_model, UNSEEN, extractor="avg:unseen=skip")
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert not found[2].any()  # a single unseen word
    assert raw(bert_model, UNSEEN, extractor="avg:unseen=skip", weighting="idf")[1].any()


def test_corpus_with_every_token_needs_no_map(bert_model, reference):
    every = " ".join(reference(bert_model).tokenizer.get_vocab())
    one = raw(bert_model, TEXTS, [*TEXTS, every], extractor="avg")
    np.testing.assert_array_equal(one, raw(bert_model, TEXTS, [*TEXTS, every], extractor="avg:unseen=skip"))


def test_avg_reads_all_windows_of_a_text(bert_model, reference):
    model = reference(bert_model)
    cls, sep = model.ids("")
    ids = model.ids(LONG, special=False)
    rows = [[cls, *ids[at : at + 18], sep] for at in range(0, len(ids), 18)]
    means = token_means(model, [*rows, model.ids("fox")], (6,))
    expected = [plain_mean(model, means, text, special=True) for text in (LONG, "fox")]
    expected[0] = (len(ids) * plain_mean(model, means, LONG) + means[cls] + means[sep]) / (len(ids) + 2)
    settings_ = {"extractor": "avg", "special_tokens": True, "max_tokens": 20}
    np.testing.assert_allclose(raw(bert_model, [LONG, "fox"], [LONG, "fox"], **settings_), expected, atol=1e-4)


def test_avg_over_a_stream_of_many_texts(bert_model, reference):
    """There are more texts than in a block; a repeated text counts each time."""
    model = reference(bert_model)
    corpus = ["the cat"] * 2047 + ["the dog", "cat the"]
    rows = [(model.ids(text), n) for text, n in (("the cat", 2047), ("the dog", 1), ("cat the", 1))]
    sums, counts = {}, {}
    for ids, n in rows:
        for token, vector in zip(ids, model.states(ids)[6], strict=True):
            sums[token] = sums.get(token, 0) + n * vector
            counts[token] = counts.get(token, 0) + n
    means = {token: total / counts[token] for token, total in sums.items()}
    expected = [plain_mean(model, means, text) for text in ("the cat", "dog")]
    np.testing.assert_allclose(raw(bert_model, ["the cat", "dog"], iter(corpus), extractor="avg"), expected, atol=1e-4)


def test_separate_corpora_for_weights_vectors_and_chain(bert_model, reference, tmp_path):
    model = reference(bert_model)
    vectors, weights, chain = (tmp_path / name for name in ("vectors.txt", "weights.txt", "chain.txt"))
    vectors.write_text("\n\n".join(TEXTS), encoding="utf-8")
    weights.write_text("cat dog\ncat\nbird fox\n", encoding="utf-8")
    chain.write_text("the bird flies\nair flow\nthe lock\n", encoding="utf-8")
    changes = {"weighting": "idf", "avg_corpus": str(vectors), "weighting_corpus": str(weights)}
    settings_ = config(bert_model, extractor="avg", postprocess=("center",), query_fit="shared", **changes)
    embedder = Embedder(settings_.replace(postprocess_corpus=str(chain))).fit(["zebra alpha", "beta"])
    means = token_means(model, [model.ids(text) for text in TEXTS], (6,))
    all_vectors = mapped(model, means)
    cat, dog, fox = (model.ids(word, special=False)[0] for word in ("cat", "dog", "fox"))
    expected = np.log(3 / 2) * all_vectors[cat] + np.log(3) * (all_vectors[dog] + all_vectors[fox])
    expected = expected / (np.log(3 / 2) + 2 * np.log(3))
    np.testing.assert_allclose(embedder.raw_documents(["cat dog fox"])[0], expected, atol=1e-4)
    centred = embedder.encode_documents(["the bird flies", "air flow", "the lock"])
    np.testing.assert_allclose(centred.mean(axis=0), 0, atol=1e-5)
    assert embedder.fitted_on.documents == 3


# BERT + Avg.


@pytest.mark.parametrize("w", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("template", ["[X]", "t0"])
def test_bert_avg(bert_model, w, template):
    changes = {"layers": "first+last", "weighting": "idf"}
    texts = [*TEXTS, *UNSEEN, ""]
    bert = raw(bert_model, texts, template=template, **changes)
    avg = raw(bert_model, texts, extractor="avg", **changes)
    found = raw(bert_model, texts, extractor=f"bert+avg:w={w}", template=template, **changes)
    np.testing.assert_allclose(found, (1 - w) * bert + w * avg, atol=1e-4)
    if w in (0.0, 1.0):
        np.testing.assert_array_equal(found, avg if w else bert)


def test_bert_avg_skips_unseen_tokens_in_the_static_part(bert_model):
    found = raw(bert_model, UNSEEN, extractor="bert+avg:w=1,unseen=skip")
    np.testing.assert_array_equal(found, raw(bert_model, UNSEEN, extractor="avg:unseen=skip"))


# Random embeddings


@pytest.fixture(scope="module")
def tokenizer_only(bert_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "tokenizer.json").write_bytes((bert_model / "tokenizer.json").read_bytes())
    return folder


@pytest.mark.parametrize(("dim", "sigma"), [(768, 0.1), (7, 0.1), (64, 2.0)])
def test_random_vectors_are_normal(dim, sigma):
    from scipy.stats import kstest

    rows = RandomTable(3, dim, sigma).rows(np.arange(200_000 // dim))
    assert rows.dtype == np.float32
    assert abs(rows.mean()) < 4 * sigma / np.sqrt(rows.size)
    assert rows.std() == pytest.approx(sigma, rel=0.01)
    assert kstest(rows.ravel() / sigma, "norm").pvalue > 1e-3
    halves = [rows[:, : dim // 2].ravel(), rows[:, dim - dim // 2 :].ravel()]
    assert abs(np.corrcoef(*halves)[0, 1]) < 0.02
    assert abs(np.corrcoef(rows[:-1].ravel(), rows[1:].ravel())[0, 1]) < 0.02


def test_random_vector_depends_only_on_seed_and_token():
    table = RandomTable(0, 16, 0.1)
    rows = table.rows(np.array([5, 1, 5, 30_000]))
    np.testing.assert_array_equal(rows[0], rows[2])
    np.testing.assert_array_equal(RandomTable(0, 16, 0.1).rows(np.array([30_000]))[0], rows[3])
    assert np.abs(RandomTable(1, 16, 0.1).rows(np.array([5]))[0] - rows[0]).max() > 0.01
    np.testing.assert_allclose(RandomTable(0, 16, 0.2).rows(np.array([5]))[0], 2 * rows[0], rtol=1e-6)


@pytest.mark.parametrize("special", [None, True])
def test_re_is_the_weighted_mean(tokenizer_only, bert_model, reference, special):
    model = reference(bert_model)
    table = RandomTable(5, 9, 0.1)
    expected = []
    for text in TEXTS:
        ids = model.ids(text, special=bool(special))
        idf = np.array([np.log(len(TEXTS) / sum(token in model.ids(other) for other in TEXTS)) for token in ids])
        expected.append(idf / idf.sum() @ table.rows(np.array(ids)))
    changes = {"extractor": "re:dim=9", "seed": 5, "weighting": "idf", "special_tokens": special}
    np.testing.assert_allclose(raw(tokenizer_only, TEXTS, **changes), expected, atol=1e-6)


def test_re_vector_of_a_single_token(tokenizer_only):
    assert raw(tokenizer_only, TEXTS, extractor="re").shape == (4, 768)
    found = raw(tokenizer_only, ["cat", "cat cat"], ["cat"], extractor="re")
    np.testing.assert_allclose(found[0], found[1], atol=1e-7)
    assert found[0].std() == pytest.approx(0.1, rel=0.1)
    assert not raw(tokenizer_only, [""], extractor="re").any()


def test_einsum_gets_no_empty_text(tokenizer_only, monkeypatch):
    """NumPy's einsum sometimes returns NaN for a sum of no terms."""
    einsum = np.einsum

    def checked(subscripts, *operands, **options):
        assert all(operand.size for operand in operands)
        return einsum(subscripts, *operands, **options)

    monkeypatch.setattr(np, "einsum", checked)
    assert not raw(tokenizer_only, ["", "fox", ""], extractor="re")[[0, 2]].any()


def test_folder_without_a_tokenizer(tmp_path):
    with pytest.raises(ModelError, match=r"has no tokenizer: expected a tokenizer\.json"):
        Embedder(config(tmp_path, extractor="re")).fit(TEXTS)


# Word vectors

WORDS = ["the", "of", "cat", "dog", "wing"]
VECTORS = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [2, 2, 0], [0, -4, 8]], dtype=np.float32)


@pytest.fixture(params=["glove", "word2vec"])
def vectors(request, tmp_path):
    file = tmp_path / "vectors"
    if request.param == "glove":
        rows = (f"{word} {' '.join(map(str, row))}\n" for word, row in zip(WORDS, VECTORS, strict=True))
        file.write_text("".join(rows), encoding="utf-8")
    else:
        rows = (word.encode() + b" " + row.astype("<f4").tobytes() for word, row in zip(WORDS, VECTORS, strict=True))
        file.write_bytes(b"5 3\n" + b"\n".join(rows) + b"\n")
    return file


@pytest.mark.parametrize(
    ("drop", "expected"),
    [
        (0, [[0, 1 / 3, 1 / 3], [1, 1, 0.5], [0, -4, 8], [0, 0, 0], [0, 0, 0]]),
        (2, [[0, 0, 1], [2, 2, 0], [0, -4, 8], [0, 0, 0], [0, 0, 0]]),
    ],
)
def test_means_of_words(vectors, drop, expected):
    texts = ["The cat, of zebras", "Dog dog DOG of the cats of the", "wing!", "zebra qx", ""]
    expected = np.array(expected)
    if not drop:  # 1 the, 1 of, 1 cat; 3 dog, 2 of, 2 the
        expected[0], expected[1] = [1 / 3, 1 / 3, 1 / 3], [8 / 7, 8 / 7, 0]
    np.testing.assert_allclose(raw(vectors, texts, extractor=f"words:drop={drop}"), expected, atol=1e-6)


def test_words_with_idf_weights(vectors):
    texts = ["the cat of", "the dog", "the cat wing"]
    idf = {"the": 0.0, "cat": np.log(3 / 2), "of": np.log(3), "dog": np.log(3), "wing": np.log(3)}
    rows = dict(zip(WORDS, VECTORS, strict=True))
    expected = [sum(idf[w] * rows[w] for w in t.split()) / sum(idf[w] for w in t.split()) for t in texts]
    np.testing.assert_allclose(raw(vectors, texts, texts, extractor="words", weighting="idf"), expected, atol=1e-5)


def test_power_means_of_words(vectors):
    """Rücklé et al. 2018: the means of the powers -∞, 1 and ∞, joined; "the" is left out, "zebra" is unknown."""
    texts = ["The cat, of zebras, wing", "dog", "zebra", ""]
    words = [VECTORS[[2, 1, 4]], VECTORS[[3]], np.zeros((1, 3)), np.zeros((1, 3))]
    expected = [np.concatenate([rows.min(axis=0), rows.mean(axis=0), rows.max(axis=0)]) for rows in words]
    found = raw(vectors, texts, extractor="words:drop=1", pooling="min+mean+max")
    np.testing.assert_allclose(found, expected, atol=1e-6)
    positive = abs(VECTORS[[2, 1, 4]].astype(np.float64)) + 0.1
    for power, extremum in ((-300, positive.min(axis=0)), (300, positive.max(axis=0))):
        np.testing.assert_allclose((positive**power).mean(axis=0) ** (1 / power), extremum, rtol=0.01)
    assert raw(vectors, texts, extractor="words", pooling="max").shape == (4, 3)
    with pytest.raises(ConfigError, match=r"pooling is 'cls\+mean', but extractor 'words' does not use it"):
        config(vectors, extractor="words", pooling="cls+mean")


def test_power_means_of_words_are_explained(vectors):
    embedder = Embedder(config(vectors, extractor="words", pooling="min+mean+max", weighting="idf")).fit_extractor(
        TEXTS
    )
    for text in ("The cat of the wing", "dog", "zebra", ""):
        parts = embedder.extractor.token_parts(text, "documents")
        np.testing.assert_allclose(parts.rows.sum(axis=0), embedder.raw_documents([text])[0], atol=1e-6)


def test_word_vector_preset(words_file):
    embedder = Embedder.from_preset("b2s-100", model=str(words_file)).fit(["the cat", "w7 w99", "fish w3"])
    vectors = embedder.encode_documents(["the cat", "w7 w99", "fish w3", "fish"])
    assert not vectors[1].any()
    np.testing.assert_allclose(vectors[2], vectors[3], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors[[0, 2]], axis=1), 1, atol=1e-6)


def test_drop_of_every_word(vectors):
    with pytest.raises(ConfigError, match="drop is 5"):
        Embedder(config(vectors, extractor="words:drop=5")).fit(TEXTS)


def test_word_vectors_need_a_file(tmp_path):
    with pytest.raises(ConfigError, match="needs a word-vector file"):
        Embedder.from_preset("b2s-100").fit(TEXTS)
    with pytest.raises(ModelError, match=r"none\.txt does not exist: give a word-vector file"):
        Embedder.from_preset("b2s-100", model=str(tmp_path / "none.txt")).fit(TEXTS)


def test_padded_table_of_word_embeddings(bert_model, tmp_path):
    import torch
    from transformers import BertModel

    for file in bert_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    torch.manual_seed(0)
    model = BertModel.from_pretrained(bert_model)
    model.resize_token_embeddings(model.config.vocab_size + 64, mean_resizing=False)
    model.save_pretrained(tmp_path)
    embedder = Embedder(EmbedderConfig(extractor="avg", model=str(tmp_path), dtype="float32")).fit(["the cat", "a dog"])
    assert np.isfinite(embedder.encode_queries(["zebra the"])).all()

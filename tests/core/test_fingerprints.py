"""Fingerprints: they change if and only if a vector changes."""

import shutil

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig

TEXTS = [
    "the cat sleeps and the dog runs over there",
    "supersonic air flow on a wing at high pressure, and a fox",
    "the lock of the store, a reader of the folder holds it.",
    "the fish swims, the bird flies; none of them were seen!",
]


@pytest.fixture(scope="module")
def prints(bert_model):
    """A function that returns the raw and the full fingerprint of settings, and some vectors; it keeps them."""
    kept = {}

    def of(texts=TEXTS, device=None, **changes):
        asked = repr((texts, device, changes))
        if asked not in kept:
            base = {"model": str(bert_model), "dtype": "float32", **FITTED}
            embedder = Embedder(EmbedderConfig(**{**base, **changes}), device=device).fit(texts)
            kept[asked] = embedder.raw_fingerprint, embedder.fingerprint, embedder.encode_documents(TEXTS)
        return kept[asked]

    return of


T = {"template": "t0"}
FITTED = {"weighting": "idf:0.5", "postprocess": ("center", "normalize")}
B = {"extractor": "bert+avg"}
RE = {"extractor": "re:dim=8"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, T),
        ({}, {"query_template": "t0"}),
        (T, {"template": "t1"}),
        (T, {**T, "pooling": "masks"}),
        (T, {**T, "pooling": "no-mask"}),
        ({}, {"pooling": "text"}),
        ({}, {"special_tokens": False}),
        ({**T, "weighting": "idf"}, {**T, "weighting": "idf", "template_tokens": "counted"}),
        ({}, {"layers": "1"}),
        ({}, {"layers": "-1"}),
        ({}, {"weighting": "idf"}),
        ({}, {"weighting": "idf:0.25"}),
        ({"weighting": "sif"}, {"weighting": "sif:0.1"}),
        ({"weighting": "-biases"}, {"weighting": "-biases", "biases": ("cat",)}),
        ({}, {"max_tokens": 12}),
        ({}, {"dtype": "bfloat16"}),
        ({}, {"extractor": "sbert-wk"}),
        ({"extractor": "sbert-wk"}, {"extractor": "sbert-wk:window=1"}),
        ({"extractor": "avg"}, {"extractor": "avg", "layers": "1"}),
        ({"extractor": "avg"}, {"extractor": "avg:unseen=skip"}),
        ({"extractor": "avg"}, {"extractor": "avg", "special_tokens": True}),
        (B, {"extractor": "bert+avg:w=0.25"}),
        (B, {**B, **T}),
        (RE, {**RE, "seed": 1}),
        (RE, {"extractor": "re:dim=9"}),
        (RE, {"extractor": "re:dim=8,sigma=0.2"}),
        (RE, {**RE, "special_tokens": True}),
    ],
)
def test_settings_that_change_the_raw_fingerprint(prints, before, after):
    one, other = prints(**before), prints(**after)
    assert one[0] != other[0]
    assert one[1] != other[1]


@pytest.mark.parametrize(
    "after",
    [
        {"postprocess": ("zscore",)},
        {"query_fit": "shared"},
        {"pseudo_queries": 2},
        {"seed": 1},
        {"postprocess": ("abtt:1",)},
    ],
)
def test_settings_that_change_only_the_full_fingerprint(prints, after):
    one, other = prints(), prints(**after)
    assert one[0] == other[0]
    assert one[1] != other[1]


@pytest.mark.parametrize("name", ["avg_corpus", "weighting_corpus", "postprocess_corpus"])
def test_corpus_content_matters_and_its_name_does_not(prints, tmp_path, name):
    texts = {
        "one": "the cat runs\na bird\n",
        "two": "the dog runs\nthe fox\na wing\n",
        "copy": "the cat runs\na bird\n",
    }
    found = {}
    for key, text in texts.items():
        (tmp_path / key).write_text(text)
        found[key] = prints(**B, **{name: str(tmp_path / key)})
    assert found["one"][1] == found["copy"][1]
    assert found["one"][1] != found["two"][1]
    assert (found["one"][0] == found["two"][0]) == (name == "postprocess_corpus")


def test_texts_change_fingerprints_that_depend_on_them(prints):
    assert prints(TEXTS[:3])[0] != prints()[0]
    assert prints(TEXTS[:3], weighting="uniform")[0] == prints(weighting="uniform")[0]
    assert prints(TEXTS[:3], **B, weighting="uniform")[0] != prints(**B, weighting="uniform")[0]
    assert prints(TEXTS[::-1])[0] == prints()[0]
    assert prints(TEXTS[:3], **RE, weighting="uniform")[0] == prints(**RE, weighting="uniform")[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"layers": "6"}),
        ({"layers": "first+last"}, {"layers": "6+1"}),
        ({}, {"device": "cpu"}),
        ({}, {"max_tokens": 64}),
        ({}, {"max_tokens": 512}),
        ({}, {"template": "[X]"}),
        ({}, {"query_template": "[X]"}),
        (T, {"template": 'This sentence: "[X]" means [M].'}),
        (T, {**T, "query_template": "T0"}),
        ({}, {"special_tokens": True}),
        ({"pooling": "text"}, {"pooling": "text", "special_tokens": False}),
        ({"pooling": "cls"}, {"pooling": "cls", "special_tokens": False}),
        ({**T, "pooling": "masks"}, {**T, "pooling": "masks", "special_tokens": False}),
        ({"weighting": "uniform"}, {"weighting": "idf:0"}),
        ({"weighting": "idf"}, {"weighting": "idf:1"}),
        ({"weighting": "sif"}, {"weighting": "sif:0.001"}),
        ({}, {"template_tokens": "counted"}),
        ({"query_fit": "shared"}, {"query_fit": "shared", "seed": 7}),
        ({"query_fit": "shared"}, {"query_fit": "shared", "pseudo_queries": 3}),
        (B, {"extractor": "bert+avg:w=0.5,unseen=mapped"}),
        (RE, {**RE, "dtype": "bfloat16"}),
        ({"extractor": "avg", "avg_corpus": None}, {"extractor": "avg"}),
    ],
)
def test_settings_without_effect_keep_the_fingerprint(prints, before, after):
    one, other = prints(**before), prints(**after)
    np.testing.assert_allclose(one[2], other[2], atol=1e-5)
    assert one[:2] == other[:2]


def test_model_location_and_other_files_keep_the_fingerprint(prints, bert_model, tmp_path):
    shutil.copytree(bert_model, tmp_path / "copy")
    (tmp_path / "copy" / "README.md").write_text("notes")
    assert prints(model=str(tmp_path / "copy"))[:2] == prints()[:2]


def test_random_vectors_depend_only_on_the_tokenizer(prints, bert_model, tmp_path):
    shutil.copytree(bert_model, tmp_path / "copy")
    (tmp_path / "copy" / "model.safetensors").unlink()
    assert prints(**RE, model=str(tmp_path / "copy"))[:2] == prints(**RE)[:2]


def test_fingerprint_of_word_vectors(words_file, tmp_path):
    def printed(file, extractor="words", **changes):
        config = EmbedderConfig(extractor=extractor, model=str(file), weighting="uniform", **changes)
        return Embedder(config).fit(TEXTS).raw_fingerprint

    copy = tmp_path / "copy.vec"
    shutil.copyfile(words_file, copy)
    assert printed(copy) == printed(words_file)
    assert printed(words_file, "words:drop=100") != printed(words_file)
    lines = copy.read_text(encoding="utf-8").splitlines()
    copy.write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n", encoding="utf-8")
    assert printed(copy) != printed(words_file)

"""Decoder-only models: no mask token, special tokens only before the text or none, and last-token pooling."""

from functools import partial

import numpy as np
import pytest

from ragembed import Embedder
from ragembed.errors import ConfigError
from tests.core import raw_vectors
from tests.core.raw_vectors import config

TEXTS = ["the cat sleeps", "the dog runs and the fish swims, the bird flies", "supersonic air flow", "the lock"]
raw = partial(raw_vectors.raw, corpus=TEXTS)
LONG = "shock wave and boundary layer on a wing, " * 12
MODELS = ["gpt_model", "llama_model"]


@pytest.fixture(params=MODELS)
def folder(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("pooling", ["mean", "last", "text"])
@pytest.mark.parametrize("weighting", ["uniform", "idf"])
def test_blank_text_without_tokens_is_the_zero_vector(gpt_model, pooling, weighting):
    vectors = raw(gpt_model, ["", TEXTS[0], ""], pooling=pooling, weighting=weighting)
    assert not vectors[[0, 2]].any()
    assert vectors[1].any()
    assert not raw(gpt_model, [""], pooling=pooling).any()


def test_blank_text_is_its_special_token(llama_model, reference):
    np.testing.assert_allclose(raw(llama_model, [""]), reference(llama_model).states([0])[2], atol=1e-4)
    assert not raw(llama_model, [""], special_tokens=False).any()
    assert not raw(llama_model, [""], special_tokens=False, pooling="last").any()


def test_corpus_of_blank_texts(gpt_model):
    embedder = Embedder(config(gpt_model, weighting="idf", extractor="avg")).fit(["", ""])
    assert np.isfinite(embedder.encode_documents(["", "the cat"])).all()


def test_text_longer_than_the_window(folder, reference):
    model = reference(folder)
    ids = model.ids(LONG, special=False)
    before = model.ids("")
    room = 64 - len(before)
    assert len(ids) > 2 * room
    windows = [[*before, *ids[at : at + room]] for at in range(0, len(ids), room)]
    hidden = [model.mean(window, (2,)) for window in windows]
    np.testing.assert_allclose(raw(folder, [LONG])[0], np.concatenate(hidden).mean(axis=0), atol=1e-4)
    last = np.mean([states[-1] for states in hidden], axis=0)
    np.testing.assert_allclose(raw(folder, [LONG], pooling="last")[0], last, atol=1e-4)


@pytest.mark.parametrize("template", ["t0", "t4", "[X] [M]"])
def test_missing_mask_token(folder, template):
    with pytest.raises(ConfigError, match=r"has no mask token.*choose a template without \[M\]"):
        Embedder(config(folder, template=template)).fit(TEXTS)


def test_missing_first_special_token(gpt_model, llama_model):
    with pytest.raises(ConfigError, match="pooling 'cls' needs a model whose texts begin with a special token"):
        Embedder(config(gpt_model, pooling="cls")).fit(TEXTS)
    Embedder(config(llama_model, pooling="cls")).fit(TEXTS)

"""Entry vectors, poolers, ranks and independent components, compared with simple computations."""

import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import AutoModel, BertForPreTraining, RobertaForMaskedLM

from ragembed.errors import ConfigError, DictionaryError, ModelError
from ragembed.models.tokenizer import TextTokenizer
from ragembed.papers.training.dictionary import Dictionary, hold_out, single_tokens
from ragembed.papers.training.encoder import (
    Arithmetic,
    load_encoder,
    load_trained,
    load_with_mlm_head,
    mlm_bias,
    save_encoder,
)
from ragembed.papers.training.entries import (
    ITERATIONS,
    EntrySpace,
    accuracy,
    entry_embeddings,
    independent_components,
    ranks,
)
from ragembed.papers.training.glosses import TrainingTexts, make_windows
from ragembed.papers.training.train import word_space
from ragembed.progress import SilentProgress

DICTIONARY = Dictionary(
    ("lock", "cat", "bird"),
    (("the writer", "a file of the store and the index", "red"), ("a dog sleeps",), ("a dog sleeps", "flies")),
)
CPU = Arithmetic(torch.device("cpu"))


def texts_of(folder, dictionary=DICTIONARY, max_tokens=None):
    return TrainingTexts.of(dictionary, TextTokenizer(folder), max_tokens, 0)


def states(folder, text):
    """Return the last layer of one text, float64 of shape (tokens, d)."""
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
    with torch.no_grad():
        return (
            AutoModel.from_pretrained(str(folder)).eval()(input_ids=torch.tensor([ids])).last_hidden_state[0].double()
        )


@pytest.mark.parametrize("kind", ["ac", "amp"])
@pytest.mark.parametrize("family", ["bert", "roberta", "bert_with_dropout"])
def test_entry_vectors_are_means_over_definitions(family, kind, request):
    folder = request.getfixturevalue(family)
    found = entry_embeddings(load_encoder(folder, "auto"), texts_of(folder), kind, CPU, SilentProgress())
    expected = [
        torch.stack([s[0] if kind == "ac" else s.mean(0) for s in (states(folder, text) for text in definitions)]).mean(
            0
        )
        for definitions in DICTIONARY.definitions
    ]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, torch.stack(expected).numpy(), atol=2e-5)


@pytest.mark.parametrize(("family", "activation"), [("bert", "tanh"), ("roberta", "gelu")])
def test_pooler_is_saved_and_loaded(family, activation, request, tmp_path):
    folder = request.getfixturevalue(family)
    encoder = load_encoder(folder, "auto").eval()
    assert encoder.head.activation == activation
    with torch.no_grad():
        encoder.head.dense.weight += 1.0  # simulates training
    save_encoder(encoder, tmp_path / "saved", folder)
    again = load_trained(tmp_path / "saved", activation).eval()
    ids, mask = texts_of(folder).windows.batch(np.array([0, 3]), torch.device("cpu"))
    with torch.no_grad():
        assert torch.equal(again(ids, mask, "mean"), encoder(ids, mask, "mean"))
    assert torch.equal(again.head.dense.bias, encoder.head.dense.bias)
    assert (
        TextTokenizer(tmp_path / "saved").ids(["the lock"]).tolist() == TextTokenizer(folder).ids(["the lock"]).tolist()
    )


def test_missing_head_weights_are_an_error(bert, roberta, tiny_model):
    with pytest.raises(ModelError, match=r"no weights pooler\.dense.*choose the head 'mlm-head'"):
        load_encoder(roberta, "own")
    with pytest.raises(ModelError, match=r"no weights lm_head\.dense\..*choose the head 'own'"):
        load_encoder(tiny_model, "mlm-head")
    assert load_encoder(bert, "mlm-head").head.activation == "gelu"
    with pytest.raises(ModelError, match="no masked-word head"):
        load_with_mlm_head(tiny_model)


# DefSent


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_defsent_scores_equal_masked_word_head(family, request):
    folder = request.getfixturevalue(family)
    kind = BertForPreTraining if family == "bert" else RobertaForMaskedLM
    whole = kind.from_pretrained(str(folder)).eval()
    kept, token_ids = single_tokens(DICTIONARY, TextTokenizer(folder))
    assert kept == DICTIONARY
    encoder = load_with_mlm_head(folder).eval()
    space = word_space(encoder, mlm_bias(folder), token_ids)
    ids, mask = texts_of(folder).windows.batch(np.array([0, 1]), torch.device("cpu"))
    with torch.no_grad():
        pooled = encoder.pooled(ids, mask, "cls")
        head = whole.cls.predictions if family == "bert" else whole.lm_head
        expected = head(pooled)[:, token_ids]
        found = functional.linear(
            encoder(ids, mask, "cls"), torch.from_numpy(space.vectors), torch.from_numpy(space.bias)
        )
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)


def test_defsent_freezes_head_and_word_embeddings(bert):
    encoder = load_with_mlm_head(bert)
    frozen = {name for name, each in encoder.named_parameters() if not each.requires_grad}
    assert frozen == {
        "body.embeddings.word_embeddings.weight",
        *("head.dense.weight", "head.dense.bias", "head.norm.weight", "head.norm.bias"),
    }


def test_entries_of_several_tokens_are_skipped(bert):
    dictionary = Dictionary(
        ("lock", "Lock", "one lock", "locks", "\u2603"), (("hair",), ("a store",), ("x",), ("y",), ("z",))
    )
    kept, ids = single_tokens(dictionary, TextTokenizer(bert))
    assert kept == Dictionary(("lock",), (("hair", "a store"),))
    assert TextTokenizer(bert).names(ids.tolist()) == ["lock"]
    with pytest.raises(DictionaryError, match="none of 1 entries is a single token"):
        single_tokens(Dictionary(("one lock",), (("x",),)), TextTokenizer(bert))


def test_missing_body_weights_are_an_error(bert, tmp_path):
    from safetensors.torch import load_file, save_file

    shutil.copytree(bert, tmp_path / "cut")
    tensors = load_file(bert / "model.safetensors")
    name = next(each for each in tensors if "encoder.layer.1.output.dense.weight" in each)
    save_file({key: each for key, each in tensors.items() if key != name}, tmp_path / "cut" / "model.safetensors")
    with pytest.raises(
        ModelError, match=r"encoder\.layer\.1\.output\.dense\.weight is missing \(1 missing, 0 unknown\)"
    ):
        load_encoder(tmp_path / "cut", "own")


@given(
    st.lists(st.sets(st.sampled_from("abcdefgh"), min_size=1), min_size=1, max_size=8),
    st.integers(0, 5),
)
def test_held_out_definitions_are_removed_from_all_entries(definitions, seed):
    dictionary = Dictionary(tuple(map(str, range(len(definitions)))), tuple(tuple(sorted(d)) for d in definitions))
    drawn = hold_out(dictionary, None, seed)[1]
    assert len(drawn) <= len(set().union(*definitions)) // 20
    most = next(count for count in range(9) if count == 8 or not _can_hold_out(dictionary, count + 1, seed))
    kept, drawn = hold_out(dictionary, most, seed)
    assert len(drawn) == most
    assert kept.entries == dictionary.entries
    assert all(kept.definitions)
    for each in drawn:
        assert each.entries == tuple(i for i, d in enumerate(definitions) if each.definition in d)
        assert all(each.definition not in d for d in kept.definitions)


def _can_hold_out(dictionary, count, seed):
    try:
        hold_out(dictionary, count, seed)
    except ConfigError as error:
        assert "belong to entries with another definition" in str(error)  # noqa: PT017
        return False
    return True


def test_ranks_are_over_all_entries(bert):
    encoder = load_encoder(bert, "own")
    texts = ["the writer", "a dog sleeps", "one", "a long wing of the store"]
    windows = make_windows(TextTokenizer(bert), texts, None, 0)
    vectors = np.random.default_rng(0).normal(size=(40, 16)).astype(np.float32)
    answers = [(3,), (4, 9), (0,), (39, 1)]
    found = ranks(encoder, windows, answers, EntrySpace(vectors), "mean", CPU)
    for i, right in enumerate(answers):
        ids, mask = windows.batch(np.array([i]), CPU.device)
        with torch.no_grad():
            scores = vectors @ encoder.eval()(ids, mask, "mean")[0].numpy()
        assert found[i] == min(int((scores > scores[entry]).sum()) for entry in right) + 1


def test_accuracy():
    found = accuracy(np.array([1, 2, 10, 11, 100, 101, 1, 1000]))
    assert (found.top1, found.top10, found.top100, found.definitions) == (25.0, 50.0, 75.0, 8)
    assert found.mrr == pytest.approx(np.mean([1, 1 / 2, 1 / 10, 1 / 11, 1 / 100, 1 / 101, 1, 1 / 1000]))


@pytest.fixture(scope="module")
def mixed():
    """Heavy-tailed sources and a mixture of them."""
    draw = np.random.default_rng(0)
    sources = draw.laplace(size=(2000, 4))
    return sources, (sources @ draw.normal(size=(4, 4)) + 3.0).astype(np.float32)


def test_mixed_sources_are_separated(mixed):
    sources, vectors = mixed
    found = independent_components(vectors, "unit-variance")
    matched = np.abs(np.corrcoef(sources.T, found.vectors.T)[:4, 4:])
    assert (matched.max(axis=1) > 0.99).all()
    assert found.converged
    assert 1 < found.iterations < ITERATIONS
    assert found.vectors.dtype == np.float32


def test_missing_convergence_is_reported(monkeypatch, mixed):
    monkeypatch.setattr("ragembed.papers.training.entries.ITERATIONS", 1)
    found = independent_components(mixed[1], "unit-variance")
    assert (found.iterations, found.converged) == (1, False)


def test_too_few_entries_or_directions_are_an_error(mixed):
    with pytest.raises(ConfigError, match="4 entries and vectors of 4 dimensions"):
        independent_components(mixed[1][:4], "unit-variance")
    flat = mixed[1].copy()
    flat[:, 2] = flat[:, 3] = flat[:, 0]
    with pytest.raises(ConfigError, match="vary in 2 of 4 directions"):
        independent_components(flat, "unit-variance")

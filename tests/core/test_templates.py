"""Templates: the token ids that a model reads, and the tokens that pooling averages."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed import Embedder
from ragembed.config.specs import TEMPLATES, Template
from ragembed.errors import ConfigError
from ragembed.models.tokenizer import TextTokenizer, TokenKind
from ragembed.papers.training.settings import PROMPT
from tests.core import raw_vectors
from tests.core.raw_vectors import config

# As in table 1 of the paper.
PAPER = {
    "t0": 'This sentence: "[X]" means [M].',
    "t1": 'This sentence: "[X]" means [M][M].',
    "t2": 'This sentence: "[X]" means "[M][M]" and is about [M].',
    "t3": 'This sentence from the paraphrase dictionary: "[X]" means "[M]", which is about [M].',
    "t4": 'This sentence from the dictionary: "[X]" means "[M]" and is about [M], which is a synonym for [M].',
}
MASKS = {"t0": 1, "t1": 2, "t2": 3, "t3": 2, "t4": 3}
TEXTS = ["the cat sleeps", "the dog runs and the fish swims, the bird flies", "supersonic air flow", "lock"]
raw = partial(raw_vectors.raw, corpus=TEXTS)
POOLINGS = ("mean", "masks", "no-mask", "text", "cls", "last")


@pytest.fixture(params=["bert_model", "roberta_model"])
def folder(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def mask(folder):
    return "[MASK]" if folder.name.startswith("bert") else "<mask>"


def framed(folder, template, text=()):
    """Return the ids and kinds of a window, as ragembed builds them."""
    tokenizer = TextTokenizer(folder)
    frame = tokenizer.frame(Template.parse(template))
    (ids,) = tokenizer.ids([frame.lead + text])
    kinds = [*frame.prefix_kinds, *[TokenKind.TEXT] * len(ids), *frame.suffix_kinds]
    return [*frame.prefix, *ids, *frame.suffix], kinds


def chosen(kinds, pooling, special_tokens):
    """Return the positions that a pooling averages, by its definition."""
    within = [i for i, kind in enumerate(kinds) if special_tokens or kind != TokenKind.SPECIAL]
    return {
        "mean": within,
        "masks": [i for i, kind in enumerate(kinds) if kind == TokenKind.MASK],
        "no-mask": [i for i in within if kinds[i] != TokenKind.MASK],
        "text": [i for i, kind in enumerate(kinds) if kind == TokenKind.TEXT],
        "cls": [0],
        "last": within[-1:],
    }[pooling]


def test_templates_equal_the_paper():
    assert dict(TEMPLATES) == PAPER
    assert {name: Template.parse(name).masks for name in TEMPLATES} == MASKS
    assert Template.parse("T4") == Template.parse("t4") == Template.parse(PAPER["t4"])


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("text", TEXTS)
def test_ids_equal_those_of_the_filled_template(folder, mask, reference, name, text):
    filled = PAPER[name].replace("[M]", mask).replace("[X]", text)
    model = reference(folder)
    ids, kinds = framed(folder, name, text)
    assert ids == model.ids(filled)
    number = model.tokenizer.token_to_id(mask)
    assert [i for i, kind in enumerate(kinds) if kind == TokenKind.MASK] == [
        i for i, x in enumerate(ids) if x == number
    ]
    assert kinds.count(TokenKind.MASK) == MASKS[name]
    assert kinds.count(TokenKind.TEXT) == len(model.ids(text, special=False))
    assert kinds.count(TokenKind.SPECIAL) == 2


def test_prompt_of_defsent_plus(folder, mask, reference):
    """The text and the pooling of the authors' program, with straight quotes and a space at the end."""
    model, number = reference(folder), reference(folder).tokenizer.token_to_id(mask)
    filled = [model.ids('This sentence : "' + text + f'" means {mask} . ') for text in TEXTS]
    assert [framed(folder, PROMPT, text)[0] for text in TEXTS] == filled
    expected = [model.states(ids)[model.last][ids.index(number)] for ids in filled]
    np.testing.assert_allclose(raw(folder, TEXTS, template=PROMPT, pooling="masks"), expected, atol=1e-4)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize(
    ("folder", "template", "special"),
    [("bert_model", "[M] of [X]", False), ("roberta_model", 'This sentence: "[X]" means [M].', None)],
    indirect=["folder"],
)
def test_pooling_with_templates(folder, reference, pooling, special, template):
    model = reference(folder)
    expected = []
    for text in TEXTS:
        ids, kinds = framed(folder, template, text)
        states = model.states(ids)
        expected.append(states[model.last][chosen(kinds, pooling, special is not False)].mean(axis=0))
    found = raw(folder, TEXTS, template=template, pooling=pooling, special_tokens=special)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_documents_and_queries_have_their_own_template(folder, reference):
    model = reference(folder)
    settings_ = config(folder, template="passage: [X]", query_template="query: [X]")
    embedder = Embedder(settings_).fit_extractor(TEXTS)
    last = model.last
    for encode, before in ((embedder.raw_documents, "passage: "), (embedder.raw_queries, "query: ")):
        expected = [model.mean(model.ids(before + text), (last,)).mean(axis=0) for text in TEXTS]
        np.testing.assert_allclose(encode(TEXTS), expected, atol=1e-4)


def test_pseudo_queries_use_the_query_template(folder):
    """The query chain of ``center`` holds the mean of the pseudo-queries in the query template."""
    texts = ["cat sleeps", "dog runs", "air flow"]  # shorter than a span, so each text is its own pseudo-query
    embedder = Embedder(config(folder, template="passage: [X]", query_template="query: [X]", postprocess=("center",)))
    embedder.fit(texts)
    np.testing.assert_allclose(embedder.encode_queries(texts).mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(embedder.encode_documents(texts).mean(axis=0), 0, atol=1e-5)


@pytest.mark.parametrize("literal", ["[MASK]", "<mask>", "[SEP]", "</s>", "[X]", "[M]", "[CLS] a [PAD]", "<s><pad>"])
def test_names_of_special_tokens_in_a_text_are_text(folder, reference, literal):
    tokenizer = TextTokenizer(folder)
    names = ("[MASK]", "[SEP]", "[CLS]", "[PAD]", "<mask>", "<s>", "</s>", "<pad>")
    special = {reference(folder).tokenizer.token_to_id(name) for name in names}
    text = f"the cat {literal} sleeps"
    assert special.isdisjoint(tokenizer.ids([text]).flat.tolist())
    ids, kinds = framed(folder, "t0", text)
    assert kinds.count(TokenKind.MASK) == 1
    assert sum(number in special for number in ids) == 3
    same = raw(folder, [text, text], template="t0", pooling="masks")
    np.testing.assert_allclose(same[0], same[1], atol=1e-5)
    assert np.isfinite(same).all()


@given(text=st.text(alphabet=st.sampled_from("[]XMASKSEP<>mask/s \"'.acdt"), max_size=30))
def test_frame_does_not_depend_on_the_text(bert_model, text):
    tokenizer = TextTokenizer(bert_model)
    ids, kinds = framed(bert_model, "t4", text)
    frame = tokenizer.frame(Template.parse("t4"))
    assert ids[: len(frame.prefix)] == list(frame.prefix)
    assert ids[len(ids) - len(frame.suffix) :] == list(frame.suffix)
    assert kinds.count(TokenKind.MASK) == 3
    assert kinds.count(TokenKind.SPECIAL) == 2


@pytest.mark.parametrize("pooling", ["mean", "masks", "text"])
def test_every_window_has_the_whole_template(folder, reference, pooling):
    model = reference(folder)
    tokenizer = TextTokenizer(folder)
    frame = tokenizer.frame(Template.parse("t1"))
    (ids,) = tokenizer.ids(["the cat sleeps and the dog runs " * 20])
    room = tokenizer.max_tokens - len(frame.prefix) - len(frame.suffix)
    assert tokenizer.max_tokens == 64
    assert len(ids) > 2 * room
    hidden = []
    for at in range(0, len(ids), room):
        part = ids[at : at + room]
        kinds = [*frame.prefix_kinds, *[TokenKind.TEXT] * len(part), *frame.suffix_kinds]
        states = model.states([*frame.prefix, *part, *frame.suffix])
        hidden.append(states[model.last][chosen(kinds, pooling, True)])
    found = raw(folder, ["the cat sleeps and the dog runs " * 20], template="t1", pooling=pooling)[0]
    np.testing.assert_allclose(found, np.concatenate(hidden).mean(axis=0), atol=1e-4)


def test_max_tokens_includes_the_template(folder):
    tokenizer = TextTokenizer(folder)
    frame = tokenizer.frame(Template.parse("t0"))
    framing = len(frame.prefix) + len(frame.suffix)
    assert Embedder(config(folder, template="t0")).text_tokens == 64 - framing
    assert Embedder(config(folder, template="t0", max_tokens=framing + 4)).text_tokens == 4
    with pytest.raises(
        ConfigError, match=f"max_tokens is {framing + 3}: the template and special tokens take {framing}"
    ):
        _ = Embedder(config(folder, template="t0", max_tokens=framing + 3)).text_tokens


def test_masks_pooling_needs_a_mask_in_the_template(folder):
    for changes in ({}, {"template": "passage: [X]"}, {"template": "t0", "query_template": "query: [X]"}):
        with pytest.raises(ConfigError, match="pooling 'masks' needs a template with mask tokens"):
            Embedder(config(folder, pooling="masks", **changes)).fit(TEXTS)


# Weights


def weighted(model, rows, weights_of, layer):
    vectors = []
    for ids in rows:
        weights = np.array([weights_of(token) for token in ids], dtype=np.float64)
        if not weights.any():
            weights[:] = 1
        vectors.append(weights / weights.sum() @ model.states(ids)[layer])
    return vectors


@pytest.mark.parametrize("template_tokens", ["common", "counted"])
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_idf_counts_bare_texts(folder, reference, template_tokens, share):
    # "and", "the" and the comma occur in the texts and in the template.
    template = 'and the cat, this "[X]" means [M].'
    model = reference(folder)
    bare = [set(model.ids(text)) for text in TEXTS]
    plain = [set(framed(folder, template, text)[0]) - set(model.ids(text, special=False)) for text in TEXTS]
    ids, kinds = framed(folder, template, "")
    frame = set(ids)
    assert plain[0] <= frame
    special = {number for number, kind in zip(ids, kinds, strict=True) if kind == TokenKind.SPECIAL}

    def idf(token):
        if token in special or (template_tokens == "common" and token in frame):
            return 0.0
        return np.log(len(TEXTS) / max(sum(token in text for text in bare), 1))

    rows = [framed(folder, template, text)[0] for text in TEXTS]
    layer = model.last
    by_idf = np.array(weighted(model, rows, idf, layer))
    uniform = np.array(weighted(model, rows, lambda token: 1.0, layer))
    found = raw(folder, TEXTS, template=template, template_tokens=template_tokens, weighting=f"idf:{share}")
    np.testing.assert_allclose(found, share * by_idf + (1 - share) * uniform, atol=2e-4)


def test_tokens_of_both_templates_are_common(bert_model, reference):
    model = reference(bert_model)
    settings_ = config(bert_model, template="wing [X]", query_template="fox [X]", weighting="idf")
    embedder = Embedder(settings_).fit_extractor(["wing fox cat", "dog bird", "cat dog air"])
    rows = [model.ids("wing " + text) for text in ("wing fox", "wing fox cat bird")]
    zero = {*model.ids("wing fox")}
    frequency = {model.ids(word, special=False)[0]: n for word, n in {"cat": 2, "bird": 1}.items()}
    expected = weighted(model, rows, lambda t: 0.0 if t in zero else np.log(3 / frequency[t]), 6)
    np.testing.assert_allclose(embedder.raw_documents(["wing fox", "wing fox cat bird"]), expected, atol=1e-4)

"""Word vectors from contextual vectors (B2S): the authors' program in PyTorch, interruption, and the files on disk."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from ragembed import Embedder, EmbedderConfig
from ragembed.corpus import Corpus
from ragembed.errors import ConfigError
from ragembed.extractors.word_vectors import open_word_vectors
from ragembed.papers.training import B2sRequest, B2sSettings, b2s, train_b2s
from ragembed.papers.training.b2s import (
    CorpusWords,
    SentenceMeans,
    WordVectorTraining,
    kept_probabilities,
    split_sentences,
)
from tests.conftest import WORDS

SENTENCES = [
    " ".join(np.random.default_rng(number).choice(WORDS[:20], size=7).tolist()) + (" ." if number % 2 else "")
    for number in range(60)
]
SMALL = B2sSettings(min_count=3, threshold=0.01, negatives=3, epochs=3, batch_size=16, learning_rate=0.01)


@pytest.fixture
def corpus(tmp_path):
    file = tmp_path / "sentences.txt"
    file.write_text("\n".join(SENTENCES) + "\n\nzebra\n")
    return file


def request_of(corpus, model, out, settings=SMALL, **more):
    return B2sRequest(
        corpus,
        EmbedderConfig(model=str(model), dtype="float32", pooling="mean", weighting="uniform"),
        out,
        settings,
        **more,
    )


class AuthorsProgram:
    """X2Static's loss, model and optimiser, as in its ``learn_from_bert_ver2.py`` and ``word_embeddings.py``."""

    def __init__(self, vectors, learning_rate):
        self.embeddings = torch.nn.Embedding(*vectors.shape, sparse=True)
        self.embeddings.weight.data = torch.tensor(vectors)
        self.optimizer = torch.optim.SparseAdam(self.embeddings.parameters(), lr=learning_rate)

    def step(self, contexts, texts, targets, negatives):
        def ll_loss(scores):
            return torch.mean(torch.log(1 + torch.exp(-torch.clamp(scores, min=-20, max=20))))

        self.optimizer.zero_grad()
        sentences = torch.tensor(contexts)[torch.tensor(texts)]
        loss = ll_loss((sentences * self.embeddings(torch.tensor(targets))).sum(dim=1))
        for drawn in negatives:
            loss = loss + ll_loss((sentences * -self.embeddings(torch.tensor(drawn))).sum(dim=1))
        loss.backward()
        self.optimizer.step()
        return loss.item()


def test_steps_equal_those_of_the_authors_program():
    """Words are repeated among targets and negatives; scores beyond 20 are clamped and have no gradient."""
    generator = np.random.default_rng(2)
    ours = WordVectorTraining(12, 6, SMALL)
    assert np.abs(ours.vectors).max() <= 1 / 6
    ours.vectors *= 3
    theirs = AuthorsProgram(ours.vectors.copy(), SMALL.learning_rate)
    for scale in (1, 1, 40, 1):
        contexts = (scale * generator.normal(size=(4, 6))).astype(np.float32)
        texts, targets = generator.integers(0, 4, size=9), generator.integers(0, 8, size=9)
        negatives = generator.integers(0, 12, size=(5, 9))
        expected = theirs.step(contexts, texts, targets, negatives)
        assert ours.step(contexts, texts, targets, negatives) == pytest.approx(expected, rel=1e-5)
        np.testing.assert_allclose(ours.vectors, theirs.embeddings.weight.detach().numpy(), atol=2e-6)


def test_subsampling_of_frequent_words():
    """1 minus ``rejection_probs`` of the authors' program."""
    kept = kept_probabilities(np.array([9000, 900, 90, 10]), 1e-2)
    frequencies = np.array([0.9, 0.09, 0.009, 0.001])
    expected = [min(1, (1e-2 / f) ** 0.5 + 1e-2 / f) for f in frequencies]
    np.testing.assert_allclose(kept, expected)
    assert kept[3] == 1.0


def test_words_of_a_corpus(tmp_path):
    """Frequent joined forms are words; rare ones are split. Texts without a word of the vocabulary are left out."""
    file = tmp_path / "corpus.txt"
    file.write_text("Don't stop\nzzz\nthe well-known stop\nThe DON'T - the well\n")
    words = CorpusWords.of(Corpus(file), B2sSettings(min_count=2))
    assert words.names == ["the", "-", "don't", "stop", "well"]
    assert words.counts.tolist() == [3, 2, 2, 2, 2]
    assert list(words.texts()) == ["Don't stop", "the well-known stop", "The DON'T - the well"]
    found, owners = words.of_texts(np.array([0, 2]))
    assert [words.names[word] for word in found] == ["don't", "stop", "the", "don't", "-", "the", "well"]
    assert owners.tolist() == [0, 0, 1, 1, 1, 1, 1]
    assert CorpusWords.of(Corpus(file), B2sSettings(min_count=2, vocabulary=2)).names == ["the", "-"]
    with pytest.raises(ConfigError, match=r"no word of .* occurs 10 times"):
        CorpusWords.of(Corpus(file), B2sSettings())


def test_training_writes_word_vectors(corpus, bert, tmp_path):
    out = tmp_path / "b2s"
    report = train_b2s(request_of(corpus, bert, out))
    assert sorted(file.name for file in out.iterdir()) == ["training.json", "vectors.bin"]
    assert report == json.loads((out / "training.json").read_text())
    assert (report["method"], report["texts"], report["dim"]) == ("b2s", 60, 16)
    assert report["losses"] == sorted(report["losses"], reverse=True)
    vectors = open_word_vectors(out / "vectors.bin")
    assert len(vectors.words) == report["words"]
    assert set(vectors.words) == {*(word for sentence in SENTENCES for word in sentence.split())}
    embedder = Embedder(EmbedderConfig(extractor="words", model=str(out / "vectors.bin"))).fit(SENTENCES)
    assert embedder.encode_documents(["zebra", SENTENCES[0]]).any(axis=1).tolist() == [False, True]
    with pytest.raises(ConfigError, match="already contains a trained model"):
        train_b2s(request_of(corpus, bert, out))


def test_vectors_of_sentences_in_paragraphs(bert):
    """Means of the tokens of each sentence, special tokens excluded, computed with transformers; the second paragraph
    has 45 tokens and is read in two windows of 32, which its third sentence crosses."""
    from transformers import AutoModel, AutoTokenizer

    long = [" ".join(WORDS[:15]) + ".", " ".join(WORDS[15:28]) + "!", " ".join(WORDS[28:41]) + "?"]
    paragraphs = [["a cat sleeps.", "the dog runs!"], long]
    assert [split_sentences("  ".join(each)) for each in paragraphs] == paragraphs
    config = EmbedderConfig(model=str(bert), dtype="float32", pooling="mean", weighting="uniform", layers="1+2")
    extractor = Embedder(config).fit_extractor(["a cat"]).extractor
    means = SentenceMeans(extractor, paragraphs)
    extractor.model.forward("documents").run(means.texts, [means])
    model, tokenizer = AutoModel.from_pretrained(bert).eval(), AutoTokenizer.from_pretrained(bert)
    expected = []
    for sentences in paragraphs:
        parts = [tokenizer(sentence, add_special_tokens=False)["input_ids"] for sentence in sentences]
        ids = [one for part in parts for one in part]
        states = []
        for start in range(0, len(ids), 32):
            window = torch.tensor([[2, *ids[start : start + 32], 3]])
            with torch.no_grad():
                hidden = model(window, output_hidden_states=True).hidden_states
            states.append((hidden[1] + hidden[2])[0, 1:-1] / 2)
        found = torch.cat(states)
        expected += [part.mean(0).numpy() for part in found.split([len(part) for part in parts])]
    np.testing.assert_allclose(means.vectors(), expected, atol=1e-5)


def test_words_of_paragraphs(tmp_path):
    """A batch has whole paragraphs. Sentences without a word of the vocabulary are left out, and lines without any."""
    file = tmp_path / "corpus.txt"
    file.write_text("the well. zzz! the stop\nzzz. yyy\nwell. the stop? stop\n")
    words = CorpusWords.of(Corpus(file), B2sSettings(min_count=2, paragraphs=True, vocabulary=3))
    assert words.names == [".", "stop", "the"]
    assert list(words.texts()) == ["the well.", "the stop", "zzz.", "well.", "the stop?", "stop"]
    assert words.groups.tolist() == [0, 2, 3, 6]


def test_training_on_paragraphs(corpus, bert, tmp_path):
    """Paragraphs of one sentence give other vectors than lines, because special tokens do not count."""
    settings = dataclasses.replace(SMALL, paragraphs=True)
    report = train_b2s(request_of(corpus, bert, tmp_path / "paragraphs", settings))
    plain = train_b2s(request_of(corpus, bert, tmp_path / "lines"))
    assert report["settings"]["paragraphs"] is True
    assert report["texts"] == plain["texts"] == 60
    one, other = (open_word_vectors(tmp_path / name / "vectors.bin") for name in ("paragraphs", "lines"))
    assert one.words == other.words
    assert np.abs(one.vectors - other.vectors).max() > 1e-3
    config = dataclasses.replace(request_of(corpus, bert, tmp_path), settings=SMALL).config.replace(pooling="cls")
    with pytest.raises(ConfigError, match="pooling is 'cls': expected one of mean"):
        B2sRequest(corpus, config, tmp_path / "none", settings)


class StopError(Exception):
    pass


@pytest.mark.parametrize(("phase", "paragraphs"), [("encode the corpus", True), ("train", False)])
def test_interrupted_training_gives_the_same_vectors(corpus, bert, tmp_path, monkeypatch, phase, paragraphs):
    class Stopping:
        def __init__(self):
            self.notes = []

        def start(self, name, unit, total):
            self.name, self.done = name, 0

        def advance(self, count, detail=""):
            self.done += count
            if self.name == phase and self.done >= 5 and not self.notes:
                raise StopError

        def finish(self):
            pass

        def note(self, text):
            self.notes.append(text)

    monkeypatch.setattr(b2s, "_TEXTS_PER_BLOCK", 8)
    settings = dataclasses.replace(SMALL, paragraphs=paragraphs)
    train_b2s(request_of(corpus, bert, tmp_path / "straight", settings))
    progress = Stopping()
    broken = request_of(corpus, bert, tmp_path / "broken", settings, checkpoint_seconds=0)
    with pytest.raises(StopError):
        train_b2s(broken, progress)
    with pytest.raises(ConfigError, match="contains a training with different 'settings'"):
        train_b2s(request_of(corpus, bert, tmp_path / "broken", B2sSettings(min_count=3)))
    train_b2s(broken, progress)
    assert progress.notes == [f"resuming the training in {tmp_path / 'broken'}"]
    straight, resumed = ((tmp_path / name / "vectors.bin").read_bytes() for name in ("straight", "broken"))
    assert straight == resumed
    assert not (tmp_path / "broken" / "checkpoints").exists()


def test_command(corpus, bert, tmp_path, cli):
    out = tmp_path / "b2s"
    options = ("--min-count", 3, "--epochs", 2, "--batch-size", 16, "--layers", "1+2", "--device", "cpu")
    done = cli("papers", "train", "b2s", "--corpus", corpus, "--model", bert, "--out", out, *options)
    assert "21 words" in done.stdout
    assert f"to use it: ragembed index PATH --extractor words --model {out / 'vectors.bin'}" in done.stdout
    report = json.loads((out / "training.json").read_text())
    assert (report["encoder"]["layers"], report["encoder"]["pooling"], len(report["losses"])) == ("1+2", "mean", 2)

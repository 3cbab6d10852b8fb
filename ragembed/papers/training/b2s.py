"""Train static word vectors from the contextual vectors of an encoder: B2S, also called X2Static.

Source: Gupta & Jaggi 2021, and their program (github.com/epfml/X2Static, ``learn_from_bert_ver2.py``, and
``learn_from_bert_ver2_paragraph.py`` for paragraphs). The vector of a word is trained to predict the word from the
vector of a text that contains it, against words that are drawn at random (negative sampling). The text is a line of the
corpus, or a sentence of a paragraph. The encoder does not change, so each text is encoded once.
"""

from __future__ import annotations

import math
import os
import platform
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from ragembed.config.fields import one_of
from ragembed.config.settings import EmbedderConfig
from ragembed.config.specs import Transformer
from ragembed.corpus import Corpus, blocks
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, TrainingError
from ragembed.extractors.forward import Batch
from ragembed.extractors.transformer import TransformerExtractor, layer_mean
from ragembed.files import file_sha256, publish, sync
from ragembed.models.tokenizer import TokenKind
from ragembed.models.word_tokenizer import WordTokenizer, word_forms
from ragembed.papers.training.checkpoints import CONTEXTS, Checkpoints
from ragembed.papers.training.outcome import CHECKPOINTS, read_report, require_folder, write_report
from ragembed.papers.training.settings import B2sSettings
from ragembed.progress import SilentProgress, TrainingProgress, phase
from ragembed.types import Floats, Integers
from ragembed.version import __version__

VECTORS = "vectors.bin"
"""The file with the trained vectors, in the binary format of word2vec."""
_TEXTS_PER_BLOCK = 1024
_CLAMP = 20.0
_SENTENCE_END = re.compile(r"(?<=[.?!])\s+")


@dataclass(frozen=True, slots=True)
class B2sRequest:
    """The inputs, the output and the settings of :func:`train_b2s`; ``corpus`` has one text per line."""

    corpus: Path
    config: EmbedderConfig
    out: Path
    settings: B2sSettings = field(default_factory=B2sSettings)
    device: str | None = None
    checkpoint_seconds: float = 300.0

    def __post_init__(self) -> None:
        if not isinstance(self.config.extraction, Transformer):
            one_of("extractor", self.config.extractor, ("transformer",))
        if self.settings.paragraphs:
            one_of("pooling", self.config.pooling, ("mean",))


def train_b2s(request: B2sRequest, progress: TrainingProgress | None = None) -> dict[str, Any]:
    """Train word vectors, write them to ``vectors.bin`` in a folder, and return the report in its ``training.json``.

    An interrupted training with the same inputs and settings is resumed and gives the same result.
    """
    progress = progress or SilentProgress()
    require_folder(request.out)
    words = CorpusWords.of(Corpus(request.corpus), request.settings)
    embedder = Embedder(request.config, device=request.device).fit_extractor(words.texts())
    checkpoints = Checkpoints(request.out / CHECKPOINTS, request.checkpoint_seconds)
    with checkpoints.locked():
        require_folder(request.out)
        plan = {
            "method": "b2s",
            "settings": asdict(request.settings),
            "corpus": file_sha256(request.corpus),
            "encoder": dict(embedder.extractor.config),
        }
        if checkpoints.begin(plan):
            progress.note(f"resuming the training in {request.out}")
        contexts = _contexts(embedder, words, checkpoints, progress)
        vectors, losses = _train(contexts, words, request.settings, checkpoints, progress)
        write_vectors(request.out / VECTORS, words.names, vectors)
        write_report(request.out, _report(request, embedder, words, losses))
    checkpoints.remove()
    return read_report(request.out)


@dataclass(frozen=True, eq=False)
class CorpusWords:
    """The words of a corpus by frequency, and those of each text, one text after the other.

    A text is a line, or a sentence of a line with a paragraph. ``starts`` says where each text starts, and ``used``
    which texts of the corpus have a word. ``groups`` says which of these is the first one of each line.
    """

    corpus: Corpus
    paragraphs: bool
    names: list[str]
    counts: NDArray[np.int64]
    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    used: NDArray[np.bool_]
    groups: NDArray[np.int64]

    @classmethod
    def of(cls, corpus: Corpus, settings: B2sSettings) -> CorpusWords:
        """Choose the vocabulary and split the texts; raise :class:`ConfigError` if no word is frequent enough."""
        names = _frequent(corpus, settings)
        split = settings.paragraphs
        if not names:
            raise ConfigError(
                f"no word of {corpus.path} occurs {settings.min_count} times: give more texts or a smaller minimum"
            )
        tokenizer = WordTokenizer({name: i for i, name in enumerate(names)})
        texts = (text for line in corpus for text in _texts(line, split))
        found = [tokenizer.ids(block) for block in blocks(texts, _TEXTS_PER_BLOCK)]
        flat = np.concatenate([each.flat for each in found])
        lengths = np.concatenate([each.lengths for each in found])
        counts = np.bincount(flat, minlength=len(names))
        order = sorted(np.flatnonzero(counts).tolist(), key=lambda word: (-counts[word], names[word]))
        place = np.zeros(len(names), dtype=np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        used = lengths > 0
        starts = np.concatenate([[0], np.cumsum(lengths[used])])
        ends = np.cumsum([len(_texts(line, split)) for line in corpus])
        groups = np.unique(np.concatenate([[0], np.cumsum(used)[ends - 1]]))
        return cls(corpus, split, [names[word] for word in order], counts[order], place[flat], starts, used, groups)

    def texts(self) -> Iterator[str]:
        """Yield the texts that have a word of the vocabulary."""
        return (text for texts, used in self.lines() for text in compress(texts, used))

    def lines(self) -> Iterator[tuple[Sequence[str], Sequence[bool]]]:
        """Yield the texts of each line of the corpus, and which of them have a word of the vocabulary."""
        used = iter(self.used.tolist())
        for line in self.corpus:
            texts = _texts(line, self.paragraphs)
            yield texts, list(islice(used, len(texts)))

    def __len__(self) -> int:
        """Return the number of texts that have a word of the vocabulary."""
        return len(self.starts) - 1

    def of_texts(self, texts: Integers) -> tuple[Integers, Integers]:
        """Return the words of some texts, and for each the index of its text in ``texts``, both shape ``(n,)``."""
        places, owners = _members(self.starts, texts)
        return self.ids[places].astype(np.int64), owners


def _texts(line: str, paragraphs: bool) -> Sequence[str]:
    """Return the texts of a line of the corpus."""
    return split_sentences(line) if paragraphs else [line]


def _members(starts: Integers, groups: Integers) -> tuple[Integers, Integers]:
    """Return the members of some groups, which follow each other, and for each the place of its group in ``groups``."""
    lengths = starts[groups + 1] - starts[groups]
    owners = np.repeat(np.arange(len(groups)), lengths)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return starts[groups][owners] + within, owners


def kept_probabilities(counts: NDArray[np.int64], threshold: float) -> NDArray[np.float64]:
    """Return the probability that an occurrence of each word is a target, shape ``(words,)``."""
    ratio = threshold / (counts / counts.sum())
    kept: NDArray[np.float64] = np.minimum(1.0, np.sqrt(ratio) + ratio)
    return kept


class WordVectorTraining:
    """The vectors of words, shape ``(words, d)``, and Adam, which updates only the words of a batch."""

    def __init__(self, words: int, dim: int, settings: B2sSettings) -> None:
        bound = 1.0 / dim
        self.vectors = np.random.default_rng(settings.seed).uniform(-bound, bound, (words, dim)).astype(np.float32)
        self._parameter = torch.nn.Parameter(torch.from_numpy(self.vectors))  # shares the memory
        self._adam = torch.optim.SparseAdam([self._parameter], lr=settings.learning_rate)

    def step(self, contexts: Floats, texts: Integers, targets: Integers, negatives: Integers) -> float:
        """Update the vectors with one batch and return its loss.

        ``contexts`` are the vectors of the texts, float32 of shape ``(batch, d)``; ``texts`` and ``targets`` the text
        and the word of each target, shape ``(n,)``; ``negatives`` the words that are drawn for each target, shape ``(k,
        n)``.
        """
        words = np.concatenate([targets[None], negatives])
        signs = np.ones(words.shape, dtype=np.float32)
        signs[1:] = -1.0
        owners = np.broadcast_to(texts, words.shape)
        scores = signs * np.einsum("knd,nd->kn", self.vectors[words], contexts[texts])
        inside = np.abs(scores) <= _CLAMP
        exponentials = np.exp(-np.clip(scores, -_CLAMP, _CLAMP))
        slopes = np.where(inside, -signs * exponentials / (1.0 + exponentials), 0.0) / len(targets)
        rows, place = np.unique(words, return_inverse=True)
        shares = np.zeros((len(rows), len(contexts)), dtype=np.float32)
        np.add.at(shares, (place.ravel(), owners.ravel()), slopes.ravel().astype(np.float32))
        gradients = torch.from_numpy(shares @ contexts)
        with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
            self._parameter.grad = torch.sparse_coo_tensor(torch.from_numpy(rows[None]), gradients, self.vectors.shape)
            self._adam.step()  # type: ignore[no-untyped-call]
        return float(np.log1p(exponentials).mean(axis=1).sum())

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the vectors and the state of Adam by name."""
        state = self._adam.state[self._parameter]
        return {**state, "step": torch.tensor(state["step"]), "vectors": self._parameter.detach()}

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore the tensors that :meth:`tensors` returned."""
        self.vectors[:] = tensors["vectors"].numpy()
        moments = {name: tensors[name] for name in ("exp_avg", "exp_avg_sq")}
        self._adam.state[self._parameter] = {"step": int(tensors["step"]), **moments}


def _frequent(corpus: Corpus, settings: B2sSettings) -> list[str]:
    """Return the most frequent words: joined forms, and the atoms of those that are too rare."""
    forms: Counter[tuple[str, ...]] = Counter()
    for text in corpus:
        forms.update(word_forms(text))
    counts: Counter[str] = Counter()
    for (form, *atoms), count in forms.items():
        for word in [form] if count >= settings.min_count else atoms:
            counts[word] += count
    known = [(-count, word) for word, count in counts.items() if count >= settings.min_count]
    return [word for _, word in sorted(known)[: settings.vocabulary]]


def _contexts(embedder: Embedder, words: CorpusWords, checkpoints: Checkpoints, progress: TrainingProgress) -> Floats:
    """Return the vectors of all texts, shape ``(texts, d)``, mapped from a file, which an interrupted run continues."""
    file = checkpoints.folder / CONTEXTS
    row_bytes, done = 4 * embedder.dim, 0
    with file.open("ab") as stream, phase(progress, "encode the corpus", "texts", len(words)):
        stored = file.stat().st_size // row_bytes
        for block in blocks(words.lines(), _TEXTS_PER_BLOCK):
            used = [each for _, of_line in block for each in of_line]
            end = done + sum(used)
            if end > stored:
                stream.truncate(done * row_bytes)
                encoded = sentence_vectors if words.paragraphs else _line_vectors
                stream.write(encoded(embedder, [texts for texts, _ in block], used).tobytes())
                stream.flush()
            progress.advance(end - done)
            done = end
    sync(file)
    return np.memmap(file, np.float32, "r", shape=(len(words), embedder.dim))


def _line_vectors(embedder: Embedder, lines: Sequence[Sequence[str]], used: Sequence[bool]) -> Floats:
    return embedder.raw_documents(list(compress(chain.from_iterable(lines), used)))


def _train(
    contexts: Floats, words: CorpusWords, settings: B2sSettings, checkpoints: Checkpoints, progress: TrainingProgress
) -> tuple[Floats, Sequence[float]]:
    """Return the trained vectors, and the mean loss of each epoch."""
    training = WordVectorTraining(len(words.names), contexts.shape[1], settings)
    kept = kept_probabilities(words.counts, settings.threshold)
    drawn = np.cumsum(np.sqrt(words.counts))
    lines = len(words.groups) - 1
    per_epoch = math.ceil(lines / settings.batch_size)
    batches = settings.epochs * per_epoch
    losses = np.zeros(batches)
    first = 0
    saved = checkpoints.load_run(0, 0)
    if saved is not None:
        tensors, state = saved
        training.restore(tensors)
        losses[:] = tensors["losses"].numpy()
        first = int(state["done"])
    with phase(progress, "train", "batches", batches - first):
        for batch in range(first, batches):
            epoch, within_epoch = divmod(batch, per_epoch)
            order = np.random.default_rng([settings.seed, epoch]).permutation(lines)
            drawn_lines = np.sort(order[within_epoch * settings.batch_size : (within_epoch + 1) * settings.batch_size])
            chosen, _ = _members(words.groups, drawn_lines)
            generator = np.random.default_rng([settings.seed, epoch, within_epoch])
            found, owners = words.of_texts(chosen)
            targets = np.flatnonzero(generator.random(len(found)) < kept[found])
            shape = (settings.negatives, len(targets))
            negatives = np.searchsorted(drawn, generator.random(shape) * drawn[-1], side="right")
            losses[batch] = np.nan
            if len(targets):
                losses[batch] = training.step(contexts[chosen], owners[targets], found[targets], negatives)
                if not math.isfinite(losses[batch]):
                    raise TrainingError(
                        f"the loss is {losses[batch]} in batch {batch + 1} of {batches}: try a smaller learning rate "
                        f"than {settings.learning_rate:g}"
                    )
            progress.advance(1, f"loss {losses[batch]:.3f}")
            if batch + 1 < batches and checkpoints.due():
                tensors = {**training.tensors(), "losses": torch.from_numpy(losses)}
                checkpoints.save_run(tensors, {"step": 0, "run": 0, "done": batch + 1})
    return training.vectors, [float(np.nanmean(each)) for each in losses.reshape(settings.epochs, per_epoch)]


def write_vectors(file: Path, words: Sequence[str], vectors: Floats) -> None:
    """Write a word-vector file in the binary format of word2vec, atomically."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as stream:
        stream.write(f"{len(words)} {vectors.shape[1]}\n".encode())
        for word, vector in zip(words, vectors.astype("<f4"), strict=True):
            stream.write(word.encode() + b" " + vector.tobytes() + b"\n")
    publish(temporary, file)


def _report(request: B2sRequest, embedder: Embedder, words: CorpusWords, losses: Sequence[float]) -> dict[str, Any]:
    return {
        "method": "b2s",
        "model": request.config.model,
        "encoder": embedder.resolved_config().to_dict(),
        "corpus": str(request.corpus),
        "corpus_sha256": file_sha256(request.corpus),
        "texts": len(words),
        "words": len(words.names),
        "occurrences": int(words.counts.sum()),
        "dim": embedder.dim,
        "vectors": VECTORS,
        "settings": asdict(request.settings),
        "losses": list(losses),
        "made_by": {"ragembed": __version__, "numpy": version("numpy"), "python": platform.python_version()},
    }


def split_sentences(paragraph: str) -> list[str]:
    """Split a paragraph after each ``.``, ``?`` and ``!`` before a space."""
    return _SENTENCE_END.split(paragraph.strip())


def sentence_vectors(embedder: Embedder, paragraphs: Sequence[Sequence[str]], used: Sequence[bool]) -> Floats:
    """Return the vectors of the used sentences of ``paragraphs``, float32, shape ``(n, d)``."""
    extractor = cast("TransformerExtractor", embedder.extractor)
    means = SentenceMeans(extractor, paragraphs)
    extractor.model.forward("documents").run(means.texts, [means])
    vectors: Floats = means.vectors()[np.array(used)]
    return vectors


class SentenceMeans:
    """A consumer of hidden states that averages the token vectors of each sentence of ``paragraphs``.

    The model reads ``texts``, the whole paragraphs; special tokens do not count.
    """

    def __init__(self, extractor: TransformerExtractor, paragraphs: Sequence[Sequence[str]]) -> None:
        tokenizer, frame = extractor.model.tokenizer, extractor.model.frames["documents"]
        self.layers = extractor.consumer(0).layers
        self.texts = [" ".join(sentences) for sentences in paragraphs]
        self._ids = [ids for _, ids in tokenizer.framed(self.texts, frame)]
        self._sentences = []  # of each token of each paragraph
        count = 0
        for text, sentences in zip(self.texts, paragraphs, strict=True):
            ends = np.cumsum([len(sentence) + 1 for sentence in sentences])
            last = [end - 1 for _, end in tokenizer.text_spans(text, frame)]
            self._sentences.append(count + np.searchsorted(ends, last, side="right"))
            count += len(sentences)
        self._sums, self._counts = np.zeros((count, extractor.model.dim)), np.zeros(count)

    def take(self, batch: Batch, states: Mapping[int, Floats]) -> None:
        """Add the token vectors of a batch."""
        hidden, text = layer_mean(self.layers, states), batch.kinds == TokenKind.TEXT
        for row, number in enumerate(batch.texts.tolist()):
            found, own = batch.ids[row][text[row]], self._ids[number]
            # A long paragraph is read in several windows.
            starts = range(len(own) - len(found) + 1)
            start = next(place for place in starts if np.array_equal(own[place : place + len(found)], found))
            sentences = self._sentences[number][start : start + len(found)]
            np.add.at(self._sums, sentences, hidden[row][text[row]])
            np.add.at(self._counts, sentences, 1)

    def vectors(self) -> Floats:
        """Return the means, float32, shape ``(sentences, d)``; 0 for a sentence without tokens."""
        return (self._sums / np.maximum(self._counts, 1)[:, None]).astype(np.float32)

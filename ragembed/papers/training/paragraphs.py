"""The vectors of sentences inside of their paragraphs, for the variant of B2S for paragraphs.

Source: Gupta & Jaggi 2021, and their program (``learn_from_bert_ver2_paragraph.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from ragembed.embedder import Embedder
from ragembed.extractors.forward import Batch
from ragembed.extractors.transformer import TransformerExtractor, layer_mean
from ragembed.models.tokenizer import TokenKind
from ragembed.types import Floats

_SENTENCE_END = re.compile(r"(?<=[.?!])\s+")


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

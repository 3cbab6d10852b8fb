"""Transformer extractor: the weighted mean of a text's contextual token vectors.

Source: Stankevičius & Lukoševičius 2024, sections 3.1 to 3.3. A text longer than the model's window is read in several
windows and the mean runs over the tokens of all of them, so no part of it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ragembed.pooling import weighted_sum
from ragembed.tokenizer import TextTokenizer

if TYPE_CHECKING:
    from ragembed.backbone import Backbone

Floats = NDArray[np.float32]
Weigh = Callable[[NDArray[np.int64]], Floats]
Progress = Callable[[int], None]

_TOKENS_PER_BATCH = 2048
_WIDTH_STEP = 16
_TEXTS_PER_BLOCK = 2048


@dataclass(frozen=True, slots=True)
class _Window:
    """A run of one text's tokens, framed by special tokens, with the weights of its tokens in the text's mean.

    ``last`` marks one window of each text.
    """

    text: int
    ids: NDArray[np.int64]
    weights: Floats
    last: bool


class TransformerExtractor:
    """Encode texts with a backbone: windows, length-sorted batches, weighted means.

    Parameters
    ----------
    tokenizer, backbone
        Of the same model.
    layers
        Numbers of the hidden layers whose mean is taken.
    max_tokens
        Tokens in a window, special tokens included.
    weigh
        Maps the token ids of a text, shape ``(tokens,)``, to weights that sum to 1, shape ``(tokens,)``.
    """

    def __init__(
        self, tokenizer: TextTokenizer, backbone: Backbone, layers: tuple[int, ...], max_tokens: int, weigh: Weigh
    ) -> None:
        self._tokenizer = tokenizer
        self._backbone = backbone
        self._layers = layers
        self._max_tokens = max_tokens
        self._weigh = weigh

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self._backbone.dim

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Floats:
        """Return raw vectors, float32, shape ``(n, d)``; the order and company of texts do not matter.

        ``progress`` is called now and then with the number of texts done since the last call.
        """
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        for start in range(0, len(texts), _TEXTS_PER_BLOCK):
            block = texts[start : start + _TEXTS_PER_BLOCK]
            windows = [w for i, ids in enumerate(self._tokenizer.ids(block)) for w in self._windows(start + i, ids)]
            for batch in _batches(windows):
                self._add(batch, vectors)
                if progress is not None:
                    progress(sum(window.last for window in batch))
        return vectors

    def _windows(self, text: int, ids: Sequence[int]) -> Iterator[_Window]:
        prefix, suffix = self._tokenizer.prefix, self._tokenizer.suffix
        room = self._max_tokens - len(prefix) - len(suffix)
        framed = [
            np.array([*prefix, *ids[start : start + room], *suffix], dtype=np.int64)
            for start in range(0, max(len(ids), 1), room)
        ]
        weights = self._weigh(np.concatenate(framed))
        ends = np.cumsum([len(window) for window in framed])
        for window, end in zip(framed, ends, strict=True):
            yield _Window(text, window, weights[end - len(window) : end], last=window is framed[-1])

    def _add(self, batch: Sequence[_Window], vectors: Floats) -> None:
        lengths = np.array([len(window.ids) for window in batch])
        # Few different widths, because the matrix library keeps a plan and its memory for each.
        width = min(-(-int(lengths.max()) // _WIDTH_STEP) * _WIDTH_STEP, self._max_tokens)
        ids = np.zeros((len(batch), width), dtype=np.int64)
        weights = np.zeros(ids.shape, dtype=np.float32)
        for row, window in enumerate(batch):
            ids[row, : len(window.ids)] = window.ids
            weights[row, : len(window.ids)] = window.weights
        hidden = self._backbone.hidden(ids, lengths, self._layers)
        np.add.at(vectors, [window.text for window in batch], weighted_sum(hidden, weights))


def _batches(windows: Sequence[_Window]) -> Iterator[list[_Window]]:
    """Yield windows of similar length together, at most ``_TOKENS_PER_BATCH`` tokens with padding, longest first."""
    batch: list[_Window] = []
    for window in sorted(windows, key=lambda w: len(w.ids), reverse=True):
        if batch and len(batch[0].ids) * (len(batch) + 1) > _TOKENS_PER_BATCH:
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch

"""The forward pass: split texts into windows, batch windows of similar length, and pass hidden states to consumers.

A text longer than the window of the model is read in several windows, so no part of it is lost; every window has the
template around it. Several consumers (extractors with different layers, pooling or weights) share one pass. Batches are
spread over the copies of the model on one or several devices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ragembed.extractors.kept_states import current
from ragembed.extractors.protocol import Progress
from ragembed.models.tokenizer import Frame, TextTokenizer, TokenKind
from ragembed.progress import check
from ragembed.types import Floats

if TYPE_CHECKING:
    from ragembed.models.choice import Backbone

CPU_TOKENS = 2048
"""Number of tokens in a batch, padding included, that makes good use of a CPU."""
GPU_TOKENS = 8192
"""Number of tokens in a batch, padding included, that makes good use of a GPU."""

ONE_WINDOW = 1
"""Number of tokens in a batch that makes each window a batch of its own, without padding."""

THREAD_NAME = "ragembed-device"
Take = Callable[["Batch", list[Floats]], None]

_BATCHES_PER_DEVICE = 2
_WIDTH_STEP = 16
_TEXTS_PER_BLOCK = 2048


@dataclass(frozen=True, slots=True)
class Batch:
    """Windows that go through the model together, padded on the right."""

    texts: NDArray[np.int64]  # (batch,), the index of the text of each window
    ids: NDArray[np.int64]  # (batch, tokens)
    kinds: NDArray[np.int8]  # (batch, tokens), a TokenKind each
    lengths: NDArray[np.int64]  # (batch,), without padding
    completed: int  # texts whose last window is in this batch
    prompt_tokens: int = 0  # special tokens and prompt tokens before a text, in its first window


class Consumer(Protocol):
    """An object that reads the hidden states of each batch."""

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that it needs."""
        ...

    def take(self, batch: Batch, states: Mapping[int, Floats]) -> None:
        """Read a batch; ``states`` maps each layer to token vectors, float32, shape ``(batch, tokens, d)``."""
        ...


@dataclass(frozen=True, slots=True)
class _Window:
    """A run of token ids of one text, the ids before it, and whether it is the last run."""

    text: int
    prefix: tuple[int, ...]
    ids: NDArray[np.int64]
    last: bool


class Forward:
    """The forward pass over any number of texts, through ``replicas``, which are loaded copies of one model.

    A window has ``max_tokens`` tokens with its ``frame``, a batch ``batch_tokens`` with padding. ``name`` stands for
    the model, its settings and the frame; without one, hidden states are never kept. With ``whole=False``, the rest of
    a text after its first window is not read.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        replicas: Replicas,
        frame: Frame,
        max_tokens: int,
        batch_tokens: int,
        name: str | None = None,
        *,
        whole: bool = True,
    ) -> None:
        self._name = name
        self._whole = whole
        self._tokenizer = tokenizer
        self._replicas = replicas
        self._frame = frame
        self._max_tokens = max_tokens
        self._batch_tokens = batch_tokens
        self._room = frame.room(max_tokens)

    def run(self, texts: Sequence[str], consumers: Sequence[Consumer], progress: Progress | None = None) -> None:
        """Run ``texts`` through the model once and pass the hidden states of every batch to each of ``consumers``.

        ``progress`` is called now and then with the number of texts completed since the last call.
        """
        layers = tuple(sorted({layer for consumer in consumers for layer in consumer.layers}))
        # The hidden states of many layers take much memory, on the device and in main memory.
        batch_tokens = max(self._batch_tokens // len(layers), min(self._batch_tokens, CPU_TOKENS))

        def take(batch: Batch, states: list[Floats]) -> None:
            by_layer = dict(zip(layers, states, strict=True))
            for consumer in consumers:
                consumer.take(batch, by_layer)
            if progress is not None:
                progress(batch.completed)

        cache = current()
        if cache is None or self._name is None:
            self._replicas.run(self._batches(texts, batch_tokens, progress), layers, take)
            return
        for start in range(0, len(texts), _TEXTS_PER_BLOCK):
            # Each block is kept for itself, because a fit passes its texts on in such blocks.
            block = texts[start : start + _TEXTS_PER_BLOCK]
            batches = partial(self._batches, block, batch_tokens, None)
            done = cache.run(self._name, block, batches, self._replicas, layers, partial(_take_from, start, take))
            if progress is not None:
                progress(len(block) - done)  # texts without tokens are in no batch

    def tokens(self, texts: Sequence[str]) -> int:
        """Return the number of tokens in all windows of ``texts``, including the frame."""
        return sum(self._size(window) for window in self._windows(texts))

    def _batches(self, texts: Sequence[str], batch_tokens: int, progress: Progress | None) -> Iterator[Batch]:
        """Yield the batches of ``texts``."""
        for start in range(0, len(texts), _TEXTS_PER_BLOCK):
            block = texts[start : start + _TEXTS_PER_BLOCK]
            windows = self._windows(block, start)
            if progress is not None:
                progress(len(block) - sum(window.last for window in windows))
            for group in self._groups(windows, batch_tokens):
                check()
                yield self._batch(group)

    def _windows(self, texts: Sequence[str], first: int = 0) -> list[_Window]:
        """Return the windows of ``texts``, which are numbered from ``first``."""
        frame, windows = self._frame, []
        for text, (prefix, ids) in enumerate(self._tokenizer.framed(texts, frame), first):
            if not len(ids) and not prefix and not frame.suffix:
                continue  # an empty text without a frame has no tokens at all
            start, end = 0, self._room + len(frame.prefix) - len(prefix)
            if not self._whole:
                ids = ids[:end]
            windows.append(_Window(text, prefix, ids[:end], last=end >= len(ids)))
            while end < len(ids):
                start, end = end, end + self._room
                windows.append(_Window(text, frame.prefix, ids[start:end], last=end >= len(ids)))
        return windows

    def _size(self, window: _Window) -> int:
        """Return the number of tokens in a window."""
        return len(window.prefix) + len(window.ids) + len(self._frame.suffix)

    def _groups(self, windows: Sequence[_Window], batch_tokens: int) -> Iterator[list[_Window]]:
        """Yield groups of windows of similar length, longest first, with at most ``batch_tokens`` padded tokens."""
        group: list[_Window] = []
        for window in sorted(windows, key=self._size, reverse=True):
            if group and self._size(group[0]) * (len(group) + 1) > batch_tokens:
                yield group
                group = []
            group.append(window)
        if group:
            yield group

    def _batch(self, group: Sequence[_Window]) -> Batch:
        """Return a group of windows as a batch."""
        frame = self._frame
        lengths = np.array([self._size(window) for window in group])
        # Round widths up, because the matrix library keeps a plan and memory for each width.
        step = 1 if self._batch_tokens == ONE_WINDOW else _WIDTH_STEP
        width = min(-(-int(lengths.max()) // step) * step, self._max_tokens)
        ids = np.zeros((len(group), width), dtype=np.int64)
        kinds = np.full(ids.shape, TokenKind.PADDING, dtype=np.int8)
        for row, (window, length) in enumerate(zip(group, lengths, strict=True)):
            ids[row, :length] = np.concatenate([window.prefix, window.ids, frame.suffix])
            more = [TokenKind.TEMPLATE] * (len(window.prefix) - len(frame.prefix))  # of a prompt joined to this text
            kinds[row, :length] = [
                *frame.prefix_kinds[: len(window.prefix)],
                *more,
                *[TokenKind.TEXT] * len(window.ids),
                *frame.suffix_kinds,
            ]
        completed = sum(window.last for window in group)
        return Batch(np.array([window.text for window in group]), ids, kinds, lengths, completed, frame.prompt_tokens)


class Replicas:
    """The same model on each of several devices, one loader per device, loaded on as many as a run has batches."""

    def __init__(self, loaders: Sequence[Callable[[], Backbone]]) -> None:
        self._loaders = loaders
        self._loaded: Sequence[Backbone] = ()

    def run(self, batches: Iterable[Batch], layers: tuple[int, ...], take: Take) -> None:
        """Compute ``layers`` of each batch and call ``take`` with both, in the order of ``batches``, in this thread.

        Each of several devices has a thread. After an exception, batches that have started are completed.
        """
        rest = iter(batches)
        first = list(islice(rest, len(self._loaders)))
        if len(self._loaded) < len(first):
            # All are loaded before the first batch, because transformers changes PyTorch's defaults while it loads one.
            self._loaded = [load() for load in self._loaders[: len(first)]]
        backbones = self._loaded[: len(first)]
        if len(backbones) > 1:
            _spread(backbones, chain(first, rest), layers, take)
            return
        for batch in chain(first, rest):
            take(batch, backbones[0].states(batch.ids, batch.lengths, layers))


def _spread(backbones: Sequence[Backbone], batches: Iterable[Batch], layers: tuple[int, ...], take: Take) -> None:
    """Run batches on several devices, one thread per device."""
    idle: SimpleQueue[Backbone] = SimpleQueue()
    for backbone in backbones:
        idle.put(backbone)

    def states(batch: Batch) -> list[Floats]:
        backbone = idle.get()
        try:
            return backbone.states(batch.ids, batch.lengths, layers)
        finally:
            idle.put(backbone)

    begun: deque[tuple[Batch, Future[list[Floats]]]] = deque()

    def take_first() -> None:
        batch, future = begun.popleft()
        take(batch, future.result())

    pool = ThreadPoolExecutor(len(backbones), THREAD_NAME)
    try:
        for batch in batches:
            if len(begun) == _BATCHES_PER_DEVICE * len(backbones):
                take_first()
            begun.append((batch, pool.submit(states, batch)))
        while begun:
            take_first()
    finally:
        pool.shutdown(cancel_futures=True)


def _take_from(start: int, take: Take, batch: Batch, states: list[Floats]) -> None:
    """Pass on a batch whose texts are numbered from ``start``."""
    take(replace(batch, texts=batch.texts + start) if start else batch, states)

"""A model for extractors: one forward pass per side, created on first use."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from ragembed.config.specs import Template
from ragembed.extractors.forward import CPU_TOKENS, GPU_TOKENS, ONE_WINDOW, Forward, Replicas
from ragembed.extractors.protocol import Side
from ragembed.extras import is_installed
from ragembed.models.choice import (
    batch_model,
    exact_model,
    fast_dtype,
    find_devices,
    runs_without_torch,
    streams,
)
from ragembed.models.files import ModelFiles, model_shape
from ragembed.models.tokenizer import TextTokenizer
from ragembed.types import Floats

if TYPE_CHECKING:
    from ragembed.models.generation import Generator

_FEW_TEXTS, _FEW_TOKENS, _FEW_PRODUCTS = 8, 1024, 25_000_000_000
"""Limits of texts, tokens, and multiplications in the blocks, below which NumPy is faster than importing PyTorch.

Measured: 1,000 tokens of MiniLM (11 billion multiplications) take 0.8 s of processor time in one thread, and 3 s with
PyTorch including its import.
"""
_FEW_TEXTS_BATCH_TOKENS = 256
"""Number of tokens in a batch of few documents, padding included; a larger batch is not faster without PyTorch."""


class ContextualModel:
    """A model, its tokenizer, and the template of each side. A window of ``max_tokens`` includes the template.

    ``rooms`` has the number of tokens of a text in a window, by side.

    Documents run through OpenVINO or PyTorch in ``dtype``, over all devices. Queries and few documents run in float32,
    with NumPy if possible, because a single query must not wait for the import of a framework.
    """

    def __init__(
        self,
        files: ModelFiles,
        tokenizer: TextTokenizer,
        templates: Mapping[Side, Template],
        max_tokens: int,
        dtype: str,
        device: str | None,
    ) -> None:
        self.tokenizer = tokenizer
        self.dim, self.n_layers = model_shape(files.folder)
        self.frames = {side: tokenizer.frame(template) for side, template in templates.items()}
        self.rooms = {side: frame.room(max_tokens) for side, frame in self.frames.items()}
        self._files = files
        self._max_tokens = max_tokens
        self._dtype = dtype
        self._device = device
        self._forwards: dict[Side, Forward] = {}

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings that determine the hidden states, as JSON values."""
        frames = {side: asdict(frame) for side, frame in self.frames.items()}
        return {"model": self._files.sha256, "frames": frames, "max_tokens": self._max_tokens, "dtype": self._dtype}

    def forward(self, side: Side) -> Forward:
        """Return the forward pass of ``side``."""
        if side not in self._forwards:
            frame = self.frames["queries" if side in ("queries", "pseudo-queries") else "documents"]
            for_many = side not in ("queries", "few-documents")
            if for_many:
                replicas, batch_tokens = self._document_replicas()
            else:
                replicas = Replicas([partial(exact_model, self._files, self._device)])
                batch_tokens = CPU_TOKENS if side == "queries" else _FEW_TEXTS_BATCH_TOKENS
            name = json.dumps([self.config, asdict(frame), self._device], sort_keys=True) if for_many else None
            self._forwards[side] = Forward(
                self.tokenizer, replicas, frame, self._max_tokens, batch_tokens, name, whole=side != "queries"
            )
        return self._forwards[side]

    def is_faster_without_torch(self, texts: Sequence[str]) -> bool:
        """Return whether ``texts`` take less time without PyTorch than the import of PyTorch.

        This is never the case if bfloat16, int8 or a GPU is requested.
        """
        needs_torch = self._dtype in ("bfloat16", "int8") or self._device not in (None, "auto", "cpu")
        if needs_torch or len(texts) > _FEW_TEXTS or not runs_without_torch(self._files):
            return False
        tokens = self.forward("few-documents").tokens(texts)
        # Per token and block, attention multiplies by 4 matrices of d x d and the feed-forward layers by 8.
        return tokens <= _FEW_TOKENS and 12 * self.n_layers * self.dim**2 * tokens <= _FEW_PRODUCTS

    @property
    def encodes_one_by_one(self) -> bool:
        """Whether documents are encoded window by window, not in batches."""
        return streams(self._files, find_devices(self._device)[0]) > 0

    def exact_forward(self, side: Side) -> Forward:
        """Return the forward pass of ``side`` in float32, without PyTorch if possible, as for queries."""
        return self.forward("queries" if side in ("queries", "pseudo-queries") else "few-documents")

    def in_dtype(self, dtype: str) -> Forward:
        """Return a forward pass of documents in ``dtype``, ``"float32"`` or ``"bfloat16"``, on the first device."""
        device = find_devices(self._device)[0]
        replicas = Replicas([partial(batch_model, self._files, dtype, device)])
        return Forward(self.tokenizer, replicas, self.frames["documents"], self._max_tokens, CPU_TOKENS)

    def generator(self) -> Generator:
        """Return the model with its language-modelling head; queries use its weights."""
        from ragembed.models.generation import Generator

        return Generator(self._files, self._device)

    def query_ids(self, query: str) -> list[int]:
        """Return the token ids of a query without the special tokens after it, as its first windows have them."""
        ((prefix, ids),) = self.tokenizer.framed([query], self.frames["queries"])
        return [*prefix, *ids.tolist()]

    def word_embeddings(self) -> Floats:
        """Return the word-embedding table (layer -1), float32, shape ``(vocabulary, d)``."""
        return exact_model(self._files, self._device).word_embeddings()

    def _document_replicas(self) -> tuple[Replicas, int]:
        """Return the model on each device, and the number of tokens in a batch."""
        devices = find_devices(self._device)
        dtype = {"auto": fast_dtype(devices), "mixed": "bfloat16"}.get(self._dtype, self._dtype)
        loaders = [
            partial(batch_model, self._files, dtype, device)
            for device in devices
            for _ in range(streams(self._files, device) or 1)
        ]
        if streams(self._files, devices[0]):
            return Replicas(loaders), ONE_WINDOW
        wide = devices[0].startswith("cuda") or not is_installed("torch")  # NumPy splits a batch over threads
        return Replicas(loaders), GPU_TOKENS if wide else CPU_TOKENS

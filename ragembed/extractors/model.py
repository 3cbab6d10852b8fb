"""A model as extractors use it: a forward pass for each side, made when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from typing import Any

from ragembed.config.templates import Template
from ragembed.extractors.forward import CPU_TOKENS, GPU_TOKENS, Forward
from ragembed.extractors.protocol import Side
from ragembed.extractors.replicas import Replicas
from ragembed.extras import is_installed
from ragembed.models.choice import fast_dtype, find_devices, many_texts, needs_no_framework, one_text
from ragembed.models.files import ModelFiles, model_shape
from ragembed.models.tokenizer import TextTokenizer
from ragembed.types import Floats

_FEW_TEXTS, _FEW_TOKENS, _FEW_PRODUCTS = 8, 1024, 25_000_000_000
"""Most texts, tokens, and multiplications in a model's blocks that take less time than importing PyTorch.

Measured: a thousand tokens of MiniLM, 11 billion multiplications, take 0.8 s of processor time in one thread; with
PyTorch, its import included, 3 s.
"""
_ALONE_TOKENS = 256
"""Tokens in a batch, padding included, of few documents: without PyTorch, a larger one is no quicker."""


class ContextualModel:
    """A model, its tokenizer and what frames the texts of each side.

    Documents go through PyTorch in ``dtype``, spread over the devices. Queries, and few documents where that is asked
    for, are computed in float32, and without PyTorch where the model allows it, because a single one must not wait for
    a framework.

    Parameters
    ----------
    files, tokenizer
        Of the model.
    templates
        For each side.
    max_tokens
        Tokens in a window, special tokens and the template's included.
    dtype
        ``"float32"``, ``"bfloat16"``, ``"mixed"``, which is bfloat16 but for few documents, or ``"auto"``: what is
        faster on the devices.
    device
        What is asked for; see :func:`ragembed.models.devices.choose_devices`.
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
        self._files = files
        self._max_tokens = max_tokens
        self._dtype = dtype
        self._device = device
        self._forwards: dict[Side, Forward] = {}

    @property
    def config(self) -> Mapping[str, Any]:
        """What decides its hidden states, as JSON values."""
        frames = {side: asdict(frame) for side, frame in self.frames.items()}
        return {"model": self._files.sha256, "frames": frames, "max_tokens": self._max_tokens, "dtype": self._dtype}

    def forward(self, side: Side) -> Forward:
        """Return the forward pass of ``side``."""
        if side not in self._forwards:
            frame = self.frames["queries" if side in ("queries", "pseudo-queries") else "documents"]
            if side == "queries":
                replicas, batch_tokens = self._query_replicas, CPU_TOKENS
            elif side == "few-documents":
                replicas, batch_tokens = self._query_replicas, _ALONE_TOKENS
            else:
                replicas, batch_tokens = self._document_replicas()
            self._forwards[side] = Forward(self.tokenizer, replicas, frame, self._max_tokens, batch_tokens)
        return self._forwards[side]

    def computes_alone(self, texts: Sequence[str]) -> bool:
        """Tell whether ``texts`` are so few that they are sooner computed than PyTorch is imported.

        It depends on the texts and the model, and on what was asked for: never where that is bfloat16 or a GPU.
        """
        asked_otherwise = self._dtype == "bfloat16" or self._device not in (None, "auto", "cpu")
        if asked_otherwise or len(texts) > _FEW_TEXTS or not needs_no_framework(self._files):
            return False
        tokens = self.forward("few-documents").tokens(texts)
        # Of each token: attention multiplies it with 4 matrices of d x d, the layers behind it with 8.
        return tokens <= _FEW_TOKENS and 12 * self.n_layers * self.dim**2 * tokens <= _FEW_PRODUCTS

    def exact_forward(self, side: Side) -> Forward:
        """Return the forward pass of ``side`` computed as that of queries, in float32 and without PyTorch if it can."""
        return self.forward("queries" if side in ("queries", "pseudo-queries") else "few-documents")

    def word_embeddings(self) -> Floats:
        """Return the word-embedding table (layer -1), float32, shape ``(vocabulary, d)``."""
        return one_text(self._files, self._device).word_embeddings()

    @cached_property
    def _query_replicas(self) -> Replicas:
        return Replicas([partial(one_text, self._files, self._device)])

    def _document_replicas(self) -> tuple[Replicas, int]:
        devices = find_devices(self._device)
        dtype = {"auto": fast_dtype(devices), "mixed": "bfloat16"}.get(self._dtype, self._dtype)
        replicas = Replicas([partial(many_texts, self._files, dtype, device) for device in devices])
        wide = devices[0].startswith("cuda") or not is_installed("torch")  # NumPy computes parts of a batch in threads
        return replicas, GPU_TOKENS if wide else CPU_TOKENS

"""A model as extractors use it: a forward pass for each side, made when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property, partial
from typing import Any

from ragembed.backbones.choice import many_texts, one_text
from ragembed.extractors.forward import CPU_TOKENS, GPU_TOKENS, Forward
from ragembed.extractors.protocol import Floats, Side
from ragembed.extractors.replicas import Replicas
from ragembed.models import ModelFiles, model_shape
from ragembed.templates import Template
from ragembed.tokenizer import TextTokenizer


class ContextualModel:
    """A model, its tokenizer and what frames the texts of each side.

    Documents go through PyTorch in ``dtype``, spread over the devices. Queries are computed in float32, and without
    PyTorch where the model allows it, because a single one must not wait for a framework.

    Parameters
    ----------
    files, tokenizer
        Of the model.
    templates
        For each side.
    max_tokens
        Tokens in a window, special tokens and the template's included.
    dtype
        ``"float32"``, ``"bfloat16"``, or ``"auto"``: what is faster on the devices.
    device
        What is asked for; see :func:`ragembed.devices.choose_devices`.
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
            frame = self.frames["documents" if side == "documents" else "queries"]
            if side == "queries":
                replicas, batch_tokens = self._query_replicas, CPU_TOKENS
            else:
                replicas, batch_tokens = self._document_replicas()
            self._forwards[side] = Forward(self.tokenizer, replicas, frame, self._max_tokens, batch_tokens)
        return self._forwards[side]

    def exact_forward(self, side: Side) -> Forward:
        """Return the forward pass of ``side`` computed as that of queries, in float32 and without PyTorch if it can."""
        if side == "queries":
            return self.forward(side)
        frame = self.frames["documents" if side == "documents" else "queries"]
        return Forward(self.tokenizer, self._query_replicas, frame, self._max_tokens, CPU_TOKENS)

    def word_embeddings(self) -> Floats:
        """Return the word-embedding table (layer -1), float32, shape ``(vocabulary, d)``."""
        return one_text(self._files, self._device).word_embeddings()

    @cached_property
    def _query_replicas(self) -> Replicas:
        return Replicas([partial(one_text, self._files, self._device)])

    def _document_replicas(self) -> tuple[Replicas, int]:
        from ragembed.backbones.torch_devices import fast_dtype, find_devices

        devices = find_devices(self._device)
        dtype = fast_dtype(devices) if self._dtype == "auto" else self._dtype
        replicas = Replicas([partial(many_texts, self._files, dtype, device) for device in devices])
        return replicas, GPU_TOKENS if devices[0].startswith("cuda") else CPU_TOKENS

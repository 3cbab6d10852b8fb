"""A model as extractors use it: a forward pass for each side, made when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragembed.extractors.forward import Forward
from ragembed.extractors.protocol import Floats, Side
from ragembed.models import ModelFiles, model_shape
from ragembed.numpy_bert import NumpyBert, is_numpy_bert
from ragembed.templates import Template
from ragembed.tokenizer import TextTokenizer

if TYPE_CHECKING:
    from ragembed.backbone import Backbone


class ContextualModel:
    """A model, its tokenizer and what frames the texts of each side.

    Documents go through PyTorch in ``dtype``. Queries are computed in float32, and without PyTorch where the model
    allows it, because a single one must not wait for a framework.

    Parameters
    ----------
    files, tokenizer
        Of the model.
    templates
        For each side.
    max_tokens
        Tokens in a window, special tokens and the template's included.
    dtype
        ``"float32"``, ``"bfloat16"``, or ``"auto"``: what is faster on this machine.
    device
        Torch device; None takes a GPU where there is one.
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
            backbone = self._query_backbone() if side == "queries" else self._document_backbone()
            frame = self.frames["documents" if side == "documents" else "queries"]
            self._forwards[side] = Forward(self.tokenizer, backbone, frame, self._max_tokens)
        return self._forwards[side]

    def word_embeddings(self) -> Floats:
        """Return the word-embedding table (layer -1), float32, shape ``(vocabulary, d)``."""
        return self._query_backbone().word_embeddings()

    def _document_backbone(self) -> Backbone:
        from ragembed.backbone import fast_dtype, torch_backbone

        return torch_backbone(self._files, fast_dtype() if self._dtype == "auto" else self._dtype, self._device)

    def _query_backbone(self) -> Backbone:
        folder: Path = self._files.folder
        if is_numpy_bert(folder):
            return NumpyBert(folder)
        from ragembed.backbone import torch_backbone

        return torch_backbone(self._files, "float32", self._device)

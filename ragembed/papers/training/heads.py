"""Heads project the pooled vector of a definition into the space of the entries (Liu 2024, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

Activation = Literal["tanh", "gelu"]


class PoolerHead(nn.Module):
    """A dense layer and an activation: tanh for BERT's pooler, GELU (erf) for the dense layer of RoBERTa's MLM head."""

    def __init__(self, dense: nn.Linear, activation: Activation) -> None:
        super().__init__()
        self.dense = dense
        self.activation = activation

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        """Return the projection of ``pooled``, both of shape ``(n, d)``."""
        inner = self.dense(pooled)
        return torch.tanh(inner) if self.activation == "tanh" else functional.gelu(inner)


class MlmHead(nn.Module):
    """The frozen masked-word head of a model, without its last product: dense layer, GELU (erf), layer normalisation.

    DefSent uses it. ``tensors`` has ``dense.weight`` and ``dense.bias`` of shapes ``(d, d)`` and ``(d,)``, and
    ``norm.weight`` and ``norm.bias`` of shape ``(d,)``.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], epsilon: float) -> None:
        super().__init__()
        dim = len(tensors["dense.bias"])
        self.dense = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim, eps=epsilon)
        self.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
        self.requires_grad_(False)

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        """Return the projection of ``pooled``, both of shape ``(n, d)``."""
        projected: torch.Tensor = self.norm(functional.gelu(self.dense(pooled)))
        return projected

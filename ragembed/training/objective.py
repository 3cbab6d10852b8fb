"""The loss (Liu 2024, equations 1 and 5): cross-entropy of a definition's projection over all entries."""

from __future__ import annotations

import torch
from torch.nn import functional


def entry_scores(projected: torch.Tensor, entries: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return ``h(s) · entry_embed(e)`` of every definition and entry in float32, shape ``(n, entries)``.

    ``projected`` has the shape ``(n, d)``, ``entries``, which are frozen, ``(entries, d)``. There is no temperature and
    no normalisation, and a ``bias``, shape ``(entries,)``, in DefSent alone.
    """
    with torch.autocast(projected.device.type, enabled=False):
        return functional.linear(projected.float(), entries, bias)


def entry_loss(
    projected: torch.Tensor, entries: torch.Tensor, target: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the mean of ``-log P(e|s)`` over a batch; ``target`` has the number of each definition's entry."""
    return functional.cross_entropy(entry_scores(projected, entries, bias), target)

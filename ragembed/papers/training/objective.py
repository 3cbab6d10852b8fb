"""The loss (Liu 2024, equations 1 and 5): the cross-entropy of projected definitions over all entries."""

from __future__ import annotations

import torch
from torch.nn import functional


def entry_scores(projected: torch.Tensor, entries: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return ``h(s) · entry_embed(e)`` for each definition and entry, float32 of shape ``(n, entries)``.

    ``projected`` has the shape ``(n, d)``. ``entries`` has the shape ``(entries, d)`` and is frozen. There is no
    temperature and no normalisation. Only DefSent uses a ``bias``, of shape ``(entries,)``.
    """
    with torch.autocast(projected.device.type, enabled=False):
        return functional.linear(projected.float(), entries, bias)


def entry_loss(
    projected: torch.Tensor, entries: torch.Tensor, target: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the mean of ``-log P(e|s)`` over a batch. ``target`` has the entry number of each definition."""
    return functional.cross_entropy(entry_scores(projected, entries, bias), target)

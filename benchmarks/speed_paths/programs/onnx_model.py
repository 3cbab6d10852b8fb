"""Write a model as ONNX: the ids and the mask of texts in, the last layer out, for any number of texts and tokens."""

from __future__ import annotations

import sys

import torch
from transformers import AutoModel


class LastLayer(torch.nn.Module):
    """A model that returns its last layer alone."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.model = AutoModel.from_pretrained(folder).eval()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return token vectors."""
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


if __name__ == "__main__":
    folder, file = sys.argv[1:]
    example = (torch.ones(2, 16, dtype=torch.int64), torch.ones(2, 16, dtype=torch.int64))
    texts, tokens = torch.export.Dim("texts", max=8192), torch.export.Dim("tokens", max=512)
    shapes = {name: {0: texts, 1: tokens} for name in ("input_ids", "attention_mask")}
    torch.onnx.export(LastLayer(folder), example, file, input_names=list(shapes), dynamo=True, dynamic_shapes=shapes)

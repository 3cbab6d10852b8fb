"""Look up entries by a description with a trained model (Liu 2024, section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ragembed.errors import ConfigError
from ragembed.models.tokenizer import TextTokenizer
from ragembed.papers.training.dictionary import Dictionary
from ragembed.papers.training.encoder import Arithmetic, load_trained, load_with_mlm_head
from ragembed.papers.training.entries import ReverseAccuracy, accuracy, entry_scores, ranks
from ragembed.papers.training.glosses import Windows, make_windows
from ragembed.papers.training.outcome import read_entries, read_report


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """An entry that fits a description, with ``P(e|s)`` of equation 1: the softmax of its score over all entries."""

    entry: str
    probability: float


class ReverseDictionary:
    """Finds the entries that fit a description, with a model trained by ``ragembed papers train``.

    ``entries`` are the entries that the model was trained on, ``report`` is the content of ``training.json``.
    """

    def __init__(self, folder: Path, device: str | None = None) -> None:
        self.report: dict[str, Any] = read_report(folder)
        self.entries, self._space, head = read_entries(folder)
        self._arithmetic = Arithmetic.of(device, bf16=False)
        trained = load_with_mlm_head(folder, head) if head else load_trained(folder, self.report["head"])
        self._encoder = trained.to(self._arithmetic.device).eval()
        self._tokenizer = TextTokenizer(folder)
        self._pooling = self.report["pooling"]

    def look_up(self, text: str, k: int = 10) -> list[FoundEntry]:
        """Return the ``k`` entries that fit a description best, most probable first."""
        if not text.strip():
            raise ConfigError("the description is empty: expected words such as 'a long-necked African animal'")
        device = self._arithmetic.device
        ids, mask = self._windows([text]).batch(torch.zeros(1, dtype=torch.int64).numpy(), device)
        with torch.inference_mode():
            projected = self._encoder(ids, mask, self._pooling)
            scores = entry_scores(projected, **self._space.tensors(device))[0]
        shares = torch.softmax(scores.double(), dim=0).cpu()
        best = torch.sort(shares, descending=True, stable=True).indices[:k]
        return [FoundEntry(self.entries[int(i)], float(shares[i])) for i in best]

    def measure(self, dictionary: Dictionary) -> ReverseAccuracy:
        """Measure how well the definitions of a dictionary find those entries that the model was trained on."""
        numbers = {entry: i for i, entry in enumerate(self.entries)}
        owners: dict[str, list[int]] = {}
        for entry, definition in dictionary.pairs():
            if (number := numbers.get(dictionary.entries[entry])) is not None:
                owners.setdefault(definition, []).append(number)
        if not owners:
            raise ConfigError(
                f"the model was trained on none of the {len(dictionary):,} entries, such as {dictionary.entries[0]!r}: "
                f"expected some of its {len(numbers):,} entries"
            )
        windows = self._windows(list(owners))
        answers: Sequence[Sequence[int]] = list(owners.values())
        return accuracy(ranks(self._encoder, windows, answers, self._space, self._pooling, self._arithmetic))

    def _windows(self, texts: Sequence[str]) -> Windows:
        return make_windows(self._tokenizer, texts, None, self._encoder.pad)

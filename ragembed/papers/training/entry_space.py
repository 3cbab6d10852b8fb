"""Entry vectors (Liu 2024, equation 2): means over their definitions, or the word embeddings of the model (DefSent)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ragembed.errors import DictionaryError
from ragembed.models.tokenizer import TextTokenizer
from ragembed.papers.training.arithmetic import Arithmetic
from ragembed.papers.training.dictionaries.senses import Dictionary
from ragembed.papers.training.encoder import DefinitionEncoder
from ragembed.papers.training.glosses import TrainingTexts
from ragembed.papers.training.progress import TrainingProgress
from ragembed.papers.training.settings import EntryKind, Pooling
from ragembed.types import Floats

_BATCH_TOKENS = 8192
_UNKNOWN = ("[UNK]", "<unk>")


def entry_embeddings(
    encoder: DefinitionEncoder,
    texts: TrainingTexts,
    kind: EntryKind,
    arithmetic: Arithmetic,
    progress: TrainingProgress,
) -> Floats:
    """Return the entry vectors, float32 of shape ``(entries, d)``.

    The vector of an entry is the mean over its definitions. The vector of a definition is taken from the last layer: at
    ``[CLS]`` (``ac``), or as the mean over all tokens, including special tokens (``amp``). The model runs in evaluation
    mode and without gradients.
    """
    pooling: Pooling = "cls" if kind == "ac" else "mean"
    vectors = np.empty((len(texts.windows.lengths), encoder.dim), dtype=np.float32)
    encoder.to(arithmetic.device).eval()
    progress.start("entry vectors", "definitions", len(vectors))
    try:
        with torch.inference_mode(), arithmetic.autocast():
            for rows in texts.windows.by_length(_BATCH_TOKENS):
                ids, mask = texts.windows.batch(rows, arithmetic.device)
                vectors[rows] = encoder.pooled(ids, mask, pooling).float().cpu().numpy()
                progress.advance(len(rows))
    finally:
        progress.finish()
    return mean_by_entry(vectors, texts)


def mean_by_entry(vectors: Floats, texts: TrainingTexts) -> Floats:
    """Return the mean of ``vectors`` over the definitions of each entry. ``vectors`` has one row per text."""
    sums = np.zeros((texts.n_entries, vectors.shape[1]), dtype=np.float32)
    np.add.at(sums, texts.entry, vectors[texts.text])
    counts = np.bincount(texts.entry, minlength=texts.n_entries).astype(np.float32)
    return sums / counts[:, None]


def single_tokens(dictionary: Dictionary, tokenizer: TextTokenizer) -> tuple[Dictionary, NDArray[np.int64]]:
    """Return the entries that are single tokens, and the token id of each, for DefSent.

    Entries with the same token are merged, such as upper and lower case with an uncased model. Raises
    :class:`DictionaryError` if no entry is a single token.
    """
    found: dict[int, tuple[str, dict[str, None]]] = {}
    # With a leading space, as inside a sentence. In a byte-level tokenizer, the token without the space is different.
    for entry, definitions, ids in zip(
        dictionary.entries,
        dictionary.definitions,
        tokenizer.ids([f" {entry}" for entry in dictionary.entries]),
        strict=True,
    ):
        if len(ids) == 1 and tokenizer.names([int(ids[0])])[0] not in _UNKNOWN:
            _, known = found.setdefault(int(ids[0]), (entry, {}))
            known.update(dict.fromkeys(definitions))
    if not found:
        raise DictionaryError(
            f"none of {len(dictionary):,} entries is a single token of the model, as DefSent requires: train with "
            "DefSent+ instead"
        )
    entries = tuple(entry for entry, _ in found.values())
    texts = tuple(tuple(definitions) for _, definitions in found.values())
    return Dictionary(entries, texts), np.array(list(found), dtype=np.int64)

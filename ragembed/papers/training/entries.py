"""Entry vectors (Liu 2024, equation 2), their independent components, and scores of definitions (equations 1 and 5).

Vectors are means over definitions, or the word embeddings of the model (DefSent).

Independent components (section 3.2 and appendix A): the columns are standardised, transformed with FastICA over all
dimensions (log-cosh contrast), and multiplied by 100. The paper scales by 100 "because typically after
ICA-transformation, the dimensional values are approximately 1% of original scale". This is true only for scikit-learn's
``arbitrary-variance``, where components have unit norm and values are about ``1/sqrt(n)`` for ``n`` entries. The
authors' program uses the current default, ``unit-variance``, with values larger by the factor ``sqrt(n)``. If the last
layer ends with layer normalisation, as in BERT, the vectors have no variance in one of ``d`` directions. Whitening
enlarges its rounding errors to the scale of the other components, as in the authors' program; the values of this one
component may differ between machines.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from torch.nn import functional

from ragembed.errors import ConfigError
from ragembed.papers.training.encoder import Arithmetic, DefinitionEncoder
from ragembed.papers.training.glosses import TrainingTexts, Windows
from ragembed.papers.training.settings import EntryKind, Ica, Pooling
from ragembed.progress import TrainingProgress, phase
from ragembed.types import Floats

_EMBEDDED_TOKENS, _RANKED_TOKENS = 8192, 4096  # in a batch
CPU = torch.device("cpu")
SCALE = 100.0
ITERATIONS = 1000
_SEED = 42
_ROUNDING = 1e-5  # relative to the largest spread; a direction with less contains only float32 rounding errors


@dataclass(frozen=True, slots=True)
class EntrySpace:
    """The frozen entry vectors, shape ``(entries, d)``, and for DefSent their biases, shape ``(entries,)``."""

    vectors: NDArray[np.float32]
    bias: NDArray[np.float32] | None = None

    def tensors(self, device: torch.device = CPU) -> dict[str, torch.Tensor]:
        """Return the vectors as ``entries`` and the biases, if any, as ``bias``."""
        arrays = {"entries": self.vectors, "bias": self.bias}
        return {name: torch.from_numpy(array).to(device) for name, array in arrays.items() if array is not None}

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor]) -> EntrySpace:
        """Return the entry vectors that :meth:`tensors` returned."""
        return cls(tensors["entries"].numpy(), tensors["bias"].numpy() if "bias" in tensors else None)


def entry_scores(projected: torch.Tensor, entries: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return ``h(s) · entry_embed(e)`` plus the bias for each definition and entry, float32, ``(n, entries)``."""
    with torch.autocast(projected.device.type, enabled=False):
        return functional.linear(projected.float(), entries, bias)


def entry_loss(
    projected: torch.Tensor, entries: torch.Tensor, target: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the mean of ``-log P(e|s)`` over a batch. ``target`` has the entry number of each definition."""
    return functional.cross_entropy(entry_scores(projected, entries, bias), target)


def entry_embeddings(
    encoder: DefinitionEncoder,
    texts: TrainingTexts,
    kind: EntryKind,
    arithmetic: Arithmetic,
    progress: TrainingProgress,
) -> Floats:
    """Return the entry vectors, float32 of shape ``(entries, d)``: means over the definitions of an entry.

    The vector of a definition is that of ``[CLS]`` (``ac``), or the mean over all tokens of the last layer (``amp``).
    """
    pooling: Pooling = "cls" if kind == "ac" else "mean"
    vectors = np.empty((len(texts.windows.lengths), encoder.dim), dtype=np.float32)
    encoder.to(arithmetic.device).eval()
    shown = phase(progress, "entry vectors", "definitions", len(vectors))
    with shown, torch.inference_mode(), arithmetic.autocast():
        for rows in texts.windows.by_length(_EMBEDDED_TOKENS):
            ids, mask = texts.windows.batch(rows, arithmetic.device)
            vectors[rows] = encoder.pooled(ids, mask, pooling).float().cpu().numpy()
            progress.advance(len(rows))
    return mean_by_entry(vectors, texts)


def mean_by_entry(vectors: Floats, texts: TrainingTexts) -> Floats:
    """Return the mean of ``vectors`` over the definitions of each entry. ``vectors`` has one row per text."""
    sums = np.zeros((texts.n_entries, vectors.shape[1]), dtype=np.float32)
    np.add.at(sums, texts.entry, vectors[texts.text])
    counts = np.bincount(texts.entry, minlength=texts.n_entries).astype(np.float32)
    return sums / counts[:, None]


@dataclass(frozen=True, slots=True)
class ReverseAccuracy:
    """How well a model finds the entries of definitions.

    ``top1``, ``top10`` and ``top100`` are percentages of the definitions with one of their entries among the first
    results; ``mrr`` is the mean reciprocal rank, from 0 to 1.
    """

    top1: float
    top10: float
    top100: float
    mrr: float
    definitions: int

    def to_dict(self) -> dict[str, float | int]:
        """Return the fields as JSON values."""
        return asdict(self)


def ranks(
    encoder: DefinitionEncoder,
    windows: Windows,
    answers: Sequence[Sequence[int]],
    space: EntrySpace,
    pooling: Pooling,
    arithmetic: Arithmetic,
) -> NDArray[np.int64]:
    """Return the best rank of the ``answers`` of each text among all entries, from 1, shape ``(texts,)``.

    Other entries with the same score as the best answer rank before it.
    """
    best_ranks = np.zeros(len(answers), dtype=np.int64)
    entries = space.tensors(arithmetic.device)
    encoder.to(arithmetic.device).eval()
    with torch.inference_mode():
        for rows in windows.by_length(_RANKED_TOKENS):
            ids, mask = windows.batch(rows, arithmetic.device)
            with arithmetic.autocast():
                projected = encoder(ids, mask, pooling)
            scores = entry_scores(projected, **entries)  # (rows, entries)
            for row, of_row in zip(rows, scores, strict=True):
                answer_ids = torch.tensor(answers[row], device=arithmetic.device)
                best = of_row[answer_ids].max()
                same = int((of_row[answer_ids] == best).sum())
                best_ranks[row] = int((of_row >= best).sum()) - same + 1
    return best_ranks


def accuracy(best_ranks: NDArray[np.int64]) -> ReverseAccuracy:
    """Return the accuracy for the given ranks. There must be at least one."""
    top1, top10, top100 = (100.0 * float((best_ranks <= depth).mean()) for depth in (1, 10, 100))
    return ReverseAccuracy(top1, top10, top100, float((1.0 / best_ranks).mean()), len(best_ranks))


@dataclass(frozen=True, slots=True)
class Components:
    """The transformed vectors (float32 of shape ``(n, d)``), the number of iterations, and whether they converged."""

    vectors: NDArray[np.float32]
    iterations: int
    converged: bool


def require_entries(entries: int, dimensions: int) -> None:
    """Raise :class:`ConfigError` unless there are more entries than dimensions."""
    if entries <= dimensions:
        raise ConfigError(
            f"there are {entries:,} entries and vectors of {dimensions} dimensions: independent components need more "
            "entries than dimensions; set ica to 'none'"
        )


def independent_components(vectors: NDArray[np.float32], convention: Ica) -> Components:
    """Return the independent components of ``vectors``, scaled by scikit-learn's ``convention``.

    Like the authors' program, it uses the result of :data:`ITERATIONS` iterations even if it has not converged.
    """
    rows, columns = vectors.shape
    require_entries(rows, columns)
    scaled = StandardScaler().fit_transform(vectors.astype(np.float64))
    spread = np.sqrt(np.maximum(np.linalg.eigvalsh(scaled.T @ scaled), 0.0))
    varying = int((spread > _ROUNDING * spread[-1]).sum())
    if varying < columns - 1:
        raise ConfigError(
            f"the entry vectors vary in {varying} of {columns} directions: independent components need at least "
            f"{columns - 1}; set ica to 'none'"
        )
    transform = FastICA(fun="logcosh", max_iter=ITERATIONS, random_state=_SEED, whiten=convention)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", ConvergenceWarning)
        found = transform.fit_transform(scaled)
    stopped = any(issubclass(each.category, ConvergenceWarning) for each in raised)
    return Components((SCALE * found).astype(np.float32), int(transform.n_iter_), not stopped)

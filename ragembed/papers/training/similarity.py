"""Measure semantic textual similarity with the three poolings of Liu 2024, equation 14: CLS, mean and prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ragembed.config.settings import EmbedderConfig
from ragembed.errors import ConfigError
from ragembed.evaluation.tasks import Task, evaluate
from ragembed.models.files import find_model
from ragembed.models.tokenizer import TextTokenizer
from ragembed.papers.sentences.sentence_tasks import read_sts
from ragembed.papers.training.progress import TrainingProgress

Similarity = Mapping[str, Mapping[str, float]]
"""Spearman's correlation in per cent, by pooling and table of sentence pairs."""

PROMPT = 'This sentence : "[X]" means [M] . '
"""The prompt of the authors' program. BERT reads it as the template ``t0``; for RoBERTa, the spaces are tokens."""
_POOLINGS: Mapping[str, Mapping[str, str]] = {
    "cls": {"pooling": "cls"},
    "mean": {"pooling": "mean"},
    "prompt": {"pooling": "masks", "template": PROMPT},
}


def read_pairs(files: Sequence[Path]) -> list[Task]:
    """Read tables of sentence pairs; see :func:`ragembed.papers.read_sts`.

    Raises :class:`ConfigError` if two tables have the same name, because the names are the keys of their scores.
    """
    tasks = [read_sts(file) for file in files]
    names = [task.name for task in tasks]
    if len(set(names)) < len(names):
        raise ConfigError(f"sentence pairs have the names {', '.join(names)}: expected different names")
    return tasks


def measure_similarity(model: str, tasks: Sequence[Task], device: str | None, progress: TrainingProgress) -> Similarity:
    """Return the correlation between cosines and human scores, without token weights and post-processors.

    ``prompt`` is the hidden state of the mask token in :data:`PROMPT`. It is left out if the model has no mask token.
    """
    has_mask = TextTokenizer(find_model(model).folder).has_mask
    names = [name for name in _POOLINGS if has_mask or name != "prompt"]
    plain = EmbedderConfig(model=model, weighting="uniform", postprocess=(), query_fit="shared", dtype="float32")
    configs = [plain.replace(**_POOLINGS[name]) for name in names]
    found: dict[str, dict[str, float]] = {name: {} for name in names}
    progress.start("similarity", "measures", len(tasks) * len(names))
    try:
        for task in tasks:
            for name, (_, measured) in zip(names, evaluate(task, configs, device), strict=True):
                if measured.undefined is not None:
                    raise ConfigError(f"{task.name}, pooling {name}: {measured.undefined}")
                found[name][task.name] = float(measured.scores["spearman"])
                progress.advance(1)
    finally:
        progress.finish()
    return found


def best_pooling(similarity: Similarity) -> tuple[str, float]:
    """Return the pooling with the highest mean over all tables, and that mean."""
    means = {name: sum(scores.values()) / len(scores) for name, scores in similarity.items()}
    best = max(means, key=lambda name: means[name])
    return best, means[best]

"""The inputs of a training (texts, model, sentence pairs, device), which are read and validated before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ConfigError
from ragembed.evaluation.tasks import Task
from ragembed.files import file_sha256
from ragembed.models.files import ModelFiles, find_model
from ragembed.models.tokenizer import TextTokenizer
from ragembed.papers.sentences.plots import new_figure
from ragembed.papers.sentences.sentence_tasks import read_sts
from ragembed.papers.training.dictionary import (
    Dictionary,
    HeldOut,
    hold_out,
    read_dictionaries,
    single_tokens,
    statistics,
)
from ragembed.papers.training.encoder import Arithmetic, load_encoder, load_with_mlm_head, mlm_head_tensors
from ragembed.papers.training.entries import require_entries
from ragembed.papers.training.glosses import TrainingTexts, Windows, make_windows
from ragembed.papers.training.outcome import PICTURES
from ragembed.papers.training.settings import TrainingSettings


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """The inputs, the output and the settings of :func:`train_from_dictionary`.

    If the folder ``out`` contains an interrupted training, this training is resumed. The correlation with the scores of
    ``sentence_pairs`` (tables with the columns ``score``, ``sentence1``, ``sentence2``) selects the best run; without
    them, the mean reciprocal rank of the held-out definitions does. ``head_from`` is the model whose head is used, by
    default ``model``. With ``single_words``, only entries that are single tokens are used, as in dataset c of Liu 2024,
    table 1.
    """

    dictionaries: tuple[Path, ...]
    model: str
    out: Path
    settings: TrainingSettings
    sentence_pairs: tuple[Path, ...] = ()
    pictures: bool = False
    device: str | None = None
    checkpoint_seconds: float = 300.0
    head_from: str | None = None
    single_words: bool = False


@dataclass(frozen=True, eq=False)
class Material:
    """The data that all steps and runs share.

    ``head_model`` has the weights of the head. ``dictionary`` is the training data, without the held-out definitions.
    ``statistics`` describe the complete dictionary. ``token_ids`` are the token ids of the entries for DefSent,
    otherwise None. ``pictures`` is the folder for pictures, or None.
    """

    settings: TrainingSettings
    model: ModelFiles
    head_model: ModelFiles
    dictionary: Dictionary
    statistics: dict[str, int | float]
    texts: TrainingTexts
    truncated: int
    held_out: tuple[HeldOut, ...]
    held_out_windows: Windows
    token_ids: NDArray[np.int64] | None
    similarity: tuple[Task, ...]
    arithmetic: Arithmetic
    device: str | None
    pictures: Path | None
    plan: dict[str, Any]

    @classmethod
    def of(cls, request: TrainingRequest) -> Material:
        """Read and validate all inputs. Raises their errors before any slow step starts."""
        if request.pictures:
            new_figure()  # raises an error without matplotlib
        arithmetic = Arithmetic.of(request.device, request.settings.bf16)
        whole = read_dictionaries(request.dictionaries)
        similarity = tuple(read_pairs(request.sentence_pairs))
        model = find_model(request.model)
        head_model = model if request.head_from is None else find_model(request.head_from, option="--head-from")
        tokenizer = TextTokenizer(model.folder)
        token_ids = None
        if request.settings.uses_words:
            encoder = load_with_mlm_head(model.folder, mlm_head_tensors(head_model.folder))
            whole, token_ids = single_tokens(whole, tokenizer)
        else:
            if request.single_words:
                whole, _ = single_tokens(whole, tokenizer)
            encoder = load_encoder(model.folder, request.settings.head, head_model.folder)
        if any(step.ica != "none" for step in request.settings.steps):
            require_entries(len(whole), encoder.dim)
        settings = replace(request.settings, batch_size=request.settings.batch_of(sum(1 for _ in whole.pairs())))
        all_texts = TrainingTexts.of(whole, tokenizer, settings.max_tokens, encoder.pad)
        dictionary, held_out = hold_out(whole, settings.held_out, settings.seed)
        if settings.runs > 1 and not (held_out or similarity):
            raise ConfigError(
                f"cannot choose the best of {settings.runs} runs: give sentence pairs, or hold out definitions"
            )
        drawn = [each.definition for each in held_out]
        return cls(
            settings=settings,
            model=model,
            head_model=head_model,
            dictionary=dictionary,
            statistics=statistics(whole, all_texts.windows.lengths[all_texts.text]),
            texts=TrainingTexts.of(dictionary, tokenizer, settings.max_tokens, encoder.pad),
            truncated=all_texts.windows.truncated,
            held_out=held_out,
            held_out_windows=make_windows(tokenizer, drawn, settings.max_tokens, encoder.pad),
            token_ids=token_ids,
            similarity=similarity,
            arithmetic=arithmetic,
            device=request.device,
            pictures=request.out / PICTURES if request.pictures else None,
            plan={
                "settings": settings.to_dict(),
                "model": model.sha256,
                "head": head_model.sha256,
                "dictionary": whole.fingerprint,
                "sentence_pairs": [[file.name, file_sha256(file)] for file in request.sentence_pairs],
                "device": arithmetic.device.type,
            },
        )


def read_pairs(files: Sequence[Path]) -> list[Task]:
    """Read tables of sentence pairs; see :func:`ragembed.papers.read_sts`.

    Raises :class:`ConfigError` if two tables have the same name, because the names are the keys of their scores.
    """
    tasks = [read_sts(file) for file in files]
    names = [task.name for task in tasks]
    if len(set(names)) < len(names):
        raise ConfigError(f"sentence pairs have the names {', '.join(names)}: expected different names")
    return tasks

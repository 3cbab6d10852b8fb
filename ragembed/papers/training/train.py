"""A complete training: from dictionaries and a model to the folder of the trained model."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Any

from ragembed.papers.training.checkpoints import Checkpoints
from ragembed.papers.training.encoder import choose_head, mlm_head_tensors, model_type
from ragembed.papers.training.material import Material, TrainingRequest
from ragembed.papers.training.outcome import (
    CHECKPOINTS,
    place_model,
    read_report,
    require_folder,
    write_entries,
    write_report,
)
from ragembed.papers.training.progress import SilentTraining, TrainingProgress
from ragembed.papers.training.progressive import ProgressiveTraining, StepOutcome
from ragembed.papers.training.similarity import best_pooling, measure_similarity
from ragembed.papers.training.training_report import summary
from ragembed.version import __version__


def train_from_dictionary(request: TrainingRequest, progress: TrainingProgress | None = None) -> dict[str, Any]:
    """Train a model on dictionaries, write it to a folder, and return the report in its ``training.json``.

    If the folder contains an interrupted training with the same inputs and settings, the training is resumed and gives
    the same result.
    """
    progress = progress or SilentTraining()
    require_folder(request.out)
    material = Material.of(request)
    checkpoints = Checkpoints(request.out / CHECKPOINTS, request.checkpoint_seconds)
    with checkpoints.locked():
        require_folder(request.out)  # check again: another process may have finished in the meantime
        _train(request, material, checkpoints, progress)
    checkpoints.remove()
    return read_report(request.out)


def _train(request: TrainingRequest, material: Material, checkpoints: Checkpoints, progress: TrainingProgress) -> None:
    """Perform all steps and write the trained model."""
    if checkpoints.begin(material.plan):
        progress.note(f"resuming the training in {request.out}")
    if material.truncated:
        longest = material.texts.windows.lengths.max()
        progress.note(f"{material.truncated:,} definitions are longer than {longest} tokens and are truncated")
    before = _measure_before(request, material, checkpoints, progress)
    training = ProgressiveTraining(material, checkpoints, progress)
    outcomes: list[StepOutcome] = []
    for number in range(len(material.settings.steps)):
        builder = outcomes[-1].model if outcomes else material.model.folder
        outcomes.append(training.step(number, builder))
    last = outcomes[-1]
    head = mlm_head_tensors(material.head_model.folder) if material.settings.uses_words else {}
    place_model(last.model, request.out)
    write_entries(request.out, material.dictionary, last.space, head, material.held_out)
    write_report(request.out, _report(request, material, before, outcomes))


def _measure_before(
    request: TrainingRequest, material: Material, checkpoints: Checkpoints, progress: TrainingProgress
) -> dict[str, Any]:
    """Return the measurements of the untrained model."""
    if not material.similarity:
        return {}
    known = checkpoints.read("before.json")
    if known is None:
        similarity = measure_similarity(request.model, material.similarity, material.device, progress)
        pooling, _ = best_pooling(similarity)
        known = {"sts": similarity, "sts_pooling": pooling}
        checkpoints.write("before.json", known)
    return known


def _report(
    request: TrainingRequest, material: Material, before: dict[str, Any], outcomes: list[StepOutcome]
) -> dict[str, Any]:
    settings = material.settings
    kind = choose_head(settings.head, model_type(material.model.folder))
    return {
        "method": "defsent" if settings.uses_words else "defsent-plus",
        "model": request.model,
        "model_sha256": material.model.sha256,
        "head_from": request.head_from,
        "dictionaries": [str(path) for path in request.dictionaries],
        "dictionary_fingerprint": material.plan["dictionary"],
        "statistics": material.statistics.to_dict(),
        "truncated": material.truncated,
        "held_out": len(material.held_out),
        "pooling": settings.steps[-1].pooling,
        "head": "masked-words" if settings.uses_words else "tanh" if kind == "own" else "gelu",
        "settings": settings.to_dict(),
        "chosen_by": "sentence pairs" if material.similarity else "held-out definitions" if material.held_out else None,
        "before": before,
        "steps": [
            {
                "space": outcome.measured,
                "runs": list(outcome.runs),
                "best": outcome.best,
                "summary": summary(outcome.runs),
            }
            for outcome in outcomes
        ],
        "made_by": {
            "ragembed": __version__,
            **{name: version(name) for name in ("torch", "transformers", "scikit-learn")},
            "python": platform.python_version(),
            "device": str(material.arithmetic.device),
        },
    }

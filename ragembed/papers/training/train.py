"""Progressive separate training (Liu 2024, section 3.2, equations 3 to 13), from dictionaries to a model folder.

Each step trains new copies of the original model. Only the encoder that builds the entry vectors changes: the first
step uses the original model, each further step uses the best copy of the previous step. The similarity of sentence
pairs is measured with the three poolings of equation 14: CLS, mean and prompt.
"""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ragembed.config.settings import EmbedderConfig
from ragembed.errors import ConfigError
from ragembed.evaluation.tasks import Task, evaluate
from ragembed.files import make_folders, publish
from ragembed.models.files import find_model
from ragembed.models.tokenizer import TextTokenizer
from ragembed.papers.sentences.isotropy import iso_score
from ragembed.papers.training.checkpoints import Checkpoints, read_tensors, replace_tensors
from ragembed.papers.training.encoder import (
    DefinitionEncoder,
    choose_head,
    load_bare,
    load_encoder,
    load_with_mlm_head,
    mlm_bias,
    mlm_head_tensors,
    model_type,
    save_encoder,
)
from ragembed.papers.training.entries import EntrySpace, accuracy, entry_embeddings, independent_components, ranks
from ragembed.papers.training.material import Material, TrainingRequest
from ragembed.papers.training.outcome import (
    CHECKPOINTS,
    place_model,
    read_report,
    require_folder,
    summary,
    write_entries,
    write_report,
)
from ragembed.papers.training.pictures import draw_space
from ragembed.papers.training.settings import POOLINGS, StepSettings
from ragembed.papers.training.training_run import RunPlace, train_run
from ragembed.progress import SilentProgress, TrainingProgress, phase
from ragembed.version import __version__

Similarity = Mapping[str, Mapping[str, float]]
"""Spearman's correlation in per cent, by pooling and table of sentence pairs."""


def measure_similarity(model: str, tasks: Sequence[Task], device: str | None, progress: TrainingProgress) -> Similarity:
    """Return the correlation between cosines and human scores, without token weights and post-processors.

    ``prompt`` is the hidden state of the mask token in a prompt. It is left out if the model has no mask token.
    """
    has_mask = TextTokenizer(find_model(model).folder).has_mask
    names = [name for name in POOLINGS if has_mask or name != "prompt"]
    plain = EmbedderConfig(model=model, weighting="uniform", postprocess=(), query_fit="shared", dtype="float32")
    configs = [plain.replace(**POOLINGS[name]) for name in names]
    found: dict[str, dict[str, float]] = {name: {} for name in names}
    with phase(progress, "similarity", "measures", len(tasks) * len(names)):
        for task in tasks:
            for name, (_, measured) in zip(names, evaluate(task, configs, device), strict=True):
                if measured.undefined is not None:
                    raise ConfigError(f"{task.name}, pooling {name}: {measured.undefined}")
                found[name][task.name] = float(measured.scores["spearman"])
                progress.advance(1)
    return found


def best_pooling(similarity: Similarity) -> tuple[str, float]:
    """Return the pooling with the highest mean over all tables, and that mean."""
    means = {name: sum(scores.values()) / len(scores) for name, scores in similarity.items()}
    best = max(means, key=lambda name: means[name])
    return best, means[best]


_CURVE_POINTS = 20


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """A finished step: the folder of its best model, its entry vectors, and the measurements of vectors and runs."""

    model: Path
    space: EntrySpace
    measured: Mapping[str, Any]
    runs: tuple[Mapping[str, Any], ...]
    best: int


class ProgressiveTraining:
    """Performs the steps of a training. Finished parts of an interrupted training are read from ``checkpoints``."""

    def __init__(self, material: Material, checkpoints: Checkpoints, progress: TrainingProgress) -> None:
        self._material = material
        self._settings = material.settings
        self._checkpoints = checkpoints
        self._progress = progress

    def step(self, number: int, builder: Path) -> StepOutcome:
        """Perform the step ``number`` (from 0). The model in the folder ``builder`` builds its entry vectors."""
        space, measured = self._entry_space(number, builder)
        best_folder = self._folder(number) / "best"
        runs: list[Mapping[str, Any]] = []
        best, highest = 0, -np.inf
        for run in range(self._settings.runs):
            name = f"{_name(number)}/run-{run}.json"
            done = self._checkpoints.read(name)
            if done is None:
                place = RunPlace(number, len(self._settings.steps), run, self._settings.runs)
                done = self._run(place, space, highest, best_folder)
                self._checkpoints.write(name, done)
                self._checkpoints.end_run()
            runs.append(done)
            if done["score"] > highest:
                best, highest = run, done["score"]
        return StepOutcome(best_folder, space, measured, tuple(runs), best)

    def _folder(self, number: int) -> Path:
        return self._checkpoints.folder / _name(number)

    def _entry_space(self, number: int, builder: Path) -> tuple[EntrySpace, dict[str, Any]]:
        """Return the entry vectors of a step and their measurements."""
        file = self._folder(number) / "entries.safetensors"
        known = self._checkpoints.read(f"{_name(number)}/space.json")
        if known is not None:
            tensors, _ = read_tensors(file)
            return EntrySpace.of(tensors), known
        step = self._settings.steps[number]
        space = self._build(step, builder)
        measured: dict[str, Any] = {"isoscore": iso_score(space.vectors), "ica": step.ica}
        self._draw(space, f"entry vectors of step {number + 1}", _name(number))
        if step.ica != "none":
            with phase(self._progress, "independent components", "iterations", None):
                components = independent_components(space.vectors, step.ica)
            space = EntrySpace(components.vectors, space.bias)
            measured |= {
                "isoscore_ica": iso_score(space.vectors),
                "ica_iterations": components.iterations,
                "ica_converged": components.converged,
            }
            if not components.converged:
                self._progress.note(
                    f"the independent components did not converge in {components.iterations:,} iterations"
                )
            self._draw(space, f"step {number + 1}, ICA", f"{_name(number)}-ica")
        replace_tensors(file, space.tensors(), {})
        self._checkpoints.write(f"{_name(number)}/space.json", measured)
        return space, measured

    def _build(self, step: StepSettings, builder: Path) -> EntrySpace:
        material = self._material
        if material.token_ids is not None:
            head = material.head_model.folder
            encoder = load_with_mlm_head(material.model.folder, mlm_head_tensors(head))
            return word_space(encoder, mlm_bias(head), material.token_ids)
        encoder = load_bare(builder)
        return EntrySpace(entry_embeddings(encoder, material.texts, step.entries, material.arithmetic, self._progress))

    def _draw(self, space: EntrySpace, title: str, name: str) -> None:
        if self._material.pictures is not None:
            make_folders(self._material.pictures)
            draw_space(space.vectors, title, self._material.pictures / f"{name}.png")

    def _run(self, place: RunPlace, space: EntrySpace, highest: float, best_folder: Path) -> dict[str, Any]:
        """Train and measure one new copy. Save it to ``best_folder`` if its score is higher than ``highest``."""
        material, source = self._material, self._material.model.folder
        started = time.monotonic()
        words = material.token_ids is not None
        head = material.head_model.folder
        if words:
            encoder = load_with_mlm_head(source, mlm_head_tensors(head))
        else:
            encoder = load_encoder(source, self._settings.head, head)
        losses = train_run(
            encoder,
            material.texts,
            space,
            self._settings,
            material.arithmetic,
            place,
            self._checkpoints,
            self._progress,
        )
        parts = np.array_split(losses, min(_CURVE_POINTS, len(losses)))
        curve = [float(part.mean()) for part in parts]
        found: dict[str, Any] = {"run": place.run, "seed": self._settings.seed + place.run}
        found |= {"loss": curve[-1], "first_loss": curve[0], "loss_curve": curve, "score": -curve[-1]}
        if material.held_out:
            answers = [each.entries for each in material.held_out]
            pooling = self._settings.steps[place.step].pooling
            held_out = accuracy(ranks(encoder, material.held_out_windows, answers, space, pooling, material.arithmetic))
            found |= {"held_out": held_out.to_dict(), "score": 100.0 * held_out.mrr}
        candidate = best_folder.with_name("candidate")
        make_folders(best_folder.parent)
        save_encoder(encoder.to("cpu"), candidate, source)
        if material.similarity:
            found["sts"] = measure_similarity(str(candidate), material.similarity, material.device, self._progress)
            found["sts_pooling"], found["score"] = best_pooling(found["sts"])
        found["seconds"] = time.monotonic() - started
        if found["score"] > highest:
            replace_folder(candidate, best_folder)
        return found


def _name(number: int) -> str:
    return f"step-{number + 1}"


def word_space(encoder: DefinitionEncoder, bias: torch.Tensor, token_ids: NDArray[np.int64]) -> EntrySpace:
    """Return the entry space of DefSent: the word embeddings and the biases of ``token_ids``."""
    body: Any = encoder.body
    table = body.get_input_embeddings().weight.detach()
    ids = torch.from_numpy(token_ids)
    return EntrySpace(table[ids].numpy().copy(), bias[ids].numpy().copy())


def replace_folder(new: Path, old: Path) -> None:
    """Replace the folder ``old`` by ``new``."""
    if old.exists():
        shutil.rmtree(old)
    publish(new, old)


def train_from_dictionary(request: TrainingRequest, progress: TrainingProgress | None = None) -> dict[str, Any]:
    """Train a model on dictionaries, write it to a folder, and return the report in its ``training.json``.

    If the folder contains an interrupted training with the same inputs and settings, the training is resumed and gives
    the same result.
    """
    progress = progress or SilentProgress()
    require_folder(request.out)
    material = Material.of(request)
    checkpoints = Checkpoints(request.out / CHECKPOINTS, request.checkpoint_seconds)
    with checkpoints.locked():
        require_folder(request.out)  # check again: another process may have finished in the meantime
        _train_steps(request, material, checkpoints, progress)
    checkpoints.remove()
    return read_report(request.out)


def _train_steps(
    request: TrainingRequest, material: Material, checkpoints: Checkpoints, progress: TrainingProgress
) -> None:
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
        "statistics": material.statistics,
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

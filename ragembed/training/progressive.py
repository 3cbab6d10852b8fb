"""Progressive separate training (Liu 2024, section 3.2, equations 3 to 13).

Every step trains fresh copies of the original model. Only the encoder that builds the entry vectors moves forward: that
of the first step is the original model, that of the next the best copy of the step before.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ragembed.evaluation.isotropy import iso_score
from ragembed.files import make_folders
from ragembed.training.checkpoints import Checkpoints, read_tensors, replace_tensors
from ragembed.training.encoder import (
    DefinitionEncoder,
    load_bare,
    load_encoder,
    load_with_mlm_head,
    mlm_bias,
    save_encoder,
)
from ragembed.training.entry_space import entry_embeddings
from ragembed.training.held_out import accuracy, ranks
from ragembed.training.ica import independent_components
from ragembed.training.material import Material
from ragembed.training.outcome import PICTURES
from ragembed.training.pictures import draw_space
from ragembed.training.progress import TrainingProgress
from ragembed.training.run import EntrySpace, RunPlace, train_run
from ragembed.training.settings import StepSettings
from ragembed.training.similarity import best_pooling, measure_similarity

_CURVE_POINTS = 20


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """A finished step: its best model's folder and entry vectors, what was measured of them and of each run."""

    model: Path
    space: EntrySpace
    measured: Mapping[str, Any]
    runs: tuple[Mapping[str, Any], ...]
    best: int


def train_step(
    number: int, builder: Path, material: Material, checkpoints: Checkpoints, progress: TrainingProgress
) -> StepOutcome:
    """Do the step ``number``, from 0, whose entry vectors the model in the folder ``builder`` builds.

    What a training that was interrupted has finished of it is taken up.
    """
    step = material.settings.steps[number]
    space, measured = _entry_space(number, step, builder, material, checkpoints, progress)
    best_folder = checkpoints.folder / f"step-{number + 1}" / "best"
    runs: list[Mapping[str, Any]] = []
    best, highest = 0, -np.inf
    for run in range(material.settings.runs):
        name = f"step-{number + 1}/run-{run}.json"
        done = checkpoints.read(name)
        if done is None:
            done = _run(number, run, space, highest, best_folder, material, checkpoints, progress)
            checkpoints.write(name, done)
            checkpoints.end_run()
        runs.append(done)
        if done["score"] > highest:
            best, highest = run, done["score"]
    return StepOutcome(best_folder, space, measured, tuple(runs), best)


def _entry_space(
    number: int,
    step: StepSettings,
    builder: Path,
    material: Material,
    checkpoints: Checkpoints,
    progress: TrainingProgress,
) -> tuple[EntrySpace, dict[str, Any]]:
    """Return the entry vectors of a step, and what is measured of them."""
    file = checkpoints.folder / f"step-{number + 1}" / "entries.safetensors"
    known = checkpoints.read(f"step-{number + 1}/space.json")
    if known is not None:
        tensors, _ = read_tensors(file)
        bias = tensors["bias"].numpy() if "bias" in tensors else None
        return EntrySpace(tensors["entries"].numpy(), bias), known
    if material.token_ids is not None:
        encoder = load_with_mlm_head(material.model.folder)
        space = word_space(encoder, mlm_bias(material.model.folder), material.token_ids)
    else:
        encoder = load_bare(builder)
        vectors = entry_embeddings(encoder, material.texts, step.entries, material.arithmetic, progress)
        space = EntrySpace(vectors)
    measured: dict[str, Any] = {"isoscore": iso_score(space.vectors), "ica": step.ica}
    picture = None if material.pictures is None else material.pictures / PICTURES
    if picture is not None:
        make_folders(picture)
        draw_space(space.vectors, f"entry vectors of step {number + 1}", picture / f"step-{number + 1}.png")
    if step.ica != "none":
        progress.start("independent components", "steps", None)
        components = independent_components(space.vectors, step.ica)
        progress.finish()
        space = EntrySpace(components.vectors, space.bias)
        measured |= {
            "isoscore_ica": iso_score(space.vectors),
            "ica_iterations": components.iterations,
            "ica_converged": components.converged,
        }
        if not components.converged:
            progress.note(f"independent components did not converge in {components.iterations:,} iterations")
        if picture is not None:
            draw_space(space.vectors, f"step {number + 1}, ICA", picture / f"step-{number + 1}-ica.png")
    tensors = {"entries": torch.from_numpy(space.vectors)}
    if space.bias is not None:
        tensors["bias"] = torch.from_numpy(space.bias)
    replace_tensors(file, tensors, {})
    checkpoints.write(f"step-{number + 1}/space.json", measured)
    return space, measured


def word_space(encoder: DefinitionEncoder, bias: torch.Tensor, token_ids: NDArray[np.int64]) -> EntrySpace:
    """Return the word embeddings of ``token_ids`` and their part of ``bias``, the space of DefSent."""
    body: Any = encoder.body
    table = body.get_input_embeddings().weight.detach()
    ids = torch.from_numpy(token_ids)
    return EntrySpace(table[ids].numpy().copy(), bias[ids].numpy().copy())


def _run(
    number: int,
    run: int,
    space: EntrySpace,
    highest: float,
    best_folder: Path,
    material: Material,
    checkpoints: Checkpoints,
    progress: TrainingProgress,
) -> dict[str, Any]:
    """Train one fresh copy, measure it, and keep it in ``best_folder`` where its score is above ``highest``."""
    settings, step = material.settings, material.settings.steps[number]
    place = RunPlace(number, len(settings.steps), run, settings.runs)
    started = time.monotonic()
    source = material.model.folder
    encoder = load_encoder(source, settings.head) if material.token_ids is None else load_with_mlm_head(source)
    losses = train_run(
        encoder, material.texts, space, step, settings, material.arithmetic, place, checkpoints, progress
    )
    found: dict[str, Any] = {
        "run": run,
        "seed": settings.seed + run,
        "loss": float(losses[-max(1, len(losses) // _CURVE_POINTS) :].mean()),
        "first_loss": float(losses[: max(1, len(losses) // _CURVE_POINTS)].mean()),
        "loss_curve": [float(part.mean()) for part in np.array_split(losses, min(_CURVE_POINTS, len(losses)))],
    }
    if material.held_out:
        answers = [each.entries for each in material.held_out]
        held_out = accuracy(
            ranks(encoder, material.held_out_windows, answers, space, step.pooling, material.arithmetic)
        )
        found["held_out"] = held_out.to_dict()
        found["score"] = 100.0 * held_out.mrr
    candidate = best_folder.with_name("candidate")
    make_folders(best_folder.parent)
    save_encoder(encoder.to("cpu"), candidate, source)
    if material.similarity:
        similarity = measure_similarity(str(candidate), material.similarity, material.device)
        found["sts"] = similarity
        found["sts_pooling"], found["score"] = best_pooling(similarity)
    found.setdefault("score", -found["loss"])
    found["seconds"] = time.monotonic() - started
    if found["score"] > highest:
        replace_folder(candidate, best_folder)
    return found


def replace_folder(new: Path, old: Path) -> None:
    """Put the folder ``new`` in the place of ``old``."""
    if old.exists():
        shutil.rmtree(old)
    new.replace(old)

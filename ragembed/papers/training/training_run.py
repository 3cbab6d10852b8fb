"""One run: the training of a new copy of the model on the definitions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ragembed.errors import TrainingError
from ragembed.papers.training.arithmetic import Arithmetic
from ragembed.papers.training.checkpoints import Checkpoints
from ragembed.papers.training.encoder import DefinitionEncoder
from ragembed.papers.training.glosses import TrainingTexts
from ragembed.papers.training.objective import entry_loss
from ragembed.papers.training.optimizer import Optimizer
from ragembed.papers.training.progress import TrainingProgress
from ragembed.papers.training.settings import TrainingSettings

_SMOOTHING = 0.98  # of the displayed loss, an exponential moving average


@dataclass(frozen=True, slots=True)
class RunPlace:
    """The position of a run in the training: ``step`` of ``steps`` and ``run`` of ``runs``, both from 0."""

    step: int
    steps: int
    run: int
    runs: int

    def __str__(self) -> str:
        return f"step {self.step + 1} of {self.steps}, run {self.run + 1} of {self.runs}"


@dataclass(frozen=True, slots=True)
class EntrySpace:
    """The frozen entry vectors, shape ``(entries, d)``, and for DefSent their biases, shape ``(entries,)``."""

    vectors: NDArray[np.float32]
    bias: NDArray[np.float32] | None = None


def train_run(
    encoder: DefinitionEncoder,
    texts: TrainingTexts,
    space: EntrySpace,
    settings: TrainingSettings,
    arithmetic: Arithmetic,
    place: RunPlace,
    checkpoints: Checkpoints,
    progress: TrainingProgress,
) -> NDArray[np.float32]:
    """Train ``encoder``, a new copy of the original model, and return the loss of each batch.

    The seed of the run determines the order of definitions and the dropout. On the same machine, and on a CPU with the
    same number of threads, the same seed gives the same parameters, even if the run is interrupted and resumed. Raises
    :class:`TrainingError` if the loss is not finite.
    """
    step, seed = settings.steps[place.step], settings.seed + place.run
    size = settings.batch_of(len(texts))
    batches = settings.epochs * math.ceil(len(texts) / size)
    device = arithmetic.device
    entries = torch.from_numpy(space.vectors).to(device)
    bias = None if space.bias is None else torch.from_numpy(space.bias).to(device)
    encoder.to(device).train()
    optimizer = Optimizer(encoder, step.learning_rate, settings.optimizer)
    losses = np.zeros(batches, dtype=np.float32)
    order, epoch = np.empty(0, dtype=np.int64), -1
    with arithmetic.seeded(seed):
        first = _resume(optimizer, losses, arithmetic, place, checkpoints)
        per_epoch = batches // settings.epochs
        seen = first // per_epoch * len(texts) + first % per_epoch * size
        progress.start(str(place), "definitions", settings.epochs * len(texts) - seen)
        shown = float(losses[first - 1]) if first else 0.0
        try:
            for batch in range(first, batches):
                now, within = divmod(batch, per_epoch)
                if now != epoch:
                    order, epoch = np.random.default_rng([seed, now]).permutation(len(texts)), now
                pairs = order[within * size : (within + 1) * size]
                ids, mask = texts.windows.batch(texts.text[pairs], device)
                target = torch.from_numpy(texts.entry[pairs]).to(device)
                with arithmetic.autocast():
                    projected = encoder(ids, mask, step.pooling)
                loss = entry_loss(projected, entries, target, bias)
                losses[batch] = value = loss.item()
                if not math.isfinite(value):
                    raise TrainingError(
                        f"{place}: the loss is {value} in batch {batch + 1} of {batches}: try a smaller learning rate "
                        f"than {step.learning_rate:g}"
                    )
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step(batch, batches)
                shown = value if batch == 0 else _SMOOTHING * shown + (1 - _SMOOTHING) * value
                progress.advance(len(pairs), f"loss {shown:.3f}")
                if batch + 1 < batches and checkpoints.due():
                    _save(optimizer, losses, arithmetic, place, checkpoints, batch + 1)
        finally:
            progress.finish()
    return losses


def _save(
    optimizer: Optimizer,
    losses: NDArray[np.float32],
    arithmetic: Arithmetic,
    place: RunPlace,
    checkpoints: Checkpoints,
    done: int,
) -> None:
    tensors = {**optimizer.tensors(), **arithmetic.generator_states(), "losses": torch.from_numpy(losses)}
    checkpoints.save_run(tensors, {"step": place.step, "run": place.run, "done": done})


def _resume(
    optimizer: Optimizer, losses: NDArray[np.float32], arithmetic: Arithmetic, place: RunPlace, checkpoints: Checkpoints
) -> int:
    """Restore the saved state of this run, if there is one. Return the number of finished batches."""
    saved = checkpoints.load_run(place.step, place.run)
    if saved is None:
        return 0
    tensors, state = saved
    optimizer.restore(tensors)
    arithmetic.restore_generators(tensors)
    losses[:] = tensors["losses"].numpy()
    return int(state["done"])

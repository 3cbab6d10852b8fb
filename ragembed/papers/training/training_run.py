"""One run: the training of a new copy of the model on the definitions, with AdamW and linear decay to 0."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ragembed.errors import TrainingError
from ragembed.papers.training.checkpoints import Checkpoints
from ragembed.papers.training.encoder import Arithmetic, DefinitionEncoder
from ragembed.papers.training.entries import EntrySpace, entry_loss
from ragembed.papers.training.glosses import TrainingTexts
from ragembed.papers.training.settings import OptimizerSettings, TrainingSettings
from ragembed.progress import TrainingProgress, phase


def linear_decay(batch: int, batches: int, warmup: float = 0.0) -> float:
    """Return the factor on the learning rate: it rises from 0 over the share ``warmup`` of the batches, then falls."""
    rising = int(warmup * batches)
    if batch < rising:
        return batch / rising
    return max(0, batches - batch) / max(1, batches - rising)


class Optimizer:
    """AdamW for the trainable parameters of ``module``.

    ``learning_rate`` is the learning rate of the first batch after the warm-up.
    """

    def __init__(self, module: nn.Module, learning_rate: float, settings: OptimizerSettings) -> None:
        self._named = {name: each for name, each in module.named_parameters() if each.requires_grad}
        self._learning_rate = learning_rate
        self._settings = settings
        # PyTorch has a fused kernel for these devices. It keeps the step count on the device of the parameter.
        self._fused = all(each.device.type in ("cpu", "cuda") for each in self._named.values())
        self._adam = torch.optim.AdamW(
            list(self._named.values()),
            lr=learning_rate,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
            fused=self._fused,
        )

    def step(self, batch: int, batches: int) -> None:
        """Clip the gradients, update the parameters and clear the gradients."""
        nn.utils.clip_grad_norm_(self._named.values(), self._settings.max_grad_norm)
        for group in self._adam.param_groups:
            group["lr"] = self._learning_rate * linear_decay(batch, batches, self._settings.warmup)
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return parameters and moments by name."""
        found: dict[str, torch.Tensor] = {}
        for name, parameter in self._named.items():
            found[f"model.{name}"] = parameter.detach()
            for part, value in self._adam.state[parameter].items():
                found[f"adam.{part}.{name}"] = value
        return found

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore the tensors that :meth:`tensors` returned."""
        with torch.no_grad():
            for name, parameter in self._named.items():
                parameter.copy_(tensors[f"model.{name}"])
                self._adam.state[parameter] = {
                    part: tensors[f"adam.{part}.{name}"].to(
                        parameter.device if self._fused or part != "step" else "cpu"
                    )
                    for part in ("step", "exp_avg", "exp_avg_sq")
                    if f"adam.{part}.{name}" in tensors
                }


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

    The seed determines the order of definitions and the dropout, also of a run that is resumed.
    """
    step, seed = settings.steps[place.step], settings.seed + place.run
    size = settings.batch_of(len(texts))
    batches = settings.epochs * math.ceil(len(texts) / size)
    device = arithmetic.device
    entries = space.tensors(device)
    encoder.to(device).train()
    optimizer = Optimizer(encoder, step.learning_rate, settings.optimizer)
    losses = np.zeros(batches, dtype=np.float32)
    order, epoch = np.empty(0, dtype=np.int64), -1
    with arithmetic.seeded(seed):
        first = _resume(optimizer, losses, arithmetic, place, checkpoints)
        per_epoch = batches // settings.epochs
        seen = first // per_epoch * len(texts) + first % per_epoch * size
        shown = float(losses[first - 1]) if first else 0.0
        with phase(progress, str(place), "definitions", settings.epochs * len(texts) - seen):
            for batch in range(first, batches):
                now, within = divmod(batch, per_epoch)
                if now != epoch:
                    order, epoch = np.random.default_rng([seed, now]).permutation(len(texts)), now
                pairs = order[within * size : (within + 1) * size]
                ids, mask = texts.windows.batch(texts.text[pairs], device)
                target = torch.from_numpy(texts.entry[pairs]).to(device)
                with arithmetic.autocast():
                    projected = encoder(ids, mask, step.pooling)
                loss = entry_loss(projected, target=target, **entries)
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

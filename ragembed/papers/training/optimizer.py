"""AdamW, its learning-rate schedule, and its state as named tensors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from ragembed.papers.training.settings import OptimizerSettings


def linear_decay(batch: int, batches: int, warmup: float = 0.0) -> float:
    """Return the factor on the learning rate for batch number ``batch`` (from 0) of ``batches``.

    The factor rises linearly from 0 over the share ``warmup`` of the batches. Then it falls linearly to 0, which it
    would reach one batch after the last.
    """
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

"""AdamW, its learning rate by batch, and its state as named tensors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from ragembed.training.settings import OptimizerSettings


def linear_decay(batch: int, batches: int, warmup: float = 0.0) -> float:
    """Return the share of the learning rate that the batch number ``batch`` of ``batches``, from 0, is taken with.

    It rises from 0 over the share ``warmup`` of batches, and falls to 0, which the one after the last would have.
    """
    rising = int(warmup * batches)
    if batch < rising:
        return batch / rising
    return max(0, batches - batch) / max(1, batches - rising)


class Optimizer:
    """AdamW over the parameters of ``module`` that are trained.

    ``learning_rate`` is that of the first batch after the warm-up.
    """

    def __init__(self, module: nn.Module, learning_rate: float, settings: OptimizerSettings) -> None:
        self._named = {name: each for name, each in module.named_parameters() if each.requires_grad}
        self._learning_rate = learning_rate
        self._settings = settings
        # One kernel for each parameter, where PyTorch has it; it keeps its count of steps beside the parameter.
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
        """Clip the gradients, change the parameters, and forget the gradients."""
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
        """Take up what :meth:`tensors` returned."""
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

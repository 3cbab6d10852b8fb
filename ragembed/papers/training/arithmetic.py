"""The device and the number format of a training, and its random number generators."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ragembed.models.torch_devices import find_devices


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A device, and whether forward passes use bfloat16 autocast."""

    device: torch.device
    bf16: bool = False

    @classmethod
    def of(cls, device: str | None, bf16: bool) -> Arithmetic:
        """Use the first device of :func:`ragembed.models.torch_devices.find_devices`. Raises the same errors."""
        return cls(torch.device(find_devices(device)[0]), bf16)

    def autocast(self) -> torch.autocast:
        """Return the context manager for a forward pass."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bf16)

    @contextlib.contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Seed PyTorch's random generators, which dropout uses, and restore their states afterwards."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            yield

    def generator_states(self) -> dict[str, torch.Tensor]:
        """Return the states of the random generators, as uint8 tensors."""
        states = {"rng.cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            states["rng.cuda"] = torch.cuda.get_rng_state(self.device)
        return states

    def restore_generators(self, states: dict[str, torch.Tensor]) -> None:
        """Restore the states that :meth:`generator_states` returned."""
        torch.set_rng_state(states["rng.cpu"])
        if "rng.cuda" in states and self.device.type == "cuda":
            torch.cuda.set_rng_state(states["rng.cuda"], self.device)

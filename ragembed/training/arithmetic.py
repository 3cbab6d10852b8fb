"""Where and in which numbers a training is computed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ragembed.models.torch_devices import find_devices


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A device, and whether forward passes are computed in bfloat16 where that is safe."""

    device: torch.device
    bf16: bool = False

    @classmethod
    def of(cls, asked: str | None, bf16: bool) -> Arithmetic:
        """Take the first of :func:`ragembed.models.torch_devices.find_devices`, which raises what it raises."""
        return cls(torch.device(find_devices(asked)[0]), bf16)

    def autocast(self) -> torch.autocast:
        """Return the context of a forward pass."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bf16)

    @contextlib.contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Seed PyTorch's generators, which dropout draws from, and leave them as they were afterwards."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            yield

    def generator_states(self) -> dict[str, torch.Tensor]:
        """Return the states of the generators, uint8."""
        states = {"rng.cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            states["rng.cuda"] = torch.cuda.get_rng_state(self.device)
        return states

    def restore_generators(self, states: dict[str, torch.Tensor]) -> None:
        """Take up what :meth:`generator_states` returned."""
        torch.set_rng_state(states["rng.cpu"])
        if "rng.cuda" in states and self.device.type == "cuda":
            torch.cuda.set_rng_state(states["rng.cuda"], self.device)

"""Resolve the requested device to the GPUs that are visible."""

from __future__ import annotations

import re

from ragembed.errors import ConfigError, GpuError

_GPU_NUMBERS = re.compile(r"(?:gpu|cuda):([0-9]+(?:,[0-9]+)*)")


def choose_devices(requested: str | None, gpus: int) -> tuple[str, ...]:
    """Return the PyTorch names of the requested devices if ``gpus`` GPUs are visible.

    None and ``"auto"`` mean every GPU, or else the CPU; ``"gpu"`` and ``"cuda"`` every GPU, and ``"gpu:0,2"`` some. Any
    other value is returned as it is.
    """
    if requested is None or requested == "auto":
        return _device_names(range(gpus)) or ("cpu",)
    if requested in ("gpu", "cuda"):
        _require_gpu(requested, gpus)
        return _device_names(range(gpus))
    if not requested.startswith(("gpu", "cuda")):
        return (requested,)
    match = _GPU_NUMBERS.fullmatch(requested)
    numbers = [] if match is None else [int(number) for number in match[1].split(",")]
    if not numbers or len(set(numbers)) < len(numbers):
        raise ConfigError(f"device is {requested!r}: expected distinct GPU numbers, as in 'gpu:0' or 'gpu:0,2'")
    _require_gpu(requested, gpus)
    absent = [number for number in numbers if number >= gpus]
    if absent:
        raise GpuError(
            f"device is {requested!r}, but there is no GPU {absent[0]}: choose among "
            f"{', '.join(map(str, range(gpus)))}, the visible GPUs"
        )
    return _device_names(numbers)


def _require_gpu(requested: str, gpus: int) -> None:
    """Raise :class:`GpuError` if no GPU is visible."""
    if not gpus:
        raise GpuError(
            f"device is {requested!r}, but PyTorch sees no GPU: check the driver, CUDA_VISIBLE_DEVICES and the build "
            "of PyTorch, or choose 'auto' or 'cpu'"
        )


def _device_names(numbers: range | list[int]) -> tuple[str, ...]:
    """Return the PyTorch names of GPUs."""
    return tuple(f"cuda:{number}" for number in numbers)

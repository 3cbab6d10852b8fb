"""Which devices a model runs on: what is asked for, against the GPUs that are visible."""

from __future__ import annotations

import re

from ragembed.errors import ConfigError, GpuError

_GPU_NUMBERS = re.compile(r"(?:gpu|cuda):([0-9]+(?:,[0-9]+)*)")


def choose_devices(asked: str | None, gpus: int) -> tuple[str, ...]:
    """Return PyTorch's names of the devices that ``asked`` means where ``gpus`` GPUs are visible.

    None and ``"auto"`` mean every visible GPU, and the CPU where there is none; ``"gpu"`` means every visible GPU,
    ``"gpu:0"`` and ``"gpu:0,2"`` mean those. ``"cuda"`` may stand for ``"gpu"``. Anything else is taken for a name of
    PyTorch's and returned as it is.

    Raises :class:`ConfigError` where numbers cannot be read or repeat, :class:`GpuError` where a GPU is not visible.
    """
    if asked is None or asked == "auto":
        return _named(range(gpus)) or ("cpu",)
    if asked in ("gpu", "cuda"):
        _require_gpu(asked, gpus)
        return _named(range(gpus))
    if not asked.startswith(("gpu", "cuda")):
        return (asked,)
    found = _GPU_NUMBERS.fullmatch(asked)
    numbers = [] if found is None else [int(number) for number in found[1].split(",")]
    if not numbers or len(set(numbers)) < len(numbers):
        raise ConfigError(f"device is {asked!r}: expected different numbers of GPUs, as in 'gpu:0' or 'gpu:0,2'")
    _require_gpu(asked, gpus)
    absent = [number for number in numbers if number >= gpus]
    if absent:
        raise GpuError(
            f"device is {asked!r}, but there is no GPU {absent[0]}: choose among {', '.join(map(str, range(gpus)))}, "
            "the GPUs that are visible"
        )
    return _named(numbers)


def _require_gpu(asked: str, gpus: int) -> None:
    if not gpus:
        raise GpuError(
            f"device is {asked!r}, but PyTorch sees no GPU: check its driver, CUDA_VISIBLE_DEVICES and that PyTorch is "
            "built for it, or choose 'auto' or 'cpu'"
        )


def _named(numbers: range | list[int]) -> tuple[str, ...]:
    return tuple(f"cuda:{number}" for number in numbers)

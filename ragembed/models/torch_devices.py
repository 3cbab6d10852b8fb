"""The devices that PyTorch sees, and the arithmetic that is fast on them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ragembed.errors import ConfigError, GpuError
from ragembed.models.devices import choose_devices


def find_devices(asked: str | None) -> tuple[str, ...]:
    """Return PyTorch's names of the devices that ``asked`` means; see :func:`ragembed.models.devices.choose_devices`.

    Raises :class:`ConfigError` where PyTorch knows no such device, :class:`GpuError` where it is not there.
    """
    names = choose_devices(asked, torch.cuda.device_count() if torch.cuda.is_available() else 0)
    for name in names:
        try:
            kind = torch.device(name).type
        except RuntimeError as error:
            raise ConfigError(
                f"device is {asked!r}: expected 'auto', 'cpu', 'gpu', numbers of GPUs as in 'gpu:0,2', or a name of "
                "PyTorch's such as 'mps'"
            ) from error
        if kind not in ("cpu", "cuda"):
            _require_device(name)
    return names


def fast_dtype(devices: Sequence[str]) -> str:
    """Return ``"bfloat16"`` where each of ``devices`` multiplies it in hardware, else ``"float32"``.

    On a CPU that takes AMX or AVX512-BF16, on a GPU of NVIDIA's compute capability 8.0: without them bfloat16 is slower
    than float32.
    """
    return "bfloat16" if all(_multiplies_bfloat16(torch.device(name)) for name in devices) else "float32"


def _require_device(name: str) -> None:
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError, ImportError) as error:  # each kind of device has its own
        raise GpuError(f"device is {name!r}, but PyTorch cannot use it here: choose 'auto' or 'cpu'") from error


def _multiplies_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cpu":
        return _cpu_reports("_is_amx_tile_supported") or _cpu_reports("_is_avx512_bf16_supported")
    return False


def _cpu_reports(name: str) -> bool:
    probe = getattr(torch.cpu, name, None)
    return bool(probe is not None and probe())

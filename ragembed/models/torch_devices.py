"""The devices that PyTorch can use, and the fast arithmetic on them."""

from __future__ import annotations

from collections.abc import Sequence

from ragembed.errors import ConfigError, GpuError
from ragembed.extras import without_collection
from ragembed.models.devices import choose_devices
from ragembed.resources import require_room

require_room("PyTorch")
with without_collection():
    import torch


def find_devices(requested: str | None) -> tuple[str, ...]:
    """Return the PyTorch names of the requested devices; see :func:`ragembed.models.devices.choose_devices`.

    Raises :class:`ConfigError` if PyTorch does not know the device, and :class:`GpuError` if the device is not
    available.
    """
    names = choose_devices(requested, torch.cuda.device_count() if torch.cuda.is_available() else 0)
    for name in names:
        try:
            kind = torch.device(name).type
        except RuntimeError as error:
            raise ConfigError(
                f"device is {requested!r}: expected 'auto', 'cpu', 'gpu', GPU numbers as in 'gpu:0,2', or the name of "
                "a PyTorch device such as 'mps'"
            ) from error
        if kind not in ("cpu", "cuda"):
            _require_device(name)
    return names


def fast_dtype(devices: Sequence[str]) -> str:
    """Return ``"bfloat16"`` if every device multiplies it in hardware, otherwise ``"float32"``.

    A CPU needs AMX or AVX512-BF16, an NVIDIA GPU compute capability 8.0. Without them, bfloat16 is slower than float32.
    """
    return "bfloat16" if all(_multiplies_bfloat16(torch.device(name)) for name in devices) else "float32"


def _require_device(name: str) -> None:
    """Raise :class:`GpuError` if PyTorch cannot allocate on the device."""
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError, ImportError) as error:  # the type depends on the kind of device
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

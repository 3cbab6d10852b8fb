"""The matrix-product limit: PyTorch multiplies two large squares, in the arithmetic that ragembed takes here."""

from __future__ import annotations

from typing import Any

import torch
from waiting import Told, Turn, main

from ragembed.backbones.torch_devices import fast_dtype

_PRODUCTS = 3


def make(request: dict[str, Any]) -> tuple[Turn, Told]:
    """Return a turn of some products of squares of ``size``."""
    size, name = request["size"], fast_dtype(("cpu",))
    dtype = getattr(torch, name)
    left, right = (torch.randn(size, size).to(dtype) for _ in range(2))

    def turn(number: int) -> None:
        del number
        with torch.inference_mode():
            for _ in range(_PRODUCTS):
                torch.mm(left, right)

    return turn, {"dtype": name, "operations": _PRODUCTS * 2 * size**3}


if __name__ == "__main__":
    main(make)

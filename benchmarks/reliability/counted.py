"""The program ``ragembed``; where there is ``$ENCODED``, it writes the number of texts of each batch into that file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragembed.cli import main
from ragembed.indexes.backend import RunEncoder

Floats = NDArray[np.float32]

_encode = RunEncoder.__call__


def _counted(encoder: RunEncoder, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:
    with Path(os.environ["ENCODED"]).open("a") as file:
        file.write(f"{len(texts)}\n")
    vectors: Floats = _encode(encoder, texts, progress)
    return vectors


if __name__ == "__main__":
    if "ENCODED" in os.environ:
        RunEncoder.__call__ = _counted
    main(prog_name="ragembed")

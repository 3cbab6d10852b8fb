"""Read and write a fitted embedder: ``config.json`` and ``state.safetensors``, with hashes and without pickle."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ModelError
from ragembed.files import FileTooLargeError, NotRegularFileError, file_sha256, make_folders, read_regular, replace_file
from ragembed.tensor_map import map_tensors
from ragembed.version import __version__, upgrade_command

FORMAT = 2
CONFIG, STATE = "config.json", "state.safetensors"
_MOST_BYTES = 16 << 20
"""Size above which a file is not the configuration of an embedder."""
_COUNTS = ("texts", "documents", "pseudo_queries")


def write(folder: Path, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write both files atomically; ``config.json`` comes last, because it holds the hash of ``state.safetensors``."""
    _check_folder(folder)
    from safetensors.numpy import save

    state = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    text = json.dumps(
        {"format": FORMAT, "ragembed": __version__, "state_sha256": hashlib.sha256(state).hexdigest(), **about},
        indent=2,
    )
    make_folders(folder)
    replace_file(folder / STATE, state)
    replace_file(folder / CONFIG, text.encode())


def _check_folder(folder: Path) -> None:
    """Raise :class:`ModelError` if ``folder`` is a file, or holds another program's file of either name."""
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"{folder} is a file: expected a folder for the embedder")
    for file in (folder / CONFIG, folder / STATE):
        if os.path.lexists(file) and not _is_embedder_config(folder / CONFIG):
            raise ModelError(f"{file} is not part of a saved embedder: choose another folder for the embedder")


def _is_embedder_config(file: Path) -> bool:
    try:
        config = json.loads(read_regular(file, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and "state_sha256" in config


def read(folder: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read both files; the arrays are read-only views of the mapped ``state.safetensors``."""
    try:
        about: dict[str, Any] = json.loads(read_regular(folder / CONFIG, _MOST_BYTES))
        digest = file_sha256(folder / STATE)
    except FileNotFoundError as error:
        raise ModelError(
            f"{folder} holds no saved embedder: {Path(error.filename).name} is missing; give the folder that "
            "Embedder.save wrote"
        ) from error
    except NotRegularFileError as error:
        raise ModelError(f"{error.filename} is not a regular file: fit and save the embedder again") from error
    except (FileTooLargeError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(f"{folder / CONFIG} is damaged ({reason}): fit and save the embedder again") from error
    if not isinstance(about, dict):
        raise ModelError(f"{folder / CONFIG} is damaged: expected a JSON object; fit and save the embedder again")
    if (version := about.get("format")) != FORMAT:
        older = isinstance(version, int) and version < FORMAT
        remedy = "fit it again, or index into a new store" if older else f"upgrade with: {upgrade_command()}"
        raise ModelError(
            f"the embedder in {folder} has format {version!r}, but this ragembed reads format {FORMAT}: {remedy}"
        )
    _check(about, folder)
    if digest != about["state_sha256"]:
        raise ModelError(
            f"{folder / STATE} is not the file that was saved: its sha256 differs from the one in {CONFIG}; "
            "fit and save the embedder again"
        )
    return about, dict(map_tensors(folder / STATE))


def _check(about: Mapping[str, Any], folder: Path) -> None:
    """Raise :class:`ModelError` unless ``about`` has every field that :func:`write` stores, with the right type."""
    fitted_on = about.get("fitted_on")
    counts = fitted_on if isinstance(fitted_on, dict) else {}
    is_right = {
        **{name: isinstance(about.get(name), str) for name in ("state_sha256", "source_sha256", "fingerprint")},
        "config": isinstance(about.get("config"), dict),
        **{f"fitted_on.{name}": isinstance(counts.get(name), int) for name in _COUNTS},
    }
    wrong = [name for name, right in is_right.items() if not right]
    if wrong:
        raise ModelError(
            f"{folder / CONFIG} is damaged: {wrong[0]} is missing or has the wrong type; "
            "fit and save the embedder again"
        )

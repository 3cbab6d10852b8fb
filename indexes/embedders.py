"""The embedder that a store brings along: a folder of files whose hashes the database holds."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragembed.config import EmbedderConfig
from ragembed.embedder import Embedder
from ragembed.errors import ModelError, StoreDamagedError
from ragembed.hashing import file_sha256, read_sha256
from ragembed.indexes.baseline import is_baseline
from ragembed.indexes.folders import publish, temporary_folder
from ragembed.indexes.layout import EMBEDDERS
from ragembed.indexes.records import VectorEncoder

MODEL_VARIABLE = "RAGEMBED_MODEL"


def save_embedder(store: Path, embedder: VectorEncoder) -> dict[str, Any]:
    """Write the embedder's files under its fingerprint, whole or not at all; returns what the database keeps of it."""
    final = store / EMBEDDERS / embedder.fingerprint
    if not final.exists():
        temporary = temporary_folder(final)
        embedder.save(str(temporary))
        publish(temporary, final)
    return embedder_record(store, embedder, final)


def embedder_record(store: Path, embedder: VectorEncoder, folder: Path) -> dict[str, Any]:
    """Return what the database keeps of an embedder whose files are in ``folder``."""
    about = embedder.describe()
    return {
        **about,
        "fingerprint": embedder.fingerprint,
        "raw_fingerprint": embedder.raw_fingerprint,
        "files": file_hashes(folder),
        "model_beside": _relative_model(store, about["model"]),
    }


def file_hashes(folder: Path) -> dict[str, str]:
    """Return the sha256 of each file of an embedder, by name."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and not is_baseline(file.name))
    return {file.name: read_sha256(file) for file in files}


def load_embedder(store: Path, record: Mapping[str, Any], device: str | None = None) -> Embedder:
    """Load the embedder that ``record`` names from its files, on a device as :class:`ragembed.Embedder` takes it.

    Its model is looked for where it was when the store was made, then at the same place relative to the store, then
    where ``$RAGEMBED_MODEL`` says. Raises :class:`StoreDamagedError` naming the file that is not what was committed,
    :class:`FileNotFoundError` for one that is not there, :class:`ModelError` where the model is not found or another.
    """
    folder = store / EMBEDDERS / record["fingerprint"]
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, "No such folder", str(folder))
    for name, expected in record.get("files", {}).items():
        if (found := file_sha256(folder / name)) != expected:
            raise StoreDamagedError(
                f"{folder / name} is not the file that was committed (sha256 {found[:12]}…, expected {expected[:12]}…):"
                " rebuild it with: ragembed verify --repair"
            )
    return Embedder.load(folder, device=device, model=_moved_model(store, record))


def unfitted_embedder(store: Path, record: Mapping[str, Any]) -> Embedder:
    """Return an embedder with the configuration in ``record`` that is yet to be fitted; no model is downloaded for it.

    Raises :class:`ModelError` where its model is not found, :class:`ConfigError` for no configuration of ours.
    """
    config = EmbedderConfig.from_dict(record["config"])
    moved = _moved_model(store, record)
    return Embedder(config if moved is None else config.replace(model=moved), download=False)


def _relative_model(store: Path, model: str) -> str | None:
    """Return the path of a model from the folder that holds the store; None for a model that is no path."""
    if not Path(model).is_absolute():
        return None
    try:
        return Path(os.path.relpath(model, store.absolute().parent)).as_posix()
    except ValueError:
        return None  # on another drive


def _moved_model(store: Path, record: Mapping[str, Any]) -> str | None:
    """Return where the model is now, None for where it was when the store was made."""
    if not Path(record["model"]).is_absolute() or Path(record["model"]).exists():
        return None
    if (beside := record.get("model_beside")) is not None:
        path = Path(os.path.abspath(store.absolute().parent / beside))  # noqa: PTH100  resolve() would follow links
        if path.exists():
            return str(path)
    if (named := os.environ.get(MODEL_VARIABLE)) is None:
        raise ModelError(
            f"the model {record['model']} of the store {store} is not there: move it back, or say where it is with "
            f"{MODEL_VARIABLE}=PATH"
        )
    return named

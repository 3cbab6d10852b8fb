"""The embedder that a store brings along: a folder of files whose hashes the database holds."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ragembed import embedder_files
from ragembed.config.settings import EmbedderConfig
from ragembed.embedder import Embedder
from ragembed.errors import IncompatibleStoreError, ModelError
from ragembed.hashing import read_sha256
from ragembed.indexes.storage.baseline import is_baseline
from ragembed.indexes.storage.folders import publish, require_committed, temporary_folder
from ragembed.indexes.storage.layout import EMBEDDERS
from ragembed.indexes.types import VectorEncoder
from ragembed.postprocess.chain import Chain
from ragembed.types import Floats

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
    folder = _checked_folder(store, record)
    return Embedder.load(folder, device=device, model=_moved_model(store, record))


def load_postprocessing(store: Path, record: Mapping[str, Any]) -> Callable[[Floats], Floats]:
    """Return what maps raw document vectors to vectors, from the files of the embedder that ``record`` names; no model.

    Raises as :func:`load_embedder` does, and :class:`IncompatibleStoreError` for an embedder that is not ragembed's own
    and does not leave raw vectors as they are.
    """
    if record["kind"] != "ragembed":
        if record["fingerprint"] != record["raw_fingerprint"]:
            raise IncompatibleStoreError(
                f"the vectors of {store} are post-processed by {record['model']}, which is not stored in it: search it "
                "in the process that brings it along, with engine='local'"
            )
        return lambda raw: raw
    about, arrays = embedder_files.read(_checked_folder(store, record))
    prefix = "chain.documents."
    state = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    return Chain(EmbedderConfig.from_dict(about["config"]).postprocess).restore(state).transform


def _checked_folder(store: Path, record: Mapping[str, Any]) -> Path:
    """Return the folder of the embedder's files, each of which has the hash that ``record`` names."""
    folder = store / EMBEDDERS / str(record["fingerprint"])
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, "No such folder", str(folder))
    for name, expected in record.get("files", {}).items():
        require_committed(folder / name, expected)
    return folder


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

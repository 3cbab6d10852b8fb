"""The embedder that a store contains, and the pseudo-queries that it was fitted on."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed import embedder_files
from ragembed.config.settings import EmbedderConfig
from ragembed.config.settings_files import confirm_model, is_confirmed
from ragembed.config.specs import parse_server
from ragembed.corpus import PseudoQueries
from ragembed.embedder import Embedder, require_trust
from ragembed.errors import ConfigError, ModelError, StoreDamagedError
from ragembed.extractors.build import is_external
from ragembed.extractors.external import VectorSource
from ragembed.extractors.protocol import saved_array
from ragembed.files import publish, read_sha256, write_file
from ragembed.indexes.storage import catalog, derived
from ragembed.indexes.storage.derived import DerivedFile
from ragembed.indexes.storage.folders import require_committed, temporary_folder
from ragembed.indexes.storage.layout import EMBEDDERS
from ragembed.indexes.types import VectorEncoder
from ragembed.tensor_map import map_tensors


def query_arrays(queries: PseudoQueries) -> dict[str, NDArray[Any]]:
    """Return arrays from which :func:`queries_of` makes the pseudo-queries again."""
    # Pseudo-queries consist of words from str.split(), so they contain no newline.
    text = "\n".join(queries.texts).encode("utf-8", "replace")
    return {"texts": np.frombuffer(text, dtype=np.uint8), "raw": np.ascontiguousarray(queries.raw)}


def queries_of(arrays: Mapping[str, NDArray[Any]]) -> PseudoQueries:
    """Return the pseudo-queries that :func:`query_arrays` has saved."""
    texts = tuple(arrays["texts"].tobytes().decode("utf-8").split("\n"))
    return PseudoQueries(texts, saved_array(arrays, "raw", np.float32, (len(texts), arrays["raw"].shape[-1])))


def read_queries(file: Path) -> PseudoQueries:
    """Read a file of :func:`save_queries`; raise :class:`StoreDamagedError` if it is invalid."""
    try:
        return queries_of(map_tensors(file))
    except (ModelError, KeyError, ValueError, IndexError) as error:
        raise StoreDamagedError(f"{file} is damaged: {error}") from error


def save_queries(file: Path, queries: PseudoQueries) -> None:
    """Write the pseudo-queries to ``file``."""
    from safetensors.numpy import save

    write_file(file, save(query_arrays(queries)))


def joined(queries: Iterable[PseudoQueries | None]) -> PseudoQueries | None:
    """Return the pseudo-queries of several stores, or None if no store has any."""
    some = [query for query in queries if query is not None]
    if not some:
        return None
    return PseudoQueries(
        tuple(text for of_store in some for text in of_store.texts), np.concatenate([of_store.raw for of_store in some])
    )


def load_queries(store: Path, connection: sqlite3.Connection) -> PseudoQueries | None:
    """Return the pseudo-queries of the store's fit, or None; raise as :func:`derived.read_derived` does."""
    for record in derived.records(connection, QUERIES.name):
        return derived.read_derived(store, QUERIES, record)
    return None


QUERIES = DerivedFile(derived.QUERIES, read_queries, derived.only)


MODEL_VARIABLE = "RAGEMBED_MODEL"


def save_embedder(store: Path, embedder: VectorEncoder) -> dict[str, Any]:
    """Write the embedder's files, atomically, into a folder named by its fingerprint; return the database record."""
    final = store / EMBEDDERS / embedder.fingerprint
    own = embedder.refittable
    if own is not None and (name := _chosen_model(own.config.model)) is not None:
        confirm_model(name)
    if not final.exists():
        temporary = temporary_folder(final)
        embedder.save(str(temporary))
        publish(temporary, final)
    return embedder_record(store, embedder, final)


def embedder_record(store: Path, embedder: VectorEncoder, folder: Path) -> dict[str, Any]:
    """Return the database record of an embedder whose files are in ``folder``."""
    about = embedder.describe()
    return {
        **about,
        "fingerprint": embedder.fingerprint,
        "raw_fingerprint": embedder.raw_fingerprint,
        "files": {file.name: read_sha256(file) for file in sorted(folder.iterdir()) if file.is_file()},
        "model_beside": _relative_model(store, about["model"]),
    }


def named_embedder(embedder: VectorEncoder | Mapping[str, Any]) -> str:
    """Return the model of an embedder, or of its database record, and the beginning of its fingerprint."""
    if isinstance(embedder, Mapping):
        return f"{embedder['model']} ({embedder['fingerprint'][:12]})"
    return f"{embedder.describe()['model']} ({embedder.fingerprint[:12]})"


def described_embedder(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return the database record of the current embedder, with the settings that an own one has."""
    record = catalog.embedder(connection)
    if record["kind"] != "ragembed":
        return record
    try:
        config, fitted_on = EmbedderConfig.from_dict(record["config"]), record["fitted_on"]
        counts = [fitted_on[name] for name in ("texts", "documents", "pseudo_queries")]
    except (ConfigError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreDamagedError(f"the store's database does not describe its embedder: {error}") from error
    if not all(type(count) is int for count in counts):
        raise StoreDamagedError(f"the store's database says that its embedder was fitted on {str(fitted_on)[:80]}")
    return {**record, "config": config.to_dict()}


def load_embedder(
    store: Path, record: Mapping[str, Any], device: str | None = None, source: VectorSource | None = None
) -> Embedder:
    """Load the embedder that ``record`` names; ``device`` and ``source`` are as in :class:`ragembed.Embedder`.

    The model is looked for at its original path, then at the same path relative to the store, then at
    ``$RAGEMBED_MODEL``. Raises :class:`StoreDamagedError` if a file does not have its committed content,
    :class:`FileNotFoundError` if a file is missing, and :class:`ModelError` if the model is missing or is a different
    one, or if it is a folder, a file or a server that the user has not named before.
    """
    folder = store / EMBEDDERS / str(record["fingerprint"])
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    if record["kind"] == "ragembed" and not {embedder_files.CONFIG, embedder_files.STATE} <= record["files"].keys():
        raise StoreDamagedError(
            f"the store's database names the files {', '.join(record['files'])} of the embedder: expected "
            f"{embedder_files.CONFIG} and {embedder_files.STATE}; delete the store and index again"
        )
    for name, expected in record["files"].items():
        require_committed(folder / name, expected, store)
    moved = _moved_model(store, record)
    try:
        if source is None:
            about, _ = embedder_files.read(folder)
            _require_confirmed(store, moved or str(about["config"].get("model")))
        return Embedder.load(folder, device=device, model=moved, source=source)
    except ModelError:
        for name in record["files"]:  # a writer may have removed them after they were compared
            (folder / name).stat()
        raise


def unfitted_embedder(store: Path, record: Mapping[str, Any]) -> Embedder:
    """Return an unfitted embedder as in ``record``, without a download; raises ModelError and ConfigError."""
    config = EmbedderConfig.from_dict(record["config"])
    require_trust(config)
    moved = _moved_model(store, record)
    _require_confirmed(store, moved or config.model)
    return Embedder(config if moved is None else config.replace(model=moved), download=False)


def _chosen_model(model: str) -> str | None:
    """Return the full name of a model that is a path or a server; None if it can only be an installed or cached one."""
    if parse_server(model) is not None:
        return model
    return str(Path(model).absolute()) if os.path.lexists(model) else None


def _require_confirmed(store: Path, model: str) -> None:
    """Raise :class:`ModelError` if ``model`` is a path or a server that the user has not named before."""
    name = _chosen_model(model)
    if name is None or is_confirmed(name):
        return
    if name != _chosen_model(os.environ.get(MODEL_VARIABLE, "")):
        raise ModelError(
            f"the store {store} uses the model {name}, which you have not used before: a store from somebody else can "
            f"name any folder or server; set {MODEL_VARIABLE}={name} once if you trust it"
        )
    confirm_model(name)


def _relative_model(store: Path, model: str) -> str | None:
    """Return the path of a model relative to the folder that holds the store, or None if the model is not a path."""
    if not Path(model).is_absolute():
        return None
    try:
        return Path(os.path.relpath(model, store.absolute().parent)).as_posix()
    except ValueError:
        return None  # The model is on another drive.


def _moved_model(store: Path, record: Mapping[str, Any]) -> str | None:
    """Return the new path or server of the model, or None if it is where it was when the store was created."""
    named = os.environ.get(MODEL_VARIABLE)
    if is_external(record["model"]):
        return named if named is not None and is_external(named) else None
    if not Path(record["model"]).is_absolute() or Path(record["model"]).exists():
        return None
    if (beside := record.get("model_beside")) is not None:
        path = Path(os.path.abspath(store.absolute().parent / beside))  # noqa: PTH100  resolve() would follow symbolic links
        if path.exists():
            return str(path)
    if named is None:
        raise ModelError(
            f"the model {record['model']} of the store {store} does not exist: move it back, or set "
            f"{MODEL_VARIABLE} to its new path"
        )
    return named

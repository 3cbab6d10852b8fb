"""A folder of langchain-community's FAISS store: ``index.faiss``, the vectors, and ``index.pkl``, the documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ragembed.errors import ConfigError, StoreDamagedError, StoreNotFoundError
from ragembed.files import make_folders
from ragembed.indexes.ann.foreign import Metric, read_vectors, write_flat
from ragembed.indexes.ann.vectors import Floats
from ragembed.langchain.community.documents import PickledDocument
from ragembed.langchain.community.pickling import write_docstore
from ragembed.langchain.community.unpickling import read_docstore

_VECTORS, _DOCUMENTS = ".faiss", ".pkl"


@dataclass(frozen=True)
class CommunityStore:
    """What a folder holds: documents in order of position, their vectors, float32, shape ``(n, d)``, and the metric.

    ``dropped`` counts what is left out: vectors that lead to no document, or to one that an earlier vector led to, and
    documents without a vector. An addition that langchain-community refuses leaves its vectors behind, and those of
    later additions are then taken for each other: where ``dropped`` is not 0, only the texts are to be relied on.
    """

    documents: list[PickledDocument]
    vectors: Floats
    metric: Metric
    dropped: int

    @property
    def ids(self) -> list[str]:
        """The ids of the documents, in the same order."""
        return [document.id for document in self.documents]


def is_folder(folder: Path, index_name: str = "index") -> bool:
    """Return whether ``folder`` has a file of such a store; :func:`read_folder` tells where the other is missing."""
    return any(file.is_file() for file in _files(folder, index_name))


def read_folder(folder: Path, index_name: str = "index") -> CommunityStore:
    """Read what langchain-community's ``save_local`` wrote; nothing in it is executed.

    See :func:`read_docstore` for what becomes of ids and metadata, :func:`read_vectors` for the vectors: these are not
    scaled to unit length.

    Raises
    ------
    StoreNotFoundError
        Where a file is missing.
    StoreDamagedError
        Where a file is broken, or the two are not from one store.
    StoreError, ConfigError
        Where the documents, or the kind of index, have what cannot be read.
    """
    vectors_file, documents_file = _files(folder, index_name)
    for file in (vectors_file, documents_file):
        if not file.is_file():
            raise StoreNotFoundError(f"there is no {file.name} in {folder}: {_others(folder)}")
    found, id_at = read_docstore(documents_file)
    vectors, metric = read_vectors(vectors_file)
    beyond = [position for position in id_at if position >= len(vectors)]
    if beyond:
        raise StoreDamagedError(
            f"{documents_file} has a document at position {min(beyond)}, {vectors_file} {len(vectors)} vectors: they "
            "are not from one save; save the store again"
        )
    remaining = dict(found)
    positions, documents = [], []
    for position in sorted(id_at):
        if (document := remaining.pop(id_at[position], None)) is not None:
            positions.append(position)
            documents.append(document)
    dropped = len(vectors) - len(positions) + len(remaining)
    kept = vectors if len(positions) == len(vectors) else vectors[positions]
    return CommunityStore(documents, kept, metric, dropped)


def write_folder(folder: Path, index_name: str, documents: Sequence[PickledDocument], vectors: Floats) -> None:
    """Write what langchain-community's ``load_local`` reads with ``allow_dangerous_deserialization=True``.

    ``vectors``, unit vectors of shape ``(n, d)``, go with ``documents`` in this order. The index compares by L2
    distance, which ranks unit vectors as the cosine does and is what ``load_local`` expects where nothing else is said.
    Each of the files is written whole or not at all, in the place of an earlier one.

    Raises :class:`ConfigError` where there is not one vector for each document, an id is there twice, or metadata are
    no JSON values.
    """
    if vectors.ndim != 2 or len(vectors) != len(documents) or vectors.shape[1] == 0:
        raise ConfigError(
            f"got vectors of shape {vectors.shape} for {len(documents)} documents: expected one vector for each, with "
            "at least one dimension"
        )
    seen: set[str] = set()
    for document in documents:
        if document.id in seen:
            raise ConfigError(f"the id {document.id[:80]!r} is there twice: expected another for each document")
        seen.add(document.id)
    make_folders(folder)
    vectors_file, documents_file = _files(folder, index_name)
    write_docstore(documents_file, documents)
    write_flat(vectors, vectors_file, "l2")


def _files(folder: Path, index_name: str) -> tuple[Path, Path]:
    return folder / f"{index_name}{_VECTORS}", folder / f"{index_name}{_DOCUMENTS}"


def _others(folder: Path) -> str:
    names = sorted(file.stem for file in folder.glob(f"*{_VECTORS}") if file.with_suffix(_DOCUMENTS).is_file())
    if not names:
        return "expected both files that langchain-community's save_local writes"
    return f"it has {', '.join(map(repr, names))}: give one of these as index_name"

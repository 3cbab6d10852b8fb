"""Stored token vectors for late interaction: immutable files that the database names under ``token_vectors``.

Each file is in a folder of its own. It holds the sign bits of the token vectors of some vector rows: ``rows``, int64,
ascending, shape ``(n,)``; ``ends``, int64, shape ``(n,)``, the position after the last token of each row; and ``bits``,
uint8, shape ``(tokens, ceil(d / 8))``. A store without the JSON value keeps no token vectors.
"""

from __future__ import annotations

import sqlite3
import threading
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, ModelError, StoreDamagedError
from ragembed.extractors.protocol import saved_array
from ragembed.extractors.transformer import TransformerExtractor
from ragembed.files import publish, write_file
from ragembed.hashing import read_sha256
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.folders import require_committed, require_name, temporary_folder
from ragembed.indexes.storage.layout import SIGNS, TOKENS
from ragembed.indexes.types import Rows, VectorEncoder
from ragembed.late_interaction import TokenBits
from ragembed.tensor_map import map_tensors

KEY = "token_vectors"

_FIELDS = {"folder", "sha256"}


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file of token vectors, as the database names it."""

    folder: str
    sha256: str

    def path(self, store: Path) -> Path:
        """Return the path of the file."""
        return store / TOKENS / self.folder / SIGNS


def token_files(connection: sqlite3.Connection) -> list[TokenFile] | None:
    """Return the files that the database names, or None if the store keeps no token vectors."""
    return catalog.parsed_meta(connection, KEY, read_token_files)


def read_token_files(value: Any) -> list[TokenFile]:
    """Return the files that a JSON value names; raise :class:`ConfigError` if it names none."""
    files: list[Any] = value if isinstance(value, list) else [None]
    if not all(isinstance(file, dict) and file.keys() == _FIELDS for file in files):
        raise ConfigError(f"expected a list of objects with {', '.join(sorted(_FIELDS))}")
    for file in files:
        require_name("token vectors", str(file["folder"]))
    return [TokenFile(str(file["folder"]), str(file["sha256"])) for file in files]


def name_token_files(connection: sqlite3.Connection, files: Sequence[TokenFile] | None) -> None:
    """Store the names of the files, or None to keep no token vectors, within the caller's transaction."""
    catalog.set_meta(connection, KEY, None if files is None else [asdict(file) for file in files])


def write_tokens(store: Path, rows: Rows, tokens: TokenBits) -> TokenFile:
    """Write the token vectors of ``rows``, ascending, to a new file."""
    from safetensors.numpy import save

    final = store / TOKENS / str(uuid.uuid4())
    temporary = temporary_folder(final)
    arrays = {"rows": rows, "ends": np.cumsum(tokens.counts), "bits": tokens.bits}
    write_file(temporary / SIGNS, save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))
    sha256 = read_sha256(temporary / SIGNS)
    publish(temporary, final)
    return TokenFile(final.name, sha256)


@dataclass(frozen=True, slots=True, eq=False)
class TokenBlock:
    """The contents of a file, memory-mapped."""

    rows: Rows
    ends: NDArray[np.int64]
    bits: NDArray[np.uint8]

    def of(self, position: int) -> NDArray[np.uint8]:
        """Return the bits of the tokens of the row at ``position``, shape ``(tokens, ceil(d / 8))``."""
        start = int(self.ends[position - 1]) if position else 0
        return self.bits[start : int(self.ends[position])]


def open_tokens(store: Path, file: TokenFile) -> TokenBlock:
    """Open a file.

    Raises :class:`StoreDamagedError` if it does not have its committed content, and :class:`FileNotFoundError` if it is
    missing.
    """
    path = file.path(store)
    require_committed(path, file.sha256, "remove it with 'ragembed verify --repair'")
    try:
        arrays = map_tensors(path)
        count, shape = arrays["rows"].size, arrays["bits"].shape
        rows = saved_array(arrays, "rows", np.int64, (count,))
        ends = saved_array(arrays, "ends", np.int64, (count,))
        bits = saved_array(arrays, "bits", np.uint8, (int(ends[-1]), shape[1]))
    except (ModelError, KeyError, ValueError, IndexError) as error:
        raise StoreDamagedError(f"{path} is damaged: {error}") from error
    if (np.diff(rows) <= 0).any() or ends[0] < 0 or (np.diff(ends) < 0).any():
        raise StoreDamagedError(f"{path} is damaged: expected ascending rows and positions")
    return TokenBlock(rows, ends, bits)


def contextual_extractor(embedder: VectorEncoder) -> TransformerExtractor:
    """Return the extractor that makes token vectors; raise :class:`ConfigError` if the embedder has none."""
    extractor = embedder.extractor if isinstance(embedder, Embedder) else None
    if not isinstance(extractor, TransformerExtractor):
        name = embedder.config.extractor if isinstance(embedder, Embedder) else embedder.describe()["model"]
        raise ConfigError(
            f"no token vectors with {name!r}: expected a model that reads tokens in context, which the extractor "
            "'transformer' uses; leave out --token-vectors"
        )
    return extractor


class StoredTokens:
    """The token vectors of a generation."""

    def __init__(self, blocks: Sequence[TokenBlock]) -> None:
        self._blocks = blocks

    def of(self, rows: Sequence[int], dim: int) -> list[NDArray[np.uint8]]:
        """Return the bits of the tokens of each of ``rows``, without tokens if a row has none in the store.

        Raises :class:`StoreDamagedError` if they are not of vectors of dimension ``dim``.
        """
        for block in self._blocks:
            if block.bits.shape[1] != -(-dim // 8):
                raise StoreDamagedError(
                    f"the token vectors have {block.bits.shape[1]} bytes: expected {-(-dim // 8)} for dimension {dim}; "
                    "make them again with 'ragembed optimize --token-vectors'"
                )
        wanted = np.array(rows, dtype=np.int64)
        found = [np.zeros((0, 0), dtype=np.uint8) for _ in rows]
        for block in self._blocks:
            if not len(wanted) or block.rows[-1] < wanted.min() or block.rows[0] > wanted.max():
                continue
            at = np.minimum(np.searchsorted(block.rows, wanted), len(block.rows) - 1)
            for i in np.flatnonzero(block.rows[at] == wanted).tolist():
                found[i] = block.of(int(at[i]))
        return found


class OpenTokens:
    """Opens the token vectors of the store at ``path``. Threads may share an instance."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Release the mapped files."""
        with self._lock:
            self._generation: object = -1
            self._blocks: dict[TokenFile, TokenBlock] = {}
            self._tokens: StoredTokens | None = None

    def of(self, connection: sqlite3.Connection, generation: object) -> StoredTokens | None:
        """Return the token vectors of ``generation``, which ``connection`` sees, or None if the store has none."""
        with self._lock:
            if generation != self._generation:
                files = token_files(connection) or []
                self._blocks = {file: self._blocks.get(file) or open_tokens(self._path, file) for file in files}
                self._tokens = StoredTokens(list(self._blocks.values())) if files else None
                self._generation = generation
            return self._tokens

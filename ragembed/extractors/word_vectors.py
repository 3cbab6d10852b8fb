"""Vectors of whole words from a file, parsed once and memory-mapped afterwards.

Source: Stankevičius & Lukoševičius 2024, section 3.2.4 (B2S, GloVe, word2vec). Parsing a GloVe file of 400,000 words
takes many seconds; mapping takes none. The first use of a file writes a safetensors file to the user's cache folder
(``$XDG_CACHE_HOME/ragembed/vectors``). Its name contains the hashes of the source and of its own content, so that
another source or a damaged copy is never used.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ragembed.errors import ModelError
from ragembed.extractors.word_vector_files import word_blocks
from ragembed.files import cache_folder, file_sha256, read_sha256
from ragembed.tensor_map import map_tensors
from ragembed.types import Floats

_FORMAT = "1"
_DATA_START = 512  # the header has a fixed length, because its numbers are known only after the data
_ABANDONED = 24 * 3600.0
_SEPARATOR = "\n"


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors, in the order of their file, which is the order of frequency."""

    words: Sequence[str]
    vectors: Floats  # read-only, (words, d)
    sha256: str  # of the source file, in hex

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.vectors.shape[1])

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}


def open_word_vectors(path: Path) -> WordVectors:
    """Open a word-vector file: word2vec text or binary, or GloVe text, each optionally gzipped.

    The first use parses it into the cache folder; later uses map the result.
    """
    try:
        if not path.is_file():
            state = "is not a regular file" if path.exists() else "does not exist"
            raise ModelError(f"{path} {state}: give a word-vector file (word2vec text or binary, or GloVe text)")
        before = path.stat()
        sha256 = file_sha256(path)
        vectors = _from_cache(path, sha256) or _parse(path, sha256)
        after = path.stat()
    except OSError as error:
        raise ModelError(f"the word-vector file {path} cannot be read: {error.strerror or error}") from error
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ModelError(f"{path} changed while it was read: try again when it is completely written")
    return vectors


def _from_cache(path: Path, sha256: str) -> WordVectors | None:
    """Map the parsed file, which is created if needed; return None if the cache folder cannot be used."""
    folder = cache_folder() / "vectors"
    try:
        tensors = map_tensors(_intact(folder, sha256) or _convert(path, folder, sha256))
    except OSError:
        return None
    words = tensors["words"].tobytes().decode("utf-8").split(_SEPARATOR)
    return WordVectors(words, tensors["vectors"], sha256)


def _intact(folder: Path, sha256: str) -> Path | None:
    """Return the parsed file if it matches the hash in its name; remove damaged files."""
    for file in folder.glob(f"{_FORMAT}.{sha256}.*.safetensors"):
        if file.name == _name(sha256, file_sha256(file)):
            return file
        file.unlink()
    return None


def _name(source: str, own: str) -> str:
    """Return the name of the parsed file with the hash ``own``."""
    return f"{_FORMAT}.{source}.{own}.safetensors"


def _convert(path: Path, folder: Path, sha256: str) -> Path:
    """Parse ``path`` into ``folder`` atomically; concurrent processes write the same file."""
    folder.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder)
    descriptor, name = tempfile.mkstemp(".tmp", dir=folder)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            words: list[str] = []
            stream.seek(_DATA_START)
            for block, vectors in word_blocks(path):
                words += block
                stream.write(np.ascontiguousarray(vectors, dtype="<f4").data)
            middle = stream.tell() - _DATA_START
            stream.write(_SEPARATOR.join(words).encode())
            end = stream.tell() - _DATA_START
            stream.seek(0)
            stream.write(_header(len(words), middle, end))
            stream.flush()
            os.fsync(stream.fileno())
        file = folder / _name(sha256, read_sha256(temporary))
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return file


def _header(count: int, middle: int, end: int) -> bytes:
    """Return the safetensors header for ``count`` vectors in ``[0, middle)`` and the words in ``[middle, end)``."""
    tensors = {
        "vectors": {"dtype": "F32", "shape": [count, middle // (4 * count)], "data_offsets": [0, middle]},
        "words": {"dtype": "U8", "shape": [end - middle], "data_offsets": [middle, end]},
    }
    length = _DATA_START - 8
    return length.to_bytes(8, "little") + json.dumps(tensors).encode().ljust(length)


def _remove_abandoned(folder: Path) -> None:
    """Remove temporary files of processes that were killed."""
    for temporary in folder.glob("*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - temporary.stat().st_mtime > _ABANDONED:
                temporary.unlink()


def _parse(path: Path, sha256: str) -> WordVectors:
    """Parse a file into memory."""
    words: list[str] = []
    data = bytearray()
    for block, rows in word_blocks(path):
        words += block
        data += rows.tobytes()
    vectors = np.frombuffer(data, dtype=np.float32).reshape(len(words), -1)
    vectors.flags.writeable = False
    return WordVectors(words, vectors, sha256)

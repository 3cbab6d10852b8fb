"""Write an index of inverted lists that may be larger than memory to one file, as FAISS's ``merge_ondisk`` does.

Vectors are encoded into temporary index files of about 32 MiB. The lists are then merged from these files, one list
after the other.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ragembed.files import create_file
from ragembed.indexes.faiss_index.library import faiss
from ragembed.indexes.faiss_index.vectors import Vectors, blocks
from ragembed.indexes.types import Rows
from ragembed.types import Floats

Assign = Callable[[Floats], NDArray[np.int64]]
"""Maps vectors, shape ``(n, d)``, to list numbers, shape ``(n,)``."""

_FILE_BYTES = 32 * 1024**2
_HEADER, _COUNT = struct.Struct("<4sQQ"), struct.Struct("<Q")
_LISTS, _ALL, _SPARSE = b"ilar", b"full", b"sprs"
_EMPTY_SIZE = _HEADER.size + len(_SPARSE) + _COUNT.size


def write_lists(
    index: Any,
    vectors: Vectors,
    rows: Rows,
    stream: BinaryIO,
    folder: Path,
    advance: Callable[[int], None],
    assign: Assign,
) -> None:
    """Write ``index``, which is trained and empty, with ``vectors`` in its lists; temporary files go to ``folder``.

    ``assign`` returns the number of the nearest list of each vector. The other arguments are those of
    :func:`ragembed.indexes.faiss_index.building.build_index`.
    """
    lists = faiss.extract_index_ivf(index)
    scratch = Path(tempfile.mkdtemp(prefix=".lists-", dir=folder))
    try:
        files: list[Path] = []
        for start, block in blocks(vectors):
            _add(index, lists, assign, block, rows[start : start + len(block)])
            if lists.ntotal * lists.code_size >= _FILE_BYTES or start + len(block) == len(vectors):
                files.append(scratch / str(len(files)))
                with create_file(files[-1]) as part:
                    faiss.write_index(lists, faiss.PyCallbackIOWriter(part.write))
                lists.reset()
            advance(len(block))
        lists.ntotal = index.ntotal = len(vectors)
        stream.write(_without_lists(index))
        _merge([faiss.read_index(str(file), faiss.IO_FLAG_MMAP) for file in files], lists, stream)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _add(index: Any, lists: Any, assign: Assign, block: Floats, rows: Rows) -> None:
    block = transformed(index, block)
    ids = np.ascontiguousarray(rows, dtype=np.int64)
    assigned = np.ascontiguousarray(assign(block), dtype=np.int64)
    lists.add_core(len(block), *(faiss.swig_ptr(array) for array in (block, ids, assigned)))


def transformed(index: Any, vectors: Floats) -> Floats:
    """Return ``vectors``, float32, shape ``(n, d)``, after the transforms that ``index`` applies before its lists."""
    if isinstance(index, faiss.IndexPreTransform):
        for number in range(index.chain.size()):
            vectors = faiss.downcast_VectorTransform(index.chain.at(number)).apply(vectors)
    return np.ascontiguousarray(vectors, dtype=np.float32)


def _without_lists(index: Any) -> bytes:
    whole: bytes = faiss.serialize_index(index).tobytes()
    tail = whole[-_EMPTY_SIZE:]
    if not tail.startswith(_LISTS) or not tail.endswith(_SPARSE + _COUNT.pack(0)):
        raise RuntimeError(f"inverted lists in the format {tail[:4]!r} cannot be merged")
    return whole[:-_EMPTY_SIZE]


def _merge(parts: Sequence[Any], lists: Any, stream: BinaryIO) -> None:
    sources = [part.invlists for part in parts]
    sizes = np.array([[source.list_size(n) for n in range(lists.nlist)] for source in sources], dtype="<u8")
    stream.write(_HEADER.pack(_LISTS, lists.nlist, lists.code_size) + _ALL + _COUNT.pack(lists.nlist))
    stream.write(sizes.sum(axis=0, dtype="<u8").tobytes())
    for number in range(lists.nlist):
        filled = [source for source, size in zip(sources, sizes[:, number], strict=True) if size]
        for source in filled:
            stream.write(list_codes(source, number, lists.code_size).data)
        for source in filled:
            stream.write(list_ids(source, number).data)


def list_codes(lists: Any, number: int, code_size: int) -> NDArray[np.uint8]:
    """Return a view of the codes of a list, uint8, shape ``(size * code_size,)``; ``lists`` must outlive the view."""
    codes: NDArray[np.uint8] = faiss.rev_swig_ptr(lists.get_codes(number), lists.list_size(number) * code_size)
    return codes


def list_ids(lists: Any, number: int) -> Rows:
    """Return a view of the ids of a list, int64, shape ``(size,)``; ``lists`` must outlive the view."""
    ids: Rows = faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number))
    return ids

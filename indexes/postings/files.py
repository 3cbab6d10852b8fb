"""The files that hold blocks of postings: immutable folders, written whole and named by the database."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ragembed.errors import StoreDamagedError
from ragembed.hashing import file_sha256, read_sha256
from ragembed.indexes.folders import publish, temporary_folder
from ragembed.indexes.layout import BLOCK, POSTINGS
from ragembed.indexes.postings.block import Block
from ragembed.indexes.postings.live import LiveBlock
from ragembed.indexes.postings.merging import merge
from ragembed.indexes.postings.named import PostingsFiles


def write_postings(store: Path, old: Iterable[LiveBlock], new: Iterable[Block]) -> PostingsFiles | None:
    """Write one block of the live chunks of ``old``, and of all of ``new``.

    It counts once the database names it. ``new`` wait in files while there are more to come. Returns None, with nothing
    written, where no chunk is left.
    """
    final = store / POSTINGS / str(uuid.uuid4())
    temporary = temporary_folder(final)
    try:
        parts = list(old)
        waiting = []
        for i, block in enumerate(new):
            file = temporary / f"{i}.part"
            block.save(file)
            waiting.append(file)
            parts.append(LiveBlock(Block.read(file)))
        chunks = np.concatenate([part.chunks() for part in parts] or [np.zeros(0, dtype=np.int64)])
        if not len(chunks):
            shutil.rmtree(temporary)
            return None
        merge(parts, temporary / BLOCK)
        del parts
        for file in waiting:
            file.unlink()
        digest = read_sha256(temporary / BLOCK)
        publish(temporary, final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return PostingsFiles(final.name, len(chunks), int(chunks.max()), digest)


def open_postings(store: Path, files: PostingsFiles) -> Block:
    """Map a block that was committed; raises :class:`StoreDamagedError` where it is not as it was."""
    file = store / POSTINGS / files.folder / BLOCK
    found = file_sha256(file)
    if found != files.sha256:
        raise StoreDamagedError(
            f"{file} is not the file that was committed (sha256 {found[:12]}…, expected {files.sha256[:12]}…): "
            "rebuild it with: ragembed verify --repair"
        )
    return Block.read(file)

"""Damage as a failing disk does it: one byte is another, and neither the file's size nor its time tells."""

from __future__ import annotations

import os
from pathlib import Path


def flip(file: Path, offset: int, bits: int, *, keep_time: bool = False) -> None:
    """Turn the ``bits``, 1 to 255, of one byte of a file; a second time, the file is as it was."""
    before = file.stat()
    with file.open("r+b") as stream:
        stream.seek(offset)
        [byte] = stream.read(1)
        stream.seek(offset)
        stream.write(bytes([byte ^ bits]))
    if keep_time:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

"""Zip containers (docx, pptx, epub): whether one can be opened without harm."""

from __future__ import annotations

import zipfile
from io import BytesIO

from ragembed.errors import DocumentError

LARGEST_MEMBER = 100_000_000
"""Bytes, uncompressed; the largest real parts are pictures, which are not read."""
OLE_MAGIC = b"\xd0\xcf\x11\xe0"


def open_archive(data: bytes) -> zipfile.ZipFile:
    """Open a zip container.

    Raises:
        DocumentError: it is no zip file, is encrypted, or a member is larger than ``LARGEST_MEMBER``.
    """
    if data.startswith(OLE_MAGIC):
        raise DocumentError("encrypted, or in the Office format of before 2007")
    try:
        archive = zipfile.ZipFile(BytesIO(data))
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DocumentError(f"broken zip: {error}") from error
    for member in archive.infolist():
        if member.file_size > LARGEST_MEMBER:
            raise DocumentError(f"its part {member.filename!r} unpacks to {member.file_size:,} bytes")
        if member.flag_bits & 1:
            raise DocumentError("encrypted zip")
    return archive

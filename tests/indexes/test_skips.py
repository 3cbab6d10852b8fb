"""The line with the numbers of skipped files."""

import pytest

from ragembed.documents.discovery import size_reason
from ragembed.documents.readers.registry import unread_reason
from ragembed.errors import MissingExtraError
from ragembed.indexes.indexing.index_run import skip_counts

PICTURES = {f"docs/{n}.{suffix}": unread_reason(f"{n}.{suffix}") for n in range(10) for suffix in ("png", "jpg")}
LARGE = size_reason(30_000_000, 20_000_000) or ""


@pytest.mark.parametrize(
    ("skipped", "line"),
    [
        ({**PICTURES, "a.zip": LARGE, "b.tar.gz": LARGE, "c.7z": LARGE}, "20 images, 3 archives too large"),
        ({"a.xyz": unread_reason("a.xyz")}, "1 file of unknown format"),
        ({"a.pst": unread_reason("a.pst"), "b.ost": unread_reason("b.ost")}, "2 mailboxes of Outlook"),
        ({"a.pdf": LARGE}, "1 pdf file too large"),
        ({"a.pdf": "corrupt PDF: it has no readable structure", "b.pdf": "encrypted with a password"}, None),
        (
            {"a.msg": str(MissingExtraError("olefile", "documents", "reading"))},
            "1 outlook file without the package olefile",
        ),
        ({"a.md": "contains no text", "b.md": "contains no text: x"}, "2 markdown files without text"),
        (
            {"a.js": "minified: its lines are 900 characters long on average", "b.js": "minified code (…)"},
            "2 minified files",
        ),
        ({"a.md": "cannot be read: Permission denied"}, "1 unreadable file"),
        ({}, ""),
    ],
)
def test_skipped_files_are_counted_by_kind_and_reason(skipped, line):
    assert skip_counts(skipped) == (line if line is not None else "1 broken pdf file, 1 encrypted pdf file")

"""Readers of archives: members are read by the readers of their formats, within limits. The tests create the files."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ragembed.documents.discovery import DiscoveryOptions, member_rules
from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import ReadOptions, read
from ragembed.documents.readers import reader as members
from ragembed.documents.readers.registry import unread_reason
from ragembed.errors import DocumentError

FILES = {
    "docs/a.md": b"# Tea\n\nUse hot water.\n",
    "t.csv": b"name,member\nAssam,yes\n",
    "empty.txt": b"",
    "cup.png": b"\x89PNG\r\n\x1a\n\0\0\0\0",
}
DATA = Path(__file__).parents[1] / "data" / "archives"
MEGABYTE = 1024 * 1024


def parsed(name: str, data: bytes, options: ReadOptions | None = None) -> tuple[list[ParsedDocument], list[str]]:
    warnings: list[str] = []
    given = options or ReadOptions()
    found = read(name, data, ReadOptions(**{**vars(given), "on_warning": warnings.append}))
    return list(found), warnings


def zipped(files: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files: Mapping[str, bytes], kind: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kind) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.zip", zipped(FILES)),
        ("a.ZIP", zipped(FILES, zipfile.ZIP_LZMA)),
        ("a.tar", tarred(FILES)),
        ("a.tar.gz", gzip.compress(tarred(FILES, tarfile.GNU_FORMAT))),
        ("a.tgz", gzip.compress(tarred(FILES, tarfile.USTAR_FORMAT))),
        ("a.tar.bz2", bz2.compress(tarred(FILES))),
        ("a.txz", lzma.compress(tarred(FILES))),
    ],
)
def test_members_are_read_by_the_readers_of_their_formats(name: str, data: bytes) -> None:
    documents, warnings = parsed(name, data)
    assert [(d.title, d.text, d.line_numbers, d.metadata) for d in documents] == [
        ("Tea", "# Tea\n\nUse hot water.\n", None, {"member": "docs/a.md"}),
        (None, "name: Assam\nmember: yes", [2, 2], {"member": "t.csv"}),
    ]
    assert warnings == [f"cup.png is not read: {unread_reason('cup.png')}"]


def test_entries_of_all_kinds_are_read_like_the_standard_library_reads_them() -> None:
    data = (DATA / "kinds-of-entries.tar.xz").read_bytes()
    expected = {}
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="replace") as archive:
        for entry in archive:
            content = archive.extractfile(entry) if entry.isreg() and not entry.issparse() else None
            if content is not None and not entry.name.endswith(("sparse", "eof")):
                expected[entry.name] = content.read().decode("latin-1")
    documents, warnings = parsed("a.tar.xz", data)
    assert len(expected) == 20
    assert {d.metadata["member"]: d.text for d in documents} == expected
    names = "ustar/lnktype, ustar/symtype, ustar/blktype, …"
    assert warnings == [
        f"14 members are not read ({names}): it is a link, a device or a sparse file",
        f"ustar/sparse is not read: {unread_reason('sparse')}",
    ]


def test_names_in_the_character_set_of_dos() -> None:
    documents, _ = parsed("a.zip", (DATA / "cp437-names.zip").read_bytes())
    assert [(d.metadata["member"], d.text) for d in documents] == [
        ("filename_with_æoå.txt", "EOF\n"),
        ("filename_without.txt", "EOF\n"),
    ]


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_file_has_one_member(compress: Callable[[bytes], bytes]) -> None:
    suffix = {gzip.compress: "gz", bz2.compress: "bz2", lzma.compress: "xz"}[compress]
    [document], _ = parsed(f"notes.md.{suffix}", compress(FILES["docs/a.md"]))
    assert (document.title, document.metadata) == ("Tea", {"member": "notes.md"})


def test_long_names_in_tar_archives() -> None:
    name = "/".join(["ä" * 40] * 5) + ".md"
    for kind in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        [document], _ = parsed("a.tar", tarred({f"./{name}": b"# Tea\n"}, kind))
        assert document.metadata == {"member": name}


def test_containers_in_containers_share_their_limits() -> None:
    archive = gzip.compress(tarred({"a.md": b"# Leaves\n", "b.zip": zipped({"a.md": b"# Too deep\n"})}))
    mail = b"Subject: Tea\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nAt four.\n--b\n"
    mail += b"Content-Disposition: attachment; filename=a.tgz\nContent-Transfer-Encoding: base64\n\n"
    mail += base64.encodebytes(archive) + b"\n--b--\n"
    documents, warnings = parsed("a.zip", zipped({"m/1.eml": mail, "2.txt": b"Last."}))
    assert [(d.text, d.metadata) for d in documents] == [
        ("At four.\n", {"subject": "Tea", "member": "m/1.eml"}),
        ("# Leaves\n", {"subject": "Tea", "member": "m/1.eml/a.tgz/a.md"}),
        ("Last.", {"member": "2.txt"}),
    ]
    deep = "m/1.eml/a.tgz/b.zip"
    assert warnings == [
        f"{deep}/a.md is not read: nested in more than 3 files",
        f"{deep} is not read: contains no text",
    ]


def test_broken_members_are_reported_and_the_others_are_read() -> None:
    archive = bytearray(zipped({"a.txt": b"Some words. " * 50, "b.txt": b"Other words."}))
    archive[40] ^= 0xFF
    documents, warnings = parsed("a.zip", bytes(archive))
    assert [d.text for d in documents] == ["Other words."]
    assert len(warnings) == 1
    assert warnings[0].startswith("a.txt is not read: cannot be unpacked:")


def test_members_with_the_same_problem_give_one_warning() -> None:
    files = {f"{number}.pdf": b"%PDF-1.4 nonsense" for number in range(4)}
    documents, warnings = parsed("a.zip", zipped({"a.txt": b"Words.", **files}))
    assert len(documents) == 1
    assert [warning.partition(":")[0] for warning in warnings] == ["4 members are not read (0.pdf, 1.pdf, 2.pdf, …)"]


def test_names_outside_the_archive_links_and_devices_are_not_read() -> None:
    content = dict.fromkeys(("../a.txt", "/b.txt", "x/../../c.txt", "C:\\d.txt", "ok\\e.txt"), b"Words.")
    documents, warnings = parsed("a.zip", zipped(content))
    assert [d.metadata["member"] for d in documents] == ["ok/e.txt"]
    assert warnings == [
        "4 members are not read (../a.txt, /b.txt, x/../../c.txt, …): its name leads outside the archive"
    ]
    link = zipfile.ZipInfo("link.txt")
    link.external_attr = 0o120777 << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(DocumentError, match=r"link\.txt is not read: it is a link or a device"):
        parsed("a.zip", buffer.getvalue())


def test_tar_links_devices_and_sparse_files_are_not_read() -> None:
    blocks = b""
    for number, kind in enumerate((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)):
        entry = tarfile.TarInfo(f"{number}")
        entry.type, entry.linkname = kind, "/etc/passwd"
        blocks += entry.tobuf()
    sparse = tarfile.TarInfo("sparse")
    sparse.type, sparse.size = tarfile.GNUTYPE_SPARSE, 512
    blocks += sparse.tobuf() + b"A" * 512
    entry = tarfile.TarInfo("sparse of pax")
    entry.size, entry.pax_headers = 3, {"GNU.sparse.major": "1", "GNU.sparse.realsize": str(10**15)}
    blocks += entry.tobuf(tarfile.PAX_FORMAT) + b"1\n0".ljust(512, b"\0")
    documents, warnings = parsed("a.tar", blocks + tarred({"ok.txt": b"Words."}))
    assert [d.metadata["member"] for d in documents] == ["ok.txt"]
    assert warnings == ["6 members are not read (0, 1, 2, …): it is a link, a device or a sparse file"]


def quine() -> bytes:
    """Return an archive that contains archives to any depth that a reader opens."""
    data = b"Words."
    for _ in range(40):
        data = zipped({"in.zip": data})
    return data


def overlapping(count: int) -> bytes:
    """Return an archive whose entries all point at the same data."""
    archive = zipped({"a.txt": b"Some words.\n" * 2_000_000})
    entries, end = archive.rfind(b"PK\1\2"), archive.rfind(b"PK\5\6")
    directory = archive[entries:end] * count
    last = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, count % 65_536, count % 65_536, len(directory), entries, 0)
    return archive[:entries] + directory + last


def wide() -> bytes:
    inner = zipped({f"{number}.txt": b"Words." * 10 for number in range(10)})
    return zipped({f"{number}.zip": inner for number in range(10)}, zipfile.ZIP_STORED)


def huge_extended_header() -> bytes:
    entry = tarfile.TarInfo("x")
    entry.type, entry.size = tarfile.XHDTYPE, 900_000
    return entry.tobuf() + b"1 " * 450_000


def with_huge_dictionary() -> bytes:
    """Return an xz file that demands a dictionary of 4 GiB."""
    data = bytearray(lzma.compress(b"\0"))
    size = 4 * (data[12] + 1)
    data[16] = 40
    data[8 + size : 12 + size] = struct.pack("<I", zlib.crc32(bytes(data[12 : 8 + size])))
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.zip", zipped({"a.txt": b"a " * 20 * MEGABYTE}), r"a.txt is not read: larger than 20,971,520 bytes"),
        ("a.zip", zipped({"a.txt": b"Words.\n" * MEGABYTE}), "unpacks to more than 100 times its size"),
        ("a.zip", overlapping(1000), "1,000 members are not read .*: larger than|unpacks to more than"),
        ("a.zip", overlapping(100_001), "has more than 100,000 entries: unpack it"),
        ("a.zip", quine(), "nested in more than 3 files"),
        ("a.zip", b"PK\3\4 nonsense", "broken zip"),
        ("a.zip", b"", "broken zip"),
        ("a.txt.gz", gzip.compress(b"Words.\n" * 4 * MEGABYTE, 1), "larger than 20,971,520 bytes"),
        ("a.txt.xz", with_huge_dictionary(), "contains no text|cannot be unpacked"),
        ("a.txt.gz", gzip.compress(b"Words.")[:-5], "cannot be unpacked"),
        ("a.tgz", gzip.compress(tarred({"a.bin": b"\0" * 10 * MEGABYTE}) * 25, 1), "a.bin"),
        ("a.tar", huge_extended_header(), "broken tar"),
        ("a.tar", b"Words." * 100, "broken tar"),
        ("a.tar", tarred({"a.txt": b"Words." * 200})[:1000], "broken tar: cut off"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_hostile_archives_are_rejected(name: str, data: bytes, reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        parsed(name, data)


def test_a_compressed_tar_archive_has_a_limit() -> None:
    options = ReadOptions(max_member_bytes=10_000)
    data = gzip.compress(tarred({f"{number}.txt": b"Words." * 1000 for number in range(20)}))
    with pytest.raises(DocumentError, match="unpacks to more than 100,000 bytes"):
        parsed("a.tgz", data, options)


def test_the_members_of_a_file_have_a_limit_on_all_levels_together(monkeypatch: pytest.MonkeyPatch) -> None:
    documents, warnings = parsed("a.zip", wide(), ReadOptions(max_member_bytes=1_000))
    assert sum(len(d.text) for d in documents) == 1_800  # and 5,000 with the archives around them
    assert warnings[0].endswith("the members of the file have more than 5,000 bytes (--max-size)")
    monkeypatch.setattr(members, "MOST_MEMBERS", 20)
    documents, warnings = parsed("a.zip", wide())
    assert len(documents) == 18
    assert warnings[0].endswith("the file has more than 20 members")


@pytest.mark.parametrize(
    ("options", "read_members"),
    [
        (DiscoveryOptions(), {"a.md", "docs/a.md", "docs/b.txt"}),
        (DiscoveryOptions(hidden=True), {"a.md", "docs/a.md", "docs/b.txt", ".hidden/a.md", "__MACOSX/._a.md"}),
        (DiscoveryOptions(exclude=("*.md",)), {"docs/b.txt"}),
        (DiscoveryOptions(exclude=("docs/", "!docs/a.md")), {"a.md"}),
        (DiscoveryOptions(exclude=("*.md", "!docs/a.md")), {"docs/a.md", "docs/b.txt"}),
        (DiscoveryOptions(include=("*.zip",)), {"a.md", "docs/a.md", "docs/b.txt"}),
    ],
)
def test_rules_apply_to_members(options: DiscoveryOptions, read_members: set[str]) -> None:
    names = ("a.md", "docs/a.md", "docs/b.txt", ".hidden/a.md", "__MACOSX/._a.md", "node_modules/a.md")
    archive = zipped(dict.fromkeys(names, b"Words."))
    documents, warnings = parsed("a.zip", archive, ReadOptions(ignores_member=member_rules(options)))
    assert {d.metadata["member"] for d in documents} == read_members
    assert warnings == []

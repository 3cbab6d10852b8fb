"""Every reader with random and damaged files: an answer or a clear error within 10 seconds and 500 MB.

Each reader runs in a process of its own, which limits its memory and, for each file, its time. The readers of PDF and
of old Office files start further processes, which they limit in the same way.

``test_fuzz_readers.py READER SECONDS SEED FOLDER`` is such a process. It writes each file to ``FOLDER/input`` before it
reads it, and how many it has read.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from ragembed.documents.readers.reader import Reader, only_document_errors
from ragembed.documents.readers.registry import PLAIN, READERS, read
from ragembed.errors import RagembedError

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="limits memory and time")]

DATA = Path(__file__).resolve().parents[1] / "data"
SECONDS = 10 * float(os.environ.get("RAGEMBED_SLOW_SCALE", "1"))
"""Seconds for each reader."""
LONGEST, MOST_MEMORY = 10, 500_000_000
"""Seconds and bytes for one file."""
LARGEST = 300_000
PIECES = (
    b"<", b"</", b"<!--", b"]]>", b"&#x10ffff;", b"<dl><dt>", b"<table><tr><td>", b"{", b"[[", b"}}", b'"', b"'''",
    b"\\begin{", b"\\", b"{\\rtf1", b"\\u-1?", b"$$", b"# ", b"=====\n", b"- ", b"  - ", b"\t", b"\r", b"\n\n", b"\x00",
    b"\xff\xfe", b"\xed\xa0\x80", b"\xe2\x80\xae", b"1e999", b"-1", b"9" * 30, b"null", b"From x\n", b"Content-Type: ",
    b"--b\n", b"=?utf-8?B?", b".SH \"", b".so x\n", b"@a{", b"00:00:01,000 --> ", b"a,b;c|d\t", b"%PDF-1.7\n", b"```",
    b"PK\x03\x04", b"xref\n", b"/Kids [", b"<<", b"obj\n", b"<!ENTITY a \"", b"<?xml ", b"*" * 40, b"| ", b"::\n",
)  # fmt: skip
NAMES = {reader.name: f"file{reader.suffixes[0]}" for reader in (*READERS, PLAIN)}
"""The name of a file of each reader."""


def seeds(reader: Reader) -> list[bytes]:
    """Return sample files of a reader: those in ``tests/data``, else small ones."""
    found = [path.read_bytes() for path in sorted(DATA.rglob("*")) if path.suffix in reader.suffixes]
    page = b"<html><title>A</title><body><h1>B</h1><p>c <b>d</b></p><ul><li>e</ul><pre>f</pre><table><tr><td>g</table>"
    small = {
        "html": page,
        "csv": b'id,title,text\n1,a,"b, c"\n2,d,e\n',
        "jsonl": b'{"text": "one two", "n": [1, {"b": null}]}\n{"text": "three", "title": "t"}\n',
        "mbox": b"From a Mon Nov 23 08:00:00 2020\nSubject: b\nFrom: c@d\n\nText\n\n" * 3,
    }
    if reader.name in small:
        found.append(small[reader.name])
    elif reader.name == "epub":
        found.append(_epub(page))
    elif reader.name == "tar":
        found.append(_tar({"a.md": b"# a\n\nb\n", "b/c.html": page, "d.csv": small["csv"]}))
    return found


def _epub(page: bytes) -> bytes:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as book:
        book.writestr("mimetype", "application/epub+zip")
        book.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile full-path="b.opf" '
            'media-type="application/oebps-package+xml"/></rootfiles></container>',
        )
        book.writestr(
            "b.opf",
            '<package xmlns="http://www.idpf.org/2007/opf"><metadata/><manifest><item id="a" href="a.xhtml" '
            'media-type="application/xhtml+xml"/></manifest><spine><itemref idref="a"/></spine></package>',
        )
        book.writestr("a.xhtml", page)
    return packed.getvalue()


def _tar(members: dict[str, bytes]) -> bytes:
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, BytesIO(data))
    return packed.getvalue()


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return ``data`` with some changes: bytes, pieces of syntax, parts that are cut, moved or repeated."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 30))):
        start = rng.randrange(len(changed) + 1)
        end = min(len(changed), start + rng.choice((0, 1, 4, 100, 5000)))
        part = bytes(changed[start:end])
        kind = rng.randrange(6)
        if kind == 0:
            part = bytes(rng.randrange(256) for _ in part[:100]) + part[100:]
        elif kind == 1:
            part = b""
        elif kind == 2:
            part *= rng.choice((2, 20, 500))
        elif kind == 3:
            part += rng.choice(PIECES) * rng.choice((1, 1, 3, 3000))
        elif kind == 4:
            place = rng.randrange(len(changed) + 1)
            part = bytes(changed[place : place + 200]) + part
        else:
            part = bytes(each ^ 1 << rng.randrange(8) for each in part)
        changed[start:end] = part
        del changed[LARGEST:]
    return bytes(changed)


def mutated_archive(rng: random.Random, data: bytes) -> bytes:
    """Return a zip file, such as docx, with one member mutated and packed again."""
    packed = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as before, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as after:
        chosen = rng.choice(before.namelist())
        for name in before.namelist():
            after.writestr(name, mutated(rng, before.read(name)) if name == chosen else before.read(name))
    return packed.getvalue()


def inputs(rng: random.Random, known: list[bytes]) -> Iterator[bytes]:
    """Yield mutated samples, and files made of pieces of syntax and words."""
    while True:
        if known and rng.random() < 0.7:
            data = rng.choice(known)
            archive = data.startswith(b"PK") and rng.random() < 0.8
            yield mutated_archive(rng, data) if archive else mutated(rng, data)
        elif rng.random() < 0.2:
            yield (rng.choice(PIECES) * rng.choice((10, 1000, 30_000)))[:LARGEST]
        else:
            between = (b"", b"word", b" ", b"\n")
            parts = [
                rng.choice(PIECES) * rng.choice((1, 1, 2, 50)) + rng.choice(between)
                for _ in range(rng.choice((5, 50, 500)))
            ]
            yield mutated(rng, b"".join(parts))


@pytest.mark.parametrize("name", NAMES)
def test_damaged_files_end_in_an_answer_or_a_clear_error(name, tmp_path):
    seed = int(os.environ.get("RAGEMBED_FUZZ_SEED", "0"))
    command = [sys.executable, __file__, name, str(SECONDS), str(seed), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    counts = json.loads((tmp_path / "counts").read_text()) if (tmp_path / "counts").exists() else {}
    assert done.returncode == 0, f"{tmp_path / 'input'}: {counts}\n{done.stderr[-3000:]}"


def main(name: str, seconds: float, seed: int, folder: Path) -> None:
    """Read files until the time is over; fail at the first that needs too much or raises another error."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, used + MOST_MEMORY))
    reader = next(reader for reader in (*READERS, PLAIN) if reader.name == name)
    rng, counts, slowest = random.Random(f"{name} {seed}"), {"files": 0, "refused": 0}, 0.0
    ends = time.monotonic() + seconds
    for data in inputs(rng, seeds(reader)):
        if time.monotonic() > ends:
            break
        (folder / "input").write_bytes(data)
        started = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, LONGEST)  # ends the process, wherever it is
        try:
            with only_document_errors():
                for _ in read(NAMES[name], data):
                    pass
        except RagembedError as error:
            if "its reader failed with" in str(error):
                raise
            counts["refused"] += 1
        signal.setitimer(signal.ITIMER_PROF, 0)
        counts["files"] += 1
        slowest = max(slowest, time.process_time() - started)
        (folder / "counts").write_text(json.dumps({**counts, "slowest, s": round(slowest, 2)}))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))

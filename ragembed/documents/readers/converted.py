"""Read Word and PowerPoint files from before 2007 (doc, ppt) with a converter that is installed on the machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ragembed.documents.decoding import decode
from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import mail, rtf, slides, word, xml
from ragembed.documents.readers.excel import WHITE
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import OLE_MAGIC, FileText
from ragembed.errors import DocumentError
from ragembed.extras import is_installed

MODULES = {"msdoc2docx": "doc2docx", "ppt2pptx": "ppt2pptx"}
"""The Python packages that convert without a program on the machine, with their modules."""
CONVERTERS = {
    "doc": (("soffice", "docx"), ("libreoffice", "docx"), ("msdoc2docx", "docx"), ("antiword", ""), ("catdoc", "")),
    "ppt": (("soffice", "pptx"), ("libreoffice", "pptx"), ("ppt2pptx", "pptx"), ("catppt", "")),
}
"""For each format, the programs in order of preference, with the format that they convert to, or "" for text."""
TEXT_OPTIONS = {"antiword": "-w 0 -m UTF-8.txt", "catdoc": "-d utf-8 -w", "catppt": "-d utf-8"}
WEB_ARCHIVE = re.compile(
    rb"(?:[\w-]+: [^\n]*\n(?:[ \t][^\n]*\n)*){0,20}content-type:\s*multipart/related", re.IGNORECASE
)
LONGEST_SECONDS = 10
MOST_MEMORY = 500_000_000
LARGEST_OUTPUT = 50_000_000
ZIP_MAGIC = b"PK\x03\x04"
SETTINGS = (
    ("Office.Common/Security/Scripting", "MacroSecurityLevel", "3"),
    ("Office.Common/Security/Scripting", "DisableMacrosExecution", "true"),
    ("Office.Common/Security/Scripting", "DisableActiveContent", "true"),
    ("Office.Common/Security/Scripting", "BlockUntrustedRefererLinks", "true"),
    ("Office.Writer/Content/Update", "Link", "2"),
    ("Inet/Settings", "ooInetProxyType", "2"),
    *(("Inet/Settings", f"ooInet{kind}ProxyName", "127.0.0.1") for kind in ("HTTP", "HTTPS")),
    *(("Inet/Settings", f"ooInet{kind}ProxyPort", "9") for kind in ("HTTP", "HTTPS")),
)
"""Settings of LibreOffice: no macros, no linked files, and a proxy at a port on which nothing listens."""
ITEM = '<item oor:path="/org.openoffice.{}"><prop oor:name="{}" oor:op="fuse"><value>{}</value></prop></item>\n'
PROFILE = f"""<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
{"".join(ITEM.format(*setting) for setting in SETTINGS)}</oor:items>
"""
# The limits must hold before the converter starts, so a small program sets them and becomes the converter.
LIMITER = f"""
import os, resource, sys
for name, limit in (("CPU", {LONGEST_SECONDS}), ("DATA", {MOST_MEMORY}), ("FSIZE", {LARGEST_OUTPUT}), ("CORE", 0)):
    resource.setrlimit(getattr(resource, "RLIMIT_" + name), (limit, limit))
os.execv(sys.argv[1], sys.argv[1:])
"""


def parse_doc(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a Word file with the first of ``CONVERTERS``; docx files, RTF and web pages may have this name, too."""
    if file.data.startswith(rtf.MAGIC):
        yield from rtf.parse(file)
    elif file.data.startswith(ZIP_MAGIC):
        yield from word.parse_docx(file)
    elif WEB_ARCHIVE.match(file.data):
        yield from mail.parse_web_archive(file)
    elif file.data.lstrip(WHITE)[:1] == b"<":
        yield from xml.parse(file)
    else:
        yield from _convert("doc", file)


def parse_ppt(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a PowerPoint file with the first of ``CONVERTERS`` that is installed; pptx may have this name, too."""
    if file.data.startswith(ZIP_MAGIC):
        yield from slides.parse_pptx(file)
    else:
        yield from _convert("ppt", file)


def _convert(kind: str, file: RawFile) -> Iterator[ParsedDocument]:
    if not file.data.startswith(OLE_MAGIC):
        raise DocumentError(f"corrupt {kind} file: it is not in the Office format from before 2007")
    name, program, target = _converter(kind)
    # Only the converter works in this folder. It is removed afterwards.
    with tempfile.TemporaryDirectory(prefix="ragembed-") as folder:
        source = Path(folder) / f"document.{kind}"
        source.write_bytes(file.data)
        if name in MODULES:
            converted = source.with_suffix(f".{target}")
            _run(name, [program, "-I", "-m", MODULES[name], str(source), "-o", str(converted)], source.parent)
            output = converted.read_bytes()
        elif target:
            output = _office_output(name, program, target, source)
        else:
            output = _run(name, [program, *TEXT_OPTIONS[name].split(), str(source)], source.parent)
    if not target:
        text = FileText(decode(output))
        text.add_paragraphs(0, len(text.lines))
        yield ParsedDocument(text.text, text.blocks, page_numbers=())
    elif kind == "doc":
        yield from word.parse_docx(replace(file, data=output))
    else:
        yield from slides.parse_pptx(replace(file, data=output))


def _office_output(name: str, program: str, target: str, source: Path) -> bytes:
    """Convert a file with LibreOffice, which gets a new profile, so it is independent of one that is open."""
    profile = source.parent / "profile"
    (profile / "user").mkdir(parents=True)
    (profile / "user" / "registrymodifications.xcu").write_text(PROFILE, encoding="utf-8")
    command = [program, f"-env:UserInstallation={profile.as_uri()}", "--headless", "--norestore", "--nolockcheck"]
    _run(name, [*command, "--convert-to", target, "--outdir", str(source.parent), str(source)], source.parent)
    converted = source.with_suffix(f".{target}")
    if not converted.is_file():
        raise DocumentError(f"{name} cannot convert it: it may be damaged, encrypted or too large")
    return converted.read_bytes()


def missing_converter(kind: str) -> str | None:
    """Return what to install to read files of this format, or None if a converter is installed or none is needed."""
    try:
        if kind in CONVERTERS:
            _converter(kind)
    except DocumentError as error:
        return str(error)
    return None


def _converter(kind: str) -> tuple[str, str, str]:
    """Return the name and the path of the first program that is installed, and the format that it converts to."""
    for name, target in CONVERTERS[kind]:
        has_module = name in MODULES and is_installed(MODULES[name])
        if program := sys.executable if has_module else None if name in MODULES else shutil.which(name):
            return name, program, target
    others = " or ".join(name for name, target in CONVERTERS[kind] if not target)
    raise DocumentError(
        f"no converter for {kind} files: install the extra documents, LibreOffice, {others}, or save it as {kind}x"
    )


def _run(name: str, command: list[str], folder: Path) -> bytes:
    """Run a converter without shell, input and settings of the user, and return its output."""
    if sys.platform != "win32":
        command = [sys.executable, "-I", "-S", "-c", LIMITER, *command]
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8"}
    output = folder / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(  # noqa: S603  no shell, and the arguments are our own
            command,
            cwd=folder,
            env=environment | {key: os.environ[key] for key in ("SYSTEMROOT",) if key in os.environ},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            status = process.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise DocumentError(f"{name} needs more than {LONGEST_SECONDS} seconds for it") from error
        finally:
            _end(process)
    if status:
        raise DocumentError(f"{name} fails with status {status}: it may be damaged, encrypted or too large")
    return output.read_bytes()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the converter and the programs that it has started."""
    if sys.platform == "win32":
        process.kill()
    else:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()

"""Formats that no reader supports, each with what to do."""

from __future__ import annotations

from pathlib import PurePosixPath

_OFFICE = "convert it, for example with 'soffice --headless --convert-to {} FILE'"
_REMEDIES = {
    "dot fodt wpd wps pages": f"a word processor file; {_OFFICE.format('docx')}",
    "pps key": f"a presentation; {_OFFICE.format('pptx')}",
    "xlsb numbers": f"a spreadsheet; {_OFFICE.format('xlsx')}",
    "mobi azw azw3 lit fb2": "an electronic book; convert it to epub, for example with Calibre",
    "djvu djv ps eps xps oxps vsd vsdx indd ai": "a drawing or print file; convert it to pdf",
    "png jpg jpeg gif bmp tif tiff webp heic heif avif ico psd xcf": (
        "an image; for its text use an OCR program such as tesseract, and index the result"
    ),
    "mp3 wav flac ogg opus m4a aac mp4 mkv mov avi webm wmv mpg mpeg": (
        "a recording; write down its speech with a program such as whisper, and index the result"
    ),
    "gz bz2 xz zst 7z rar jar iso whl": "an archive or compressed file; unpack it and index the folder",
    "sqlite sqlite3 db mdb accdb dbf": "a database; export its tables as csv",
    "parquet arrow feather orc avro sav dta sas7bdat": "a table; convert it to csv or jsonl",
    "pst ost": "a mailbox of Outlook; export its mails as msg or eml",
    "chm hlp one": "help or notes; export it as html or pdf",
    "exe dll so dylib o a lib pyc pyd class wasm bin apk": (
        "a program or compiled code, which has no text to search; exclude it with --exclude"
    ),
    "npy npz pkl pickle pt pth onnx safetensors h5 hdf5 gguf mat": (
        "numbers or a model, which have no text to search; exclude it with --exclude"
    ),
    "ttf otf woff woff2 eot": "a font, which has no text to search; exclude it with --exclude",
}
_BY_SUFFIX = {suffix: remedy for suffixes, remedy in _REMEDIES.items() for suffix in suffixes.split()}


def unread_reason(name: str) -> str:
    """Return why a file called ``name`` that is not text is not read: its format, and what to do."""
    suffix = PurePosixPath(name).suffix.lower().removeprefix(".")
    reason = "neither text nor a known format; convert it to text, html or pdf, or exclude it with --exclude"
    reason = _BY_SUFFIX.get(suffix, reason)
    return f"{suffix}: {reason}" if suffix else reason

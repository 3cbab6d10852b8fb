r"""Decode bytes: detect whether a file is text, and its encoding.

Valid UTF-8 always wins. For other files, :mod:`.legacy_encodings` chooses the encoding in which they are most likely.

Only ``\n`` ends a line, so line numbers match those of ``sed``, ``grep`` and editors.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from functools import lru_cache

from ragembed.documents.legacy_encodings import most_likely

_SNIFFED_BYTES = 8192
_SCORED_BYTES = 1 << 16

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

_BOM_BYTES = tuple(bom for bom, _ in _BOMS)

_WIDER_IN_BROWSERS = {"iso8859-1": "cp1252", "ascii": "cp1252"}
"""Character sets that the WHATWG encoding standard replaces by larger ones."""
_NOT_FOR_TEXTS = frozenset({"idna", "mbcs", "oem", "punycode", "raw_unicode_escape", "undefined", "unicode_escape"})
"""Codecs of Python that are no character sets. Some need quadratic time."""

_CONTROL_BYTES = bytes(set(range(32)) - set(b"\b\t\n\v\f\r\x1b")) + b"\x7f"

_BEYOND_ASCII = re.compile(rb"[\x00-\x09\x0b-\x7f]{0,64}[\x80-\xff][^\n]{0,4096}")
_MULTIBYTE_UTF8 = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}",
)


def decode(data: bytes) -> str:
    r"""Decode ``data`` with its most likely encoding. Never fails.

    A byte order mark is removed. ``\r\n`` becomes ``\n``. A lone ``\r`` becomes ``\n`` if the text has no ``\n`` at all
    (old Macintosh files). Otherwise it becomes a space, because ``sed`` and ``git`` do not treat it as a line end.
    """
    return _with_plain_newlines(data.decode(_codec_of(data), "replace"))


def decoded_as(data: bytes, charset: str) -> str:
    """Decode ``data`` with its declared character set if that can be right, else with the most likely one."""
    declared = declared_text(data, charset)
    return decode(data) if declared is None else declared


def declared_text(data: bytes, charset: str) -> str | None:
    """Decode ``data`` with its declared character set, as browsers do; None if it is unknown or wrong, as for UTF-8."""
    try:
        name = codecs.lookup(charset).name
        if name in _NOT_FOR_TEXTS or (not data.isascii() and not name.startswith("utf") and _is_utf8(data, final=True)):
            return None
        text = data.decode(_WIDER_IN_BROWSERS.get(name, name))
    except (LookupError, ValueError):
        return None
    return _with_plain_newlines(text)


def is_binary(sample: bytes) -> bool:
    """Return whether a file that starts with ``sample`` is binary. Only the first 8 KB are examined.

    A NUL byte means binary, as in git, unless the sample has a byte order mark or is UTF-16. A large share of control
    characters also means binary: more than 30 % in ASCII or UTF-8, more than 5 % otherwise.
    """
    sample = sample[:_SNIFFED_BYTES]
    if not sample or sample.startswith(_BOM_BYTES):
        return False
    if b"\0" in sample:
        return _utf16_without_bom(sample) is None
    controls = 1 - len(sample.translate(None, _CONTROL_BYTES)) / len(sample)
    return controls > 0.05 and (controls > 0.3 or not _is_utf8(sample, final=False))


def _codec_of(data: bytes) -> str:
    codec = next((codec for bom, codec in _BOMS if data.startswith(bom)), None)
    if codec is None and b"\0" in data:
        codec = _utf16_without_bom(data)
    return codec or ("utf-8" if _is_utf8(data, final=True) else _legacy_codec(data))


def _with_plain_newlines(text: str) -> str:
    if "\r" not in text:
        return text
    text = text.replace("\r\n", "\n")
    return text.replace("\r", " " if "\n" in text else "\n")


def _is_utf8(data: bytes, *, final: bool) -> bool:
    """Return whether data is valid UTF-8, or if not ``final``, the start of it."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final)
    except UnicodeDecodeError:
        return False
    return True


def _utf16_without_bom(data: bytes) -> str | None:
    """Return the UTF-16 codec of ``data`` without a byte order mark, by the positions of NUL bytes in it, or None."""
    sample = data[:_SNIFFED_BYTES]
    units = len(sample) // 2
    little, big = sample[1::2].count(0), sample[::2].count(0)
    nuls, codec = (little, "utf-16-le") if little >= big else (big, "utf-16-be")
    # Few NULs in a short sample, or among ASCII, mean a binary file. A longer text is judged by its characters below.
    if units < 2 or (nuls < units / 2 and (units < 16 or _is_utf8(sample, final=False))):
        return None
    try:
        text = codecs.getincrementaldecoder(codec)().decode(sample, final=False)
    except UnicodeDecodeError:
        return None
    if any(unicodedata.category(char) in ("Cc", "Cn", "Co") for char in text if char not in "\t\n\v\f\r\x1b"):
        return None
    return codec if sum(map(_is_usual, text)) >= 0.95 * len(text) else None


@lru_cache(maxsize=4096)
def _is_usual(char: str) -> bool:
    """Return whether ``char`` is no rare Han character or Hangul syllable, to which random 16-bit numbers decode."""
    if char < "\u2e80" or "\U0001f000" <= char < "\U00020000":
        return True
    return any(_can_encode(char, codec) for codec in ("gb2312", "shift_jis", "euc_kr", "big5"))


def _can_encode(char: str, codec: str) -> bool:
    try:
        char.encode(codec)
    except UnicodeEncodeError:
        return False
    return True


def _legacy_codec(data: bytes) -> str:
    """Choose the codec for ``data``, which is not valid UTF-8, by about 64 KB of lines with bytes beyond ASCII."""
    lines, size = [], 0
    for match in _BEYOND_ASCII.finditer(data):
        lines.append(match[0])
        size += len(match[0])
        if size >= _SCORED_BYTES:
            break
    sample = b"\n".join(lines)
    damaged = sample.decode("utf-8", "replace").count("\ufffd")
    if sum(map(len, _MULTIBYTE_UTF8.findall(sample))) >= 5 * damaged:
        return "utf-8"
    codec, is_likely = most_likely(sample)
    return codec if is_likely or 100 * damaged > len(data) else "utf-8"

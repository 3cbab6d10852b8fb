r"""Decode bytes: detect whether a file is text, and its encoding.

Valid UTF-8 always wins. Other files are decoded with each of the most common legacy encodings (Windows-1252, Shift-JIS,
EUC-JP), and the most plausible result is kept. :func:`_western_share` and :func:`_japanese_share` return the share of
non-ASCII characters that are in a plausible position for such a text. This works with only a few non-ASCII characters,
too few for a statistical detector. If no result is plausible, ``charset-normalizer`` decides.

Only ``\n`` ends a line, so line numbers match those of ``sed``, ``grep`` and editors.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

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

_WITH_REPLACEMENTS = " (with replacements)"

_CONTROL_BYTES = bytes(set(range(32)) - set(b"\b\t\n\v\f\r\x1b")) + b"\x7f"

_BEYOND_ASCII = re.compile(rb"[\x00-\x09\x0b-\x7f]{0,64}[\x80-\xff][^\n]{0,4096}")
_MULTIBYTE_UTF8 = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}",
)

_WORD = re.compile(r"[^\W\d_ªºµ¹²³¼½¾]+")
_UNLIKELY_IN_WESTERN_WORD = re.compile(r"[^\x00-\x7f]{4}|[a-z][À-ÞŠŽŒŸ](?:[a-z]|$)")
_WESTERN_LETTERS = frozenset("ŠšŽžŒœŸ") | {chr(code) for code in range(0xC0, 0x100)} - set("×÷")
_WESTERN_ONE_LETTER_WORDS = frozenset("àáâäåæèéêíóôöøüþÀÁÂÄÅÆÈÉÊÍÓÔÖØÜÞ")
_WESTERN_ALPHABETS = tuple(
    map(frozenset, ("àâçèéêëîïôùûüœ", "äöüßéà", "áéíñóúü", "àáâãçéêíóôõúü", "àèéìíòóùú", "åäöæøé", "áéíóúýðþæö"))
)
_SIGNS = re.compile(r"(?:[ªºµ¹²³¼½¾]|[^\x00-\x7f](?<!\w))+")
_WESTERN_QUOTATION = frozenset("“”„‘’‚‹›«»…–—\xa0")
_WESTERN_SIGNS_IN_WORDS = frozenset("\xa0\xad’‘–—·°")
_WESTERN_SIGNS = _WESTERN_QUOTATION | _WESTERN_SIGNS_IN_WORDS | frozenset("•€£¥¢§©®™¿¡ªº¹²³½¼¾×±µ†‰")

_CHARSET_NORMALIZER_CODECS = [
    "big5", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp932", "cp949",
    "euc_jp", "gb18030", "iso8859_2", "iso8859_5", "iso8859_7", "koi8_r", "koi8_u", "mac_roman", "tis_620",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Decoded:
    r"""The text of a file, with ``\n`` line ends, and its encoding.

    ``encoding`` is the name of a Python codec. If undecodable bytes were replaced by U+FFFD, the suffix
    ``(with replacements)`` follows after a space.
    """

    text: str
    encoding: str


def decode(data: bytes) -> Decoded:
    r"""Decode ``data`` with its most likely encoding. Never fails.

    A byte order mark is removed. ``\r\n`` becomes ``\n``. A lone ``\r`` becomes ``\n`` if the text has no ``\n`` at all
    (old Macintosh files). Otherwise it becomes a space, because ``sed`` and ``git`` do not treat it as a line end.
    """
    text, encoding = _decoded(data)
    return Decoded(_with_plain_newlines(text), encoding)


def declared_text(data: bytes, charset: str) -> str | None:
    """Decode ``data``, which declares the character set ``charset``. Return None if that is unknown or wrong.

    UTF-8 that is declared as something else counts as wrong, because other character sets accept it too. As in
    browsers, a character set is replaced by the larger one that contains it.
    """
    try:
        name = codecs.lookup(charset).name
        if name in _NOT_FOR_TEXTS or (not data.isascii() and not name.startswith("utf") and _is_utf8(data)):
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
    return controls > 0.05 and (controls > 0.3 or not _starts_as_utf8(sample))


def _decoded(data: bytes) -> tuple[str, str]:
    for bom, codec in _BOMS:
        if data.startswith(bom):
            return _lenient(data, codec)
    if b"\0" in data and (utf16 := _utf16_without_bom(data)):
        return _lenient(data, utf16)
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return _lenient(data, _legacy_codec(data))


def _lenient(data: bytes, codec: str) -> tuple[str, str]:
    try:
        return data.decode(codec), codec
    except UnicodeDecodeError:
        return data.decode(codec, "replace"), codec + _WITH_REPLACEMENTS


def _with_plain_newlines(text: str) -> str:
    if "\r" not in text:
        return text
    text = text.replace("\r\n", "\n")
    return text.replace("\r", " " if "\n" in text else "\n")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _starts_as_utf8(sample: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=False)
    except UnicodeDecodeError:
        return False
    return True


def _utf16_without_bom(data: bytes) -> str | None:
    """Return the UTF-16 codec of ``data`` without a byte order mark, or None if it is not UTF-16.

    The positions of NUL bytes give the byte order: they are the upper halves of ASCII characters.
    """
    sample = data[:_SNIFFED_BYTES]
    units = len(sample) // 2
    little, big = sample[1::2].count(0), sample[::2].count(0)
    nuls, codec = (little, "utf-16-le") if little >= big else (big, "utf-16-be")
    # Few NULs in a short sample, or among ASCII, mean a binary file. A longer text is judged by its characters below.
    if units < 2 or (nuls < units / 2 and (units < 16 or _starts_as_utf8(sample))):
        return None
    try:
        text = codecs.getincrementaldecoder(codec)().decode(sample, final=False)
    except UnicodeDecodeError:
        return None
    usual = sum(map(_is_usual, text))
    return codec if usual >= 0.95 * len(text) and not any(map(_is_impossible, text)) else None


def _is_impossible(char: str) -> bool:
    return char not in "\t\n\v\f\r\x1b" and unicodedata.category(char) in ("Cc", "Cn", "Co")


@lru_cache(maxsize=4096)
def _is_usual(char: str) -> bool:
    """Return whether ``char`` is alphabetic, or a Han character or syllable that a national standard includes.

    Random 16-bit numbers decode mostly to rare Han characters and Hangul syllables.
    """
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
    """Choose the codec for ``data``, which is not valid UTF-8."""
    sample = b"\n".join(_scored_lines(data))
    damaged = sample.decode("utf-8", "replace").count("\ufffd")
    if sum(map(len, _MULTIBYTE_UTF8.findall(sample))) >= 5 * damaged:
        return "utf-8"
    western, euc_jp = _lenient(sample, "cp1252")[0], _lenient(sample, "euc_jp")[0]
    shares = {
        "cp932": _japanese_share(_lenient(sample, "cp932")[0]),
        "cp1252": _western_share(western),
        # Chinese and Korean texts decode to kanji here, so only kana indicate Japanese.
        "euc_jp": _japanese_share(euc_jp) if _kana_share(euc_jp) > 0.2 else 0,
    }
    codec = max(shares, key=lambda name: shares[name])
    if shares[codec] >= 0.75 and (codec != "cp1252" or _is_western_spelling(western)):
        return codec
    if shares[codec] < 0.75 and 100 * damaged <= len(data):
        return "utf-8"
    from charset_normalizer import from_bytes

    guess = from_bytes(sample, cp_isolation=_CHARSET_NORMALIZER_CODECS).best()
    return codec if guess is None else guess.encoding


def _scored_lines(data: bytes) -> list[bytes]:
    """Return the lines of ``data`` with non-ASCII bytes, up to about 64 KB."""
    lines, size = [], 0
    for match in _BEYOND_ASCII.finditer(data):
        lines.append(match[0])
        size += len(match[0])
        if size >= _SCORED_BYTES:
            break
    return lines


def _western_share(text: str) -> float:
    """Return the share of non-ASCII characters that are plausible in a Western European text."""
    good = 0
    for match in _WORD.finditer(text):
        word = match[0]
        if not word.isascii() and _is_western_word(word):
            good += _count_beyond_ascii(word)
    for match in _SIGNS.finditer(text):
        run, signs = match[0], set(match[0])
        # Two different signs in a row are usually one character of another encoding, unless they are quotation marks.
        if len(signs) == 1 or signs <= _WESTERN_QUOTATION or "\xa0" in signs:
            in_word = (
                text[match.start() - 1 : match.start()].isalpha() and text[match.end() : match.end() + 1].isalpha()
            )
            good += sum(char in (_WESTERN_SIGNS_IN_WORDS if in_word else _WESTERN_SIGNS) for char in run)
    return good / _count_beyond_ascii(text)


def _is_western_spelling(text: str) -> bool:
    """Return whether one Western alphabet covers most of ``text``. Czech or Turkish read as Windows-1252 fails."""
    letters = [char for char in text.lower() if char in _WESTERN_LETTERS]
    covered = max(sum(char in alphabet for char in letters) for alphabet in _WESTERN_ALPHABETS)
    return len(letters) < 20 or covered >= 0.8 * len(letters)


def _is_western_word(word: str) -> bool:
    if len(word) == 1:
        return word in _WESTERN_ONE_LETTER_WORDS
    if not re.search("[A-Za-z]", word):
        uniform = word.islower() or word.isupper()
        return uniform and any(alphabet.issuperset(word.lower()) for alphabet in _WESTERN_ALPHABETS)
    letters = all(char.isascii() or char in _WESTERN_LETTERS for char in word)
    return letters and not _UNLIKELY_IN_WESTERN_WORD.search(word)


def _japanese_share(text: str) -> float:
    """Return the share of non-ASCII characters that are plausible in a Japanese text."""
    good = 0.0
    for run in re.finditer(r"[^\x00-\x7f]+", text):
        before, after = text[run.start() - 1 : run.start()], text[run.end() : run.end() + 1]
        # An accented letter and the ASCII letter after it decode to one kanji inside a word.
        alone = len(run[0]) == 1 and (before.isalpha() or after.isalpha())
        good += 0 if alone else sum(map(_japanese_weight, run[0]))
    return good / _count_beyond_ascii(text)


def _kana_share(text: str) -> float:
    return sum("\u3041" <= char <= "\u30ff" for char in text) / _count_beyond_ascii(text)


def _count_beyond_ascii(text: str) -> int:
    return sum(char > "\x7f" for char in text)


def _japanese_weight(char: str) -> float:
    if "\u3000" <= char <= "\u30ff" or "\uff01" <= char <= "\uff5e" or char in _common_kanji():
        return 1.0
    if char == "\ufffd" or unicodedata.category(char) in ("Cc", "Co"):
        return 0.0
    # Level 2 kanji and half-width katakana occur, but other encodings also decode to them.
    return 0.5


@lru_cache(maxsize=1)
def _common_kanji() -> frozenset[str]:
    """Return the 2,965 kanji of level 1 of JIS X 0208. Nearly all Japanese text consists of them."""
    cells = (bytes((row, cell)) for row in range(0xB0, 0xD0) for cell in range(0xA1, 0xFF))
    return frozenset("".join(cell.decode("euc_jp", "ignore") for cell in cells))

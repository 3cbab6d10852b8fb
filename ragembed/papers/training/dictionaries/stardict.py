"""Read StarDict dictionaries: ``NAME.ifo``, ``NAME.idx`` or ``NAME.idx.gz``, ``NAME.dict`` or ``NAME.dict.dz``.

Format: StarDict's ``StarDictFileFormat``. Each entry of the index is a word, a zero byte, and the big-endian offset and
size of its article. An article is a sequence of typed fields. A zero byte ends each text field except the last one.
"""

from __future__ import annotations

import gzip
import html
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from ragembed.errors import DictionaryError
from ragembed.evaluation.lines import lines
from ragembed.papers.training.dictionaries.dictd import read_articles
from ragembed.papers.training.dictionaries.senses import Sense

_PLAIN, _MARKED_UP = "mlw", "ghx"
_TAG = re.compile(r"<[^>]*>")


def read_stardict(ifo: Path) -> Iterator[Sense]:
    """Yield one sense per word of the index. The definition is the text of its article, without markup.

    Pronunciations, pictures and sounds are skipped. Raises :class:`DictionaryError` if a file is missing, truncated or
    inconsistent.
    """
    fields = dict(line.split("=", 1) for _, line in lines(ifo) if "=" in line)
    bits = fields.get("idxoffsetbits", "32").strip()
    if bits not in ("32", "64"):
        raise DictionaryError(f"{ifo}: idxoffsetbits is {bits!r}: expected 32 or 64")
    types = fields.get("sametypesequence", "").strip()
    articles = read_articles(ifo.with_suffix(".dict"))
    for word, offset, size in _index(_index_bytes(ifo), int(bits) // 8, ifo):
        if offset + size > len(articles):
            raise DictionaryError(
                f"{ifo}: the article of {word!r} ends at byte {offset + size:,}, but the file has only "
                f"{len(articles):,} bytes"
            )
        yield Sense(word, " ".join(_texts(articles[offset : offset + size], types, f"{ifo}, {word!r}")), str(ifo))


def _index_bytes(ifo: Path) -> bytes:
    plain, packed = ifo.with_suffix(".idx"), ifo.with_suffix(".idx.gz")
    try:
        return plain.read_bytes() if plain.is_file() else gzip.decompress(packed.read_bytes())
    except FileNotFoundError:
        raise DictionaryError(f"{ifo.parent} has neither {plain.name} nor {packed.name}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DictionaryError(f"{packed} cannot be unpacked: {error}") from error


def _index(data: bytes, width: int, ifo: Path) -> Iterator[tuple[str, int, int]]:
    at = 0
    while at < len(data):
        end = data.find(b"\0", at)
        stop = end + 1 + width + 4
        if end < 0 or stop > len(data):
            raise DictionaryError(f"{ifo.with_suffix('.idx')} is truncated at byte {at:,} of {len(data):,}")
        numbers = data[end + 1 : stop]
        word = data[at:end].decode("utf-8", "replace")
        yield word, int.from_bytes(numbers[:width], "big"), int.from_bytes(numbers[width:], "big")
        at = stop


def _texts(article: bytes, types: str, origin: str) -> Iterator[str]:
    """Yield the texts of an article. ``types`` are the types of its fields, or empty if each field has its own."""
    at, number = 0, 0
    while at < len(article) or number < len(types):
        if types:
            if number == len(types):
                return
            kind, number = types[number], number + 1
        else:
            kind, at = chr(article[at]), at + 1
        last = bool(types) and number == len(types)
        value, at = _field(article, at, kind, last, origin)
        if kind in _PLAIN:
            yield value.decode("utf-8", "replace")
        elif kind in _MARKED_UP:
            yield html.unescape(_TAG.sub(" ", value.decode("utf-8", "replace")))


def _field(article: bytes, at: int, kind: str, last: bool, origin: str) -> tuple[bytes, int]:
    """Return the value of a field, and the offset of the next field."""
    if last:
        return article[at:], len(article)
    if kind.isupper():
        start = at + 4
        size = int.from_bytes(article[at:start], "big")
        if start + size > len(article):
            raise DictionaryError(f"{origin}: a field of type {kind!r} has {size:,} bytes: it exceeds the article")
        return article[start : start + size], start + size
    if not kind.islower():
        raise DictionaryError(f"{origin}: unknown field type {kind!r}: expected a letter")
    end = article.find(b"\0", at)
    stop = len(article) if end < 0 else end
    return article[at:stop], stop + 1

"""Read dictd dictionaries: ``NAME.index`` with ``NAME.dict`` or ``NAME.dict.dz`` in the same folder.

A line of the index consists of a headword, an offset and a length, both in the base 64 of dictd (most significant digit
first). A fourth field, if present, is the headword in the form for display.
"""

from __future__ import annotations

import gzip
import string
import zlib
from collections.abc import Iterator
from pathlib import Path

from ragembed.errors import DictionaryError
from ragembed.evaluation.lines import lines
from ragembed.papers.training.dictionaries.senses import Sense

_DIGITS = {
    digit: value for value, digit in enumerate(f"{string.ascii_uppercase}{string.ascii_lowercase}{string.digits}+/")
}
_ABOUT = ("00-database", "00database")


def read_dictd(index: Path) -> Iterator[Sense]:
    """Yield one sense per headword of ``NAME.index``: the article, without a first line that repeats the headword.

    Headwords that describe the database itself are skipped. Raises :class:`DictionaryError` if the file with the
    articles is missing, or a line of the index points outside it.
    """
    articles = read_articles(index.with_suffix(".dict"))
    for number, line in lines(index):
        fields = line.split("\t")
        origin = f"{index}, line {number}"
        if len(fields) not in (3, 4):
            raise DictionaryError(
                f"{origin}: {len(fields)} fields: expected headword, offset and length, separated by tabs"
            )
        if fields[0].startswith(_ABOUT):
            continue
        offset, length = (_number(field, origin) for field in fields[1:3])
        if offset + length > len(articles):
            raise DictionaryError(
                f"{origin}: the article of {fields[0]!r} ends at byte {offset + length:,}, but the file has only "
                f"{len(articles):,} bytes"
            )
        entry = fields[3] if len(fields) == 4 else fields[0]
        article = articles[offset : offset + length].decode("utf-8", "replace")
        yield Sense(entry, _without_headword(article, entry), origin)


def read_articles(plain: Path) -> bytes:
    """Return the content of ``plain``, or of the same file with the suffix ``.dz`` (dictzip, a form of gzip)."""
    packed = plain.with_name(f"{plain.name}.dz")
    try:
        if plain.is_file():
            return plain.read_bytes()
        return gzip.decompress(packed.read_bytes())
    except FileNotFoundError:
        raise DictionaryError(f"{plain.parent} has neither {plain.name} nor {packed.name}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DictionaryError(f"{packed} cannot be unpacked: {error}") from error


def _number(text: str, origin: str) -> int:
    value = 0
    for digit in text:
        if digit not in _DIGITS:
            raise DictionaryError(f"{origin}: {text!r} is not a number in the base 64 of dictd")
        value = 64 * value + _DIGITS[digit]
    return value


def _without_headword(article: str, entry: str) -> str:
    first, _, rest = article.strip().partition("\n")
    return rest if rest.strip() and first.strip().lower().startswith(entry.strip().lower()) else article

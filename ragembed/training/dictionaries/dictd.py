"""Dictionaries of dictd: ``NAME.index`` beside ``NAME.dict`` or ``NAME.dict.dz``.

A line of the index is a headword, an offset and a length in the base 64 of dictd (most significant digit first), and
sometimes the headword as it is shown.
"""

from __future__ import annotations

import gzip
import string
import zlib
from collections.abc import Iterator
from pathlib import Path

from ragembed.errors import DictionaryError
from ragembed.evaluation.lines import lines
from ragembed.training.dictionaries.senses import Sense

_DIGITS = {
    digit: value for value, digit in enumerate(f"{string.ascii_uppercase}{string.ascii_lowercase}{string.digits}+/")
}
_ABOUT = ("00-database", "00database")


def read_dictd(index: Path) -> Iterator[Sense]:
    """Yield a sense for each headword of ``NAME.index``: the article, without the line that repeats the headword.

    Headwords that describe the database itself are left out. Raises :class:`DictionaryError` where the articles are
    missing, or a line of the index leads outside them.
    """
    articles = read_articles(index.with_suffix(".dict"))
    for number, line in lines(index):
        fields = line.split("\t")
        origin = f"{index}, line {number}"
        if len(fields) not in (3, 4):
            raise DictionaryError(f"{origin}: {len(fields)} fields: expected headword, offset and length, between tabs")
        if fields[0].startswith(_ABOUT):
            continue
        offset, length = (_number(field, origin) for field in fields[1:3])
        if offset + length > len(articles):
            raise DictionaryError(
                f"{origin}: the article of {fields[0]!r} ends at byte {offset + length:,} of {len(articles):,}"
            )
        entry = fields[3] if len(fields) == 4 else fields[0]
        article = articles[offset : offset + length].decode("utf-8", "replace")
        yield Sense(entry, _without_headword(article, entry), origin)


def read_articles(plain: Path) -> bytes:
    """Return the contents of ``plain``, or of the file of that name with ``.dz`` (dictzip, which is gzip) behind it."""
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
            raise DictionaryError(f"{origin}: {text!r} is no number in the base 64 of dictd")
        value = 64 * value + _DIGITS[digit]
    return value


def _without_headword(article: str, entry: str) -> str:
    first, _, rest = article.strip().partition("\n")
    return rest if rest.strip() and first.strip().lower().startswith(entry.strip().lower()) else article

"""WordNet's database files, as Debian's package ``wordnet-base`` has them below ``/usr/share/wordnet``.

Format: wndb(5WN). A line of a data file is ``offset lex_filenum ss_type w_cnt word lex_id [word lex_id …] … | gloss``;
lines that begin with a space are the licence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ragembed.errors import DictionaryError
from ragembed.training.dictionaries.senses import Sense

FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
_WORDS_AT = 4  # the field of the first word
_MARKER = re.compile(r"\((?:a|p|ip)\)$")  # where an adjective may stand
_EXAMPLE = re.compile(r'[;:]\s*"')


def read_wordnet(folder: Path) -> Iterator[Sense]:
    """Yield a sense for each word of each synset; the definition is its gloss up to the first example.

    An underscore in a word is a space. Raises :class:`DictionaryError` where ``folder`` lacks one of :data:`FILES`, or
    a line is none of WordNet's.
    """
    for name in FILES:
        file = folder / name
        if not file.is_file():
            raise DictionaryError(f"{folder} has no {name}: expected WordNet's {', '.join(FILES)}")
        with file.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                if not line.startswith(" "):
                    yield from _synset(line, f"{file}, line {number}")


def _synset(line: str, origin: str) -> Iterator[Sense]:
    data, bar, gloss = line.partition(" | ")
    fields = data.split(" ")
    try:
        count = int(fields[3], 16)
        words = [fields[_WORDS_AT + 2 * i] for i in range(count)]
    except (IndexError, ValueError) as error:
        raise DictionaryError(f"{origin}: no synset of WordNet's: {line[:80]!r}") from error
    if not bar:
        raise DictionaryError(f"{origin}: the synset of {words[:1]} has no gloss behind ' | '")
    definition = _EXAMPLE.split(gloss, maxsplit=1)[0].strip().rstrip(";").rstrip()
    for word in words:
        yield Sense(_MARKER.sub("", word).replace("_", " "), definition, origin)

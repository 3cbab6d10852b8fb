"""Read the database files of WordNet. Debian's package ``wordnet-base`` installs them in ``/usr/share/wordnet``.

Format: wndb(5WN). A line of a data file is ``offset lex_filenum ss_type w_cnt word lex_id [word lex_id …] … | gloss``.
Lines that start with a space contain the licence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ragembed.errors import DictionaryError
from ragembed.papers.training.dictionaries.senses import Sense

FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
_WORDS_AT = 4  # the field of the first word
_MARKER = re.compile(r"\((?:a|p|ip)\)$")  # the allowed syntactic position of an adjective
_EXAMPLE = re.compile(r'[;:]\s*"')


def read_wordnet(folder: Path) -> Iterator[Sense]:
    """Yield one sense per word of each synset. The definition is the gloss up to the first example.

    Underscores in words become spaces. Raises :class:`DictionaryError` if one of :data:`FILES` is missing in
    ``folder``, or a line is not in WordNet's format.
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
        raise DictionaryError(f"{origin}: expected a synset in WordNet's format, found {line[:80]!r}") from error
    if not bar:
        raise DictionaryError(f"{origin}: the synset of {words[:1]} has no gloss: expected one after ' | '")
    definition = _EXAMPLE.split(gloss, maxsplit=1)[0].strip().rstrip(";").rstrip()
    for word in words:
        yield Sense(_MARKER.sub("", word).replace("_", " "), definition, origin)

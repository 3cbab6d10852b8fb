"""A corpus in a file: texts to fit on that are not those to be searched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ragembed.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Corpus:
    """The lines of a UTF-8 text file that are not blank, each a text; read anew each time it is gone through.

    Raises :class:`ConfigError` where the file cannot be read or is not UTF-8.
    """

    path: Path

    def __iter__(self) -> Iterator[str]:
        try:
            with self.path.open(encoding="utf-8-sig") as lines:
                yield from (line.strip() for line in lines if not line.isspace())
        except UnicodeDecodeError as error:
            raise ConfigError(f"the corpus {self.path} is not UTF-8: {error.reason} at byte {error.start}") from None
        except OSError as error:
            raise ConfigError(f"the corpus {self.path} cannot be read: {error.strerror}") from error

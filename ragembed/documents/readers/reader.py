"""The reader of a format and its options."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath

from ragembed.documents.model import Member, ParsedDocument
from ragembed.documents.readers.structure import text_of
from ragembed.errors import DocumentError, RagembedError


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a file. The columns apply only to formats with columns: csv, tsv, jsonl, spreadsheets.

    ``text_columns`` are the columns that make up the text, in this order. By default, the text consists of all columns;
    for JSON lines, it is the first of ``text``, ``content``, ``body``, ``document`` and ``abstract`` that contains
    text. ``title_column`` is the column of the title. ``id_column`` is excluded from the text and kept in the metadata
    under its own name. ``on_warning`` is called with one sentence if a part of a valid file is skipped.

    The rest applies to the members of archives and mails: larger ones than ``max_member_bytes`` are skipped with a
    warning, and those whose path ``ignores_member`` accepts without one.
    """

    text_columns: tuple[str, ...] = ()
    id_column: str | None = None
    title_column: str | None = None
    on_warning: Callable[[str], None] | None = None
    max_member_bytes: int = 20 * 1024 * 1024
    ignores_member: Callable[[str], bool] | None = None

    def named_columns(self) -> tuple[str, ...]:
        """Return all columns named in the options, to check them against the columns of the file."""
        return tuple(name for name in (*self.text_columns, self.id_column, self.title_column) if name)

    def warn(self, message: str) -> None:
        """Call ``on_warning`` with ``message``, if it is set."""
        if self.on_warning is not None:
            self.on_warning(message)


DEFAULT_OPTIONS = ReadOptions()


@dataclass(frozen=True)
class RawFile:
    """A file or a member of one, as its reader gets it: its name, its bytes, and the options."""

    name: str
    data: bytes
    options: ReadOptions

    @property
    def suffix(self) -> str:
        """The suffix of the name, in lower case."""
        return PurePosixPath(self.name).suffix.lower()

    @property
    def text(self) -> str:
        """The decoded content. Raises :class:`DocumentError` if it is binary."""
        return text_of(self.data)


Parse = Callable[[RawFile], Iterator[ParsedDocument | Member]]


@dataclass(frozen=True)
class Reader:
    """The reader of one format.

    ``version`` increases when the output changes. ``package`` is the optional package that the reader needs.
    ``parse(file)`` yields the documents and members of a file. It raises
    :class:`~ragembed.errors.DocumentError` for a broken file, and :class:`~ragembed.errors.MissingExtraError` if its
    package is not installed. ``contains_files`` is true for archives and mails, whose members other readers read.
    """

    name: str
    version: int
    suffixes: tuple[str, ...]
    parse: Parse
    package: str | None = None
    contains_files: bool = False


@contextmanager
def only_document_errors() -> Iterator[None]:
    """Convert unexpected exceptions during the reading and chunking of one file to a :class:`DocumentError`.

    Too little memory is an :class:`OSError`, because a later run may succeed.
    """
    try:
        yield
    except (RagembedError, OSError):
        raise
    except MemoryError as error:
        raise OSError(errno.ENOMEM, "not enough memory to read it") from error
    except RecursionError as error:
        raise DocumentError("nested too deeply") from error
    # Any file may be malformed in ways that its reader does not expect, and one bad file must not stop a run.
    except Exception as error:
        raise DocumentError(f"its reader failed with {type(error).__name__}: {error}") from error

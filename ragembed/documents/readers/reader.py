"""What a reader is: its name, the files that it takes, and the options that it may look at."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ragembed.documents.model import ParsedDocument
from ragembed.errors import DocumentError, RagembedError


@dataclass(frozen=True)
class ReadOptions:
    """What to take from a file; only formats with columns (csv, tsv, jsonl) look at the columns.

    ``text_columns`` make the text, in this order; empty means: all columns, or for JSON lines the first of
    ``text``, ``content``, ``body``, ``document`` and ``abstract`` that holds a text. ``title_column`` gives the
    title. ``id_column`` is kept out of the text and stays in the metadata under its own name. ``on_warning``
    is called with one sentence for what was left out of a file that is otherwise good.
    """

    text_columns: tuple[str, ...] = ()
    id_column: str | None = None
    title_column: str | None = None
    on_warning: Callable[[str], None] | None = None

    def named_columns(self) -> tuple[str, ...]:
        """Every column that the options name, to be checked against those of the file."""
        return tuple(name for name in (*self.text_columns, self.id_column, self.title_column) if name)

    def warn(self, message: str) -> None:
        """Pass ``message`` on, if anybody listens."""
        if self.on_warning is not None:
            self.on_warning(message)


DEFAULT_OPTIONS = ReadOptions()

Parse = Callable[[Path, bytes, ReadOptions], Iterator[ParsedDocument]]


@dataclass(frozen=True)
class Reader:
    """One format: ``version`` is raised when the output changes, ``extra`` names the packages it needs.

    ``parse(path, data, options)`` takes the file's bytes; of ``path`` it uses the name only. It raises
    :class:`~ragembed.errors.DocumentError` for a broken file and
    :class:`~ragembed.errors.MissingExtraError` where its package is not installed.
    """

    name: str
    version: int
    suffixes: tuple[str, ...]
    parse: Parse
    extra: str | None = None


@contextmanager
def only_document_errors() -> Iterator[None]:
    """Turn whatever goes wrong while one file is read and chunked into an error about this file.

    Raises
    ------
    DocumentError
        A reader, the chunker or a package they use raised something unexpected.
    OSError
        The file needs more memory than there is; another run may have it.
    """
    try:
        yield
    except (RagembedError, OSError):
        raise
    except MemoryError as error:
        raise OSError(errno.ENOMEM, "there is not enough memory for it") from error
    except RecursionError as error:
        raise DocumentError("it is nested too deeply") from error
    # Files come from anywhere, and no reader can foresee what is wrong with them: one bad file never stops a run.
    except Exception as error:
        raise DocumentError(f"its reader failed with {type(error).__name__}: {error}") from error

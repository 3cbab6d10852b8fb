"""The reader of a format, its options, and the members of containers (archives and mails).

The reader of a container yields :class:`Member` objects beside its own documents, and never reads a member itself. So
containers inside containers are read by the same code, and one set of limits covers all levels.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from ragembed.documents.model import Member, ParsedDocument
from ragembed.documents.readers.structure import text_of
from ragembed.errors import ConfigError, DocumentError, MissingExtraError, RagembedError


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a file.

    The columns, of formats with columns, make up the text (by default all; for JSON lines the first known key with
    text) and the title. ``on_warning`` gets a sentence about each part that is skipped. The rest limits the members of
    archives and mails.
    """

    text_columns: tuple[str, ...] = ()
    title_column: str | None = None
    on_warning: Callable[[str], None] | None = None
    max_member_bytes: int = 20 * 1024 * 1024
    ignores_member: Callable[[str], bool] | None = None

    def named_columns(self) -> tuple[str, ...]:
        """Return all columns named in the options, to check them against the columns of the file."""
        return tuple(name for name in (*self.text_columns, self.title_column) if name)

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
    """The reader of a format or container. ``version`` increases when its output changes."""

    name: str
    version: int
    suffixes: tuple[str, ...]
    parse: Parse
    package: str | None = None
    contains_files: bool = False


@contextmanager
def only_document_errors() -> Iterator[None]:
    """Convert unexpected exceptions to :class:`DocumentError`, and too little memory to :class:`OSError`."""
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


DEEPEST_MEMBER = 3
"""Maximum number of containers around a member: a file in an archive in a mail in an archive."""
MOST_MEMBERS = 10_000
"""Maximum number of members of a file, on all levels together."""
LARGEST_TOTAL = 5
"""Maximum size of the unpacked members of a file, on all levels together, as a multiple of that of one member."""
LARGEST_RATIO = 100
"""Maximum ratio of the unpacked to the packed size of large members. Text reaches about 20, a zip bomb 1,000."""
SMALLEST_BOMB = 1_000_000
"""Members of at most this size, in bytes, may have any ratio."""
_MOST_REASONS, _MOST_NAMES = 20, 3


Parts = Iterable[ParsedDocument | Member]


class MemberReader:
    """Reads the documents of one file and of its members. ``parse`` reads a member by its name."""

    def __init__(self, parse: Parse, options: ReadOptions) -> None:
        self._parse = parse
        self._options = options
        self._members = MOST_MEMBERS
        self._bytes = LARGEST_TOTAL * options.max_member_bytes
        self._unread: dict[str, list[str]] = {}

    def documents(self, parts: Parts) -> Iterator[ParsedDocument]:
        """Yield the documents of the file and its members, and warn of members that are not read."""
        empty = True
        for document in self._documents(parts, "", {}, 0):
            empty = False
            yield document
        reasons = list(self._reasons())
        if empty:
            raise DocumentError("contains no text" + (f": {reasons[0]}" if reasons else ""))
        for reason in reasons:
            self._options.warn(reason)

    def _documents(self, parts: Parts, above: str, metadata: Mapping[str, Any], depth: int) -> Iterator[ParsedDocument]:
        """Yield the documents of a container. ``above`` is its path in the file, empty for the file itself."""
        for part in parts:
            if isinstance(part, Member):
                path = f"{above}/{part.name}" if above else part.name
                yield from self._read(part, path, {**metadata, **part.metadata}, depth + 1)
            elif part.blocks:
                extra = {"member": above} if above else {}
                yield replace(part, metadata={**metadata, **part.metadata, **extra})

    def _read(self, member: Member, path: str, metadata: Mapping[str, Any], depth: int) -> Iterator[ParsedDocument]:
        ignores = self._options.ignores_member
        if ignores is not None and ignores(member.name):
            return
        reason = member.refused or self._over_limit(member, depth)
        if reason is not None:
            self._unread.setdefault(reason, []).append(path)
            return
        options = replace(self._options, on_warning=lambda message: self._options.warn(f"{path}: {message}"))
        empty = True
        try:
            with only_document_errors():
                self._bytes -= member.size
                content = member.load()
                parts = self._parse(RawFile(member.name, content, options)) if isinstance(content, bytes) else content
                for document in self._documents(parts, path, metadata, depth):
                    empty = False
                    yield document
        except (ConfigError, DocumentError, MissingExtraError) as error:
            self._unread.setdefault(str(error), []).append(path)
        else:
            if empty:
                self._unread.setdefault("contains no text", []).append(path)

    def _over_limit(self, member: Member, depth: int) -> str | None:
        self._members -= 1
        limit = self._options.max_member_bytes
        if self._members < 0:
            return f"the file has more than {MOST_MEMBERS:,} members"
        if depth > DEEPEST_MEMBER:
            return f"nested in more than {DEEPEST_MEMBER} files"
        if member.size > limit:
            return f"larger than {limit:,} bytes (--max-size)"
        if member.packed is not None and member.size > max(SMALLEST_BOMB, LARGEST_RATIO * member.packed):
            return f"unpacks to more than {LARGEST_RATIO} times its size"
        if member.size > self._bytes:
            return f"the members of the file have more than {LARGEST_TOTAL * limit:,} bytes (--max-size)"
        return None

    def _reasons(self) -> Iterator[str]:
        """Yield one sentence per reason, with the names of the first members."""
        for number, (reason, paths) in enumerate(self._unread.items()):
            if number == _MOST_REASONS:
                yield f"members are not read for {len(self._unread) - number:,} other reasons"
                return
            names = ", ".join(paths[:_MOST_NAMES]) + (", …" if len(paths) > _MOST_NAMES else "")
            yield (
                f"{len(paths):,} members are not read ({names}): {reason}"
                if len(paths) > 1
                else (f"{names} is not read: {reason}")
            )

"""Zip packages with XML parts: the container of Office Open XML, OpenDocument and EPUB files.

Sizes are checked while a part is unpacked, because those that a package declares can be false. The standard library
parses the XML without external resources, and parts with declarations, which could define entities, are refused.
"""

from __future__ import annotations

import posixpath
import xml.etree.ElementTree as ET
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import cast
from urllib.parse import unquote
from xml.parsers import expat

from ragembed.documents.readers.structure import OLE_MAGIC, LimitExceededError
from ragembed.errors import DocumentError

LARGEST_PACKAGE = 200_000_000
"""Maximum size of all parts that are read, unpacked, in bytes. Pictures and other media are not read."""
HIGHEST_RATIO = 250
"""Maximum ratio of unpacked to packed size, for parts above ``RATIO_FROM``. Deflate reaches 1,032 with equal bytes."""
RATIO_FROM = 10_000_000
MOST_ELEMENTS = 4_000_000
"""Maximum number of XML elements of a package."""
DEEPEST_XML = 256
LARGEST_PIECE = 20_000_000
"""Maximum size of XML that is held at once, such as one paragraph, row or slide, in bytes."""
MOST_NODES_HELD = 500_000
"""Maximum number of elements and attributes that are held at once."""
LARGEST_TOKEN = 4_000_000
"""Maximum distance between the beginnings of two elements, in bytes."""
MOST_NAMES = 10_000
"""Maximum number of different names of elements and attributes in a part. The formats have some hundreds."""
MOST_MEMBERS = 50_000
_CHUNK = 65_536

_UNPACKING_ERRORS = (
    *(EOFError, NotImplementedError, OSError, RuntimeError, ValueError),  # ValueError: a place before the file
    *(zipfile.BadZipFile, zlib.error),
)


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation of a part of an Office Open XML file: the last part of its type, and the name of the target."""

    kind: str
    target: str


@dataclass(slots=True)
class _Usage:
    """What has been read of a package and of those inside it: unpacked bytes and XML elements."""

    unpacked: int = 0
    elements: int = 0


class ZipPackage:
    """A zip package of the format ``kind``; its limits and those of the package ``outer`` around it are the same.

    ``namespaces`` has the prefix for the tags of each XML namespace; without it, all tags are local names.
    """

    def __init__(
        self, data: bytes, kind: str, namespaces: Mapping[str, str] | None = None, outer: ZipPackage | None = None
    ) -> None:
        self.kind = kind
        self.outer = outer
        self._namespaces = namespaces
        if data.startswith(OLE_MAGIC):
            raise DocumentError("encrypted, or in the Office format from before 2007")
        try:
            self._archive = zipfile.ZipFile(BytesIO(data))
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise DocumentError(f"broken zip: {error}") from error
        members = self._archive.infolist()
        if len(members) > MOST_MEMBERS:
            raise LimitExceededError(f"{len(members):,} parts in its zip: the limit is {MOST_MEMBERS:,}")
        self.names = {member.filename: member for member in members}
        if any(member.flag_bits & 1 for member in members):
            raise DocumentError("encrypted zip")
        self._usage: _Usage = outer._usage if outer else _Usage()
        self._relations: dict[str, dict[str, Relation]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def read(self, name: str) -> bytes:
        """Return the content of a part."""
        return b"".join(self.chunks(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a part in chunks. Raises like :meth:`read`."""
        member = self.names.get(name)
        if member is None:
            raise DocumentError(f"broken {self.kind}: {name!r} is missing")
        # Other methods are valid in a zip file, but not in the formats, and zipfile does not limit their output.
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DocumentError(f"broken {self.kind}: {name!r} is compressed with method {member.compress_type}")
        size = 0
        try:
            with self._archive.open(member) as file:
                while chunk := file.read(_CHUNK):
                    size += len(chunk)
                    self._usage.unpacked += len(chunk)
                    self._check_size(name, size, member.compress_size)
                    yield chunk
        except _UNPACKING_ERRORS as error:
            raise DocumentError(f"broken {self.kind}: {name!r} cannot be unpacked") from error

    def _check_size(self, name: str, size: int, packed: int) -> None:
        if self._usage.unpacked > LARGEST_PACKAGE:
            raise LimitExceededError(f"unpacks to more than {LARGEST_PACKAGE:,} bytes of text parts")
        if size > RATIO_FROM and size > HIGHEST_RATIO * packed:
            raise LimitExceededError(f"{name!r} unpacks to more than {HIGHEST_RATIO} times its packed size")

    def tree(self, name: str) -> ET.Element:
        """Return the root element of a small XML part. Raises like :meth:`pieces`."""
        (root,) = self.pieces(name, ())
        return root

    def pieces(self, name: str, containers: Collection[str]) -> Iterator[ET.Element]:
        """Yield the elements of an XML part, so that only one is in memory at a time.

        A container, whose tag and those of its ancestors are in ``containers``, is yielded at its start, without
        content; each other child of a container as a complete tree.
        """
        reader = _PieceReader(name, containers, self._namespaces)
        try:
            for chunk in _without_dtd(self.chunks(name), name):
                yield from reader.feed(chunk)
                if self._usage.elements + reader.elements > MOST_ELEMENTS:
                    raise LimitExceededError(f"more than {MOST_ELEMENTS:,} XML elements")
            yield from reader.close()
        except (ET.ParseError, expat.ExpatError, LookupError, ValueError) as error:
            raise DocumentError(f"broken {self.kind}: {name!r} is malformed: {error}") from error
        finally:
            self._usage.elements += reader.elements

    def relations(self, name: str) -> dict[str, Relation]:
        """Return the relations of a part by id, or of the package for ``name=""``. External targets are left out."""
        if name not in self._relations:
            self._relations[name] = self._read_relations(name)
        return self._relations[name]

    def _read_relations(self, name: str) -> dict[str, Relation]:
        folder, base = posixpath.split(name)
        part = posixpath.join(folder, "_rels", f"{base}.rels")
        if part not in self:
            return {}
        found = {}
        for relation in self.tree(part):
            target = unquote(relation.get("Target", ""))
            if relation.get("TargetMode") == "External" or not target:
                continue
            kind = relation.get("Type", "").rpartition("/")[2]
            path = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
            found[relation.get("Id", "")] = Relation(kind, path)
        return found

    def related(self, name: str, kind: str) -> list[str]:
        """Return the parts that ``name`` refers to with a relation of this kind, if the package contains them."""
        return [found.target for found in self.relations(name).values() if found.kind == kind and found.target in self]


class _PieceReader:
    """Parses one XML part incrementally, and keeps only the piece that is not complete yet."""

    def __init__(self, name: str, containers: Collection[str], namespaces: Mapping[str, str] | None) -> None:
        self.elements = 0
        self._name = name
        self._namespaces = namespaces
        self._containers = containers
        self._parser: ET.XMLPullParser[ET.Element] = ET.XMLPullParser(events=("start", "end"))
        self._open: list[ET.Element] = []
        self._depth = 0  # the number of open containers, which are the outermost open elements
        self._in_container = True  # whether all open elements are containers
        self._local: dict[str, str] = {}
        self._attributes: set[str] = set()
        self._held_nodes = 0
        self._held_bytes = 0
        self._silent_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[ET.Element]:
        """Parse a chunk and yield the pieces that it completes."""
        self._parser.feed(chunk)
        self._held_bytes += len(chunk)
        before = self.elements
        yield from self._complete()
        self._silent_bytes = self._silent_bytes + len(chunk) if self.elements == before else 0
        if self._held_nodes > MOST_NODES_HELD or self._held_bytes > LARGEST_PIECE:
            raise LimitExceededError(f"a piece of {self._name!r} is larger than {LARGEST_PIECE // 1_000_000} MB of XML")
        if self._silent_bytes > LARGEST_TOKEN:
            raise LimitExceededError(f"a tag or text in {self._name!r} is longer than {LARGEST_TOKEN // 1_000_000} MB")

    def close(self) -> Iterator[ET.Element]:
        """Yield the last pieces. Raises :class:`ET.ParseError` if the part is not complete."""
        self._parser.close()
        yield from self._complete()

    def _complete(self) -> Iterator[ET.Element]:
        """Yield the containers that begin and the pieces that end, and shorten tags."""
        events = cast("Iterator[tuple[str, ET.Element]]", self._parser.read_events())
        for event, element in events:
            if event == "start":
                tag = element.tag
                local = self._local.get(tag)
                if local is None:
                    local = self._new_name(tag)
                element.tag = local
                attributes = element.keys()
                if attributes and not self._attributes.issuperset(attributes):
                    self._new_attributes(attributes)
                self.elements += 1
                self._held_nodes += 1 + len(attributes)
                container = self._in_container and local in self._containers
                if len(self._open) >= DEEPEST_XML:
                    raise LimitExceededError(f"nested too deeply: {self._name!r} has more than {DEEPEST_XML} levels")
                self._open.append(element)
                if container:
                    self._depth += 1
                    yield element
                else:
                    self._in_container = False
                continue
            self._open.pop()
            depth = len(self._open)
            if depth > self._depth:
                continue
            if self._in_container:
                self._depth -= 1
            else:
                self._in_container = True
                yield element
                self._held_nodes = self._held_bytes = 0
            if self._open:
                self._open[-1].remove(element)

    def _new_name(self, tag: str) -> str:
        namespace, _, local = tag.rpartition("}")
        prefix = "" if self._namespaces is None or not namespace else self._namespaces.get(namespace[1:])
        self._local[tag] = tag if prefix is None else prefix + local
        self._check_names()
        return self._local[tag]

    def _new_attributes(self, names: Iterable[str]) -> None:
        self._attributes.update(names)
        self._check_names()

    def _check_names(self) -> None:
        if len(self._local) + len(self._attributes) > MOST_NAMES:
            raise LimitExceededError(f"{self._name!r} has more than {MOST_NAMES:,} different XML names")


def _without_dtd(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield the chunks. A document type may name a file, which is not loaded, but have no declarations."""
    guard = expat.ParserCreate()
    started: list[str] = []

    def check(_name: str, _system: str | None, _public: str | None, has_declarations: bool) -> None:
        if has_declarations:
            raise LimitExceededError(f"{name!r} declares a document type (DTD), which could define entities")

    guard.StartDoctypeDeclHandler = check
    guard.StartElementHandler = lambda tag, _: started.append(tag)
    for chunk in chunks:
        if not started:
            guard.Parse(chunk)
            if started:
                guard.StartElementHandler = None
        yield chunk


def attribute(element: ET.Element, name: str, default: str = "") -> str:
    """Return an attribute by its name without namespace."""
    for key, value in element.items():
        if key == name or key.endswith(f"}}{name}"):
            return value
    return default


def value_of(element: ET.Element | None, name: str, default: str = "") -> str:
    """Return the attribute ``val`` of a child, in which Office keeps properties."""
    child = None if element is None else element.find(name)
    return default if child is None else attribute(child, "val", default)


def whole_number(text: str, default: int = 0) -> int:
    """Return a decimal integer, or ``default`` if ``text`` is not one or has more than nine digits."""
    return int(text) if text.isascii() and text.lstrip("-").isdecimal() and len(text) < 10 else default

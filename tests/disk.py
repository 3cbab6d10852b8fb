"""A simulated disk: what it holds if the power fails after each change that a process makes, and processes with faults.

``disk.c`` is preloaded into a process and logs its changes below a folder. Replaying the log gives the disk after each
change. Only what was forced to disk is there for certain: the content of a file that was, and the names in a folder
that was. Needs Linux and a C compiler.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import pytest

from ragembed.indexes.storage.layout import COMMITTED_SUFFIX, DATABASE

SOURCE = Path(__file__).with_name("disk.c")


def build_library(folder: Path) -> Path:
    """Compile ``disk.c``, or skip the test."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("a simulated disk needs Linux and a C compiler")
    library = folder / "disk.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip(f"the compiler does not build disk.c: {built.stderr[-300:]}")
    return library


@dataclass(frozen=True)
class Faults:
    """The n-th change of a process does not happen, counted from 1; ``kind`` is ``kill``, ``EIO`` or ``ENOSPC``."""

    kind: str
    nth: int


def run(
    library: Path, folder: Path, log: Path, code: str, arguments: Sequence[str] = (), faults: Faults | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python code in ``folder``, whose changes are logged to the folder ``log``."""
    log.mkdir()
    disk = {"LD_PRELOAD": str(library), "DISK_ROOT": str(folder), "DISK_LOG": str(log)}
    if faults is not None:
        disk |= {"DISK_FAULT": faults.kind, "DISK_FAULT_AT": str(faults.nth)}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={**os.environ, **disk},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


class Survives(Enum):
    """What a power failure leaves of the changes that were not forced to disk."""

    NOTHING = "nothing"
    NAMES = "names"
    SIZES = "names and sizes"


@dataclass(eq=False)
class _Node:
    """A file or folder, with what is forced to disk."""

    is_folder: bool = False
    names: dict[str, _Node] = field(default_factory=dict)
    names_on_disk: dict[str, _Node] = field(default_factory=dict)
    size: int = 0
    on_disk: bytes = b""

    digest: bytes = b""

    def hold(self, data: bytes) -> None:
        self.on_disk, self.digest = data, hashlib.sha256(data).digest()

    def length(self, survives: Survives) -> int:
        return self.size if survives is Survives.SIZES else len(self.on_disk)

    def content(self, survives: Survives) -> bytes:
        length = self.length(survives)
        return self.on_disk[:length].ljust(length, b"\0")


@dataclass(frozen=True)
class State:
    """The disk after a power failure: files by path, with None for folders.

    ``changes`` is the number of changes before it, and ``generation`` that of the last commit that was reported.
    """

    changes: int
    survives: Survives
    generation: int
    files: Mapping[str, bytes | None]

    def write(self, folder: Path) -> None:
        """Write the state below a new folder."""
        folder.mkdir()
        for name, content in self.files.items():
            if content is None:
                (folder / name).mkdir(0o700)
            else:
                (folder / name).write_bytes(content)


def states(before: Path, folder: Path, log: Path) -> Iterator[State]:
    """Yield each different state that the log allows, starting from a disk with a copy ``before`` of ``folder``.

    The last state in which nothing else survives is what is certain after the process has ended.
    """
    root = _read(before)
    seen: set[bytes] = set()
    generation = 0
    lines = (log / "log").read_text(encoding="utf-8").splitlines()
    for changes in range(len(lines) + 1):
        if changes:
            generation = _change(root, folder, log, lines[changes - 1].split("\t"), generation)
        for survives in Survives:
            nodes = dict(sorted(_nodes(root, survives)))
            held = [(name, node.is_folder, node.digest, node.length(survives)) for name, node in nodes.items()]
            digest = hashlib.sha256(repr(held).encode()).digest()
            last = changes == len(lines) and survives is Survives.NOTHING
            if last or digest not in seen:
                seen.add(digest)
                files = {name: None if node.is_folder else node.content(survives) for name, node in nodes.items()}
                yield State(changes, survives, generation, files)


def _read(folder: Path) -> _Node:
    node = _Node(is_folder=True)
    for entry in folder.iterdir():
        if entry.is_dir():
            node.names[entry.name] = _read(entry)
        else:
            node.names[entry.name] = file = _Node(size=entry.stat().st_size)
            file.hold(entry.read_bytes())
    node.names_on_disk = dict(node.names)
    return node


def _nodes(folder: _Node, survives: Survives, above: str = "") -> Iterator[tuple[str, _Node]]:
    for name, node in (folder.names_on_disk if survives is Survives.NOTHING else folder.names).items():
        yield above + name, node
        yield from _nodes(node, survives, f"{above}{name}/")


def _change(root: _Node, folder: Path, log: Path, line: Sequence[str], generation: int) -> int:
    """Make one logged change; return the number of the last reported commit after it."""
    change, path, *rest = line
    above, name = _place(root, folder, path)
    if above is None or (change not in ("create", "mkdir", "folder") and name not in above.names):
        return generation  # a file without a name
    if change in ("create", "mkdir"):
        above.names[name] = _Node(is_folder=change == "mkdir")
    elif change == "folder":
        node = above.names[name] if name else root
        node.names_on_disk = dict(node.names)
    elif change == "remove":
        del above.names[name]
    elif change == "rename":
        node = above.names.pop(name)
        target, renamed = _place(root, folder, rest[0])
        assert target is not None
        target.names[renamed] = node
    elif change == "size":
        above.names[name].size = int(rest[0])
        written = bytes.fromhex(rest[1]) if len(rest) > 1 else b""
        if name == DATABASE + COMMITTED_SUFFIX and written:
            return int(written)
    else:
        assert change == "sync"
        above.names[name].hold((log / rest[0]).read_bytes())
    return generation


def _place(root: _Node, folder: Path, path: str) -> tuple[_Node | None, str]:
    """Return the folder of a path, or None if it is not there, and the name; the name of the root is empty."""
    *above, name = Path(path).relative_to(folder).parts or ("",)
    node: _Node | None = root
    for step in above:
        node = None if node is None else node.names.get(step)
    return node, name

"""The skipped files of a run in one line: ``20 images, 3 archives too large``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import PurePosixPath

from ragembed.documents.readers.registry import named_reader, unread_reason

_KINDS = (
    (r"over the limit|the limit is|unpacks to more|more than [\d,]+ ", "{} too large"),
    (r"ragembed\[(?P<extra>\w+)\]", "{} without the extra {}"),
    (r"no converter", "{} without a converter"),
    (r"contains no text", "{} without text"),
    (r"encrypted", "encrypted {}"),
    (r"minified", "minified files"),
    (r"a lock file|a source map|generated code", "generated files"),
    (r"symbolic link", "symbolic links"),
    (r"a named pipe|a socket|a device", "special files"),
    (r"cannot be (?:read|opened|accessed|listed)|not valid Unicode", "unreadable files"),
)
"""Patterns of reasons (the first that matches counts) and what is counted; ``{}`` is the kind of the file."""
_PLURAL = re.compile(r"(?:(?<=x)es|s)(?= |$)")


def skip_counts(skipped: Mapping[str, str]) -> str:
    """Return the numbers of skipped files by kind and reason, the most frequent first. ``skipped`` has the reasons."""
    counts = Counter(_kind(name, reason) for name, reason in skipped.items())
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {_PLURAL.sub('', kind, count=1) if count == 1 else kind}" for kind, count in ordered)


def _kind(name: str, reason: str) -> str:
    name = PurePosixPath(name).name
    unread = unread_reason(name)
    if reason == unread:
        return _noun(name)
    for pattern, kind in _KINDS:
        if match := re.search(pattern, reason):
            return kind.format(_noun(name), match.groupdict().get("extra"))
    return f"broken {_noun(name)}"


def _noun(name: str) -> str:
    """Return the kind of a file in the plural, such as ``images`` and ``pdf files``."""
    what = re.search(r": (?:an? )?(.+?)(?: or .*?)?[;,]", unread_reason(name))
    if what is not None and not what[1].startswith("neither"):
        kind, of, whose = what[1].partition(" of ")
        return f"{kind.removesuffix('s')}{'es' if kind.endswith('x') else 's'}{of}{whose}"
    reader = named_reader(name)
    if reader is None:
        return "files of unknown format"
    return "archives" if reader.name in ("zip", "tar") else f"{reader.name} files"

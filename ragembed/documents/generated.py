"""Recognise files that programs write for programs: lock files, source maps, minified and generated code.

They repeat what other files say, in a form that nobody reads, so they would only displace better hits.
"""

from __future__ import annotations

import re

from ragembed.documents.readers.registry import named_reader

LOCK_FILES = frozenset((
    "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "deno.lock", "poetry.lock",
    "pdm.lock", "uv.lock", "pipfile.lock", "cargo.lock", "composer.lock", "gemfile.lock", "mix.lock", "podfile.lock",
    "pubspec.lock", "flake.lock", "go.sum", "gradle.lockfile", "packages.lock.json", ".terraform.lock.hcl",
))  # fmt: skip
SOURCE_MAP = re.compile(r".\.(?:js|mjs|cjs|css|ts)\.map$")
MINIFIED = re.compile(r".[.-]min\.(?:js|mjs|cjs|css)$")
CODE = frozenset(("source", "sql", "yaml", "settings"))
"""Readers of files in which a note about their generator counts. Documents such as manual pages are often generated."""
MINIFIED_SUFFIXES = (".js", ".mjs", ".cjs", ".css")
LONG_LINE = 1_000
"""Average length of the lines of a minified file, in bytes."""
FIRST_COMMENT = re.compile(rb"\s*/\*.*?\*/", re.DOTALL)
HEAD_BYTES = 1_500
NOTE = re.compile(
    rb"""^[ \t]*(?:\#|//|/?\*|--|;|<!--|%|"{3}|'{3}|dnl\b)?[^\n"'=]{0,40}?(?:
        @generated\b
      | (?:auto[- ]?)?generated\b[^\n]{0,200}\bdo[ ]not[ ](?:edit|modify|change)\b
      | (?:do[ ]not|don't)[ ](?:edit|modify|change)\b[^\n"']{0,80}(?:\n[^\n"'=]{0,80})?\b(?:auto[- ]?)?generated\b
      | this[ ]file[ ](?:is|was|has[ ]been)[ ](?:auto(?:matically)?[- ]?)generated\b
    )""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)


def generated_reason(name: str, sample: bytes) -> str | None:
    """Return why a program wrote the file: from its ``name``, without folder, and its first bytes, if there are any."""
    lower = name.lower()
    if lower in LOCK_FILES:
        return "a lock file of a package manager"
    if SOURCE_MAP.search(lower):
        return "a source map"
    if MINIFIED.search(lower):
        return "minified code"
    reader = named_reader(name)
    if reader is None or reader.name not in CODE:
        return None
    body = FIRST_COMMENT.sub(b"", sample, count=1)
    if lower.endswith(MINIFIED_SUFFIXES) and len(body) > LONG_LINE * (body.count(b"\n") + 1):
        return "minified code"
    if NOTE.search(sample[:HEAD_BYTES]):
        return "generated code, as its first lines say"
    return None

"""Read a file of queries."""

from __future__ import annotations

import json
from pathlib import Path

from ragembed.errors import ConfigError

_KEYS = ("query", "question", "text")


def read_queries(path: Path) -> list[str]:
    """Return the queries of a file, each once, in order.

    A line is a query, and text after a tab is ignored; or a JSON object with the key ``query``. Blank lines are
    skipped. Raises :class:`ConfigError` with the line number if a line is invalid or the file cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the queries in {path}: {error}; expected a UTF-8 text file") from error
    found = [_query(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise ConfigError(f"{path} has no queries: expected one per line")
    return list(dict.fromkeys(found))


def _query(line: str, place: str) -> str:
    if not line.lstrip().startswith("{"):
        query = line.partition("\t")[0].strip()
    else:
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{place} is not a valid JSON object: {error}") from None
        query = next((fields[key].strip() for key in _KEYS if isinstance(fields.get(key), str)), "")
    if not query:
        raise ConfigError(f"{place} has no query: expected a text, or a JSON object with the key query")
    return query
